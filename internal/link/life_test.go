package link_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
)

// C1, C4, C5, C7, C15, C17, C18, C20, C27, C28, C62, C63: from the first word to the last.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	timing := slow()
	timing.Report = 50 * time.Millisecond
	s := r.serve(timing)
	c := r.client(s)
	got := c.register(offer())
	require.EqualValues(t, 1, got.GetProtocolVersion())
	require.Equal(t, timing.HeartbeatEvery, got.GetHeartbeatInterval().AsDuration())
	require.Equal(t, timing.HeartbeatTimeout, got.GetHeartbeatTimeout().AsDuration())
	require.Equal(t, timing.StreamRequired, got.GetRequiredTimeout().AsDuration())
	row := r.row(got.GetConnectionId())
	require.Equal(t, fleet.ConnectionRegistered, row.State)
	require.Equal(t, "token:"+r.id, row.Identity)
	require.Equal(t, s.id, row.Server)

	l := c.open(got.GetConnectionId())
	ack := l.acked()
	require.Equal(t, got.GetConnectionId(), ack.GetConnectionId())
	require.EqualValues(t, 1, ack.GetProtocolVersion())
	require.Equal(t, fleet.ConnectionActive, r.row(l.id).State)
	report := l.await("report", func(m *nodev1.ConnectResponse) bool { return m.GetActiveModulesReport() != nil })
	require.Equal(t, []string{"detect", "track"}, report.GetActiveModulesReport().GetActiveModules())

	l.beat(7)
	l.acked()
	r.eventually("what is in flight is written down", func() bool { return r.row(l.id).InFlight == 7 })
	require.NotNil(t, r.row(l.id).HeartbeatAt)

	require.NoError(t, l.stream.CloseSend())
	require.ErrorContains(t, l.ended(), "EOF")
	row = r.row(l.id) // at once: the stream ends after the row
	require.Equal(t, fleet.StreamClosed, row.Reason)
	live, err := r.store.ListConnections(t.Context(), "", "", 10)
	require.NoError(t, err)
	require.Empty(t, live)
}

// C2, C6, C9, C10, C14, C30 to C37, C48, C53, C56, C65: each way in which one ends, and that
// what it had is free afterwards.
func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("without a stream in time", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		c := r.client(r.serve(quick()))
		id := c.register(offer()).GetConnectionId()
		r.ends(id, fleet.StreamRequired)
		c.connect(offer(named("vision-2"))) // the module namespace is free
		again := c.open(id)
		m := again.await("again", func(m *nodev1.ConnectResponse) bool { return m.GetRegisterAgain() != nil })
		require.Equal(t, "stream_required", m.GetRegisterAgain().GetReason())
		require.ErrorContains(t, again.ended(), "EOF")
	})
	t.Run("without heartbeats, and that one only", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		timing := quick()
		timing.HeartbeatTimeout = 4 * time.Second // a busy machine keeps the lively one
		c := r.client(r.serve(timing))
		lively := c.connect(offer(named("lively"), grouped("g")))
		lively.keep(timing.HeartbeatEvery)
		began := now()
		silent := c.connect(offer(named("silent"), grouped("g")))
		refused(t, codes.DeadlineExceeded, silent.ended())
		took := now().Sub(began)
		require.GreaterOrEqual(t, took, timing.HeartbeatTimeout)
		require.Less(t, took, timing.HeartbeatTimeout+10*time.Second)
		r.ends(silent.id, fleet.HeartbeatLapsed)
		require.Equal(t, fleet.ConnectionActive, r.row(lively.id).State)
	})
	t.Run("by a broken stream", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		c := r.client(r.serve(slow()))
		l := c.connect(offer())
		l.cancel()
		r.ends(l.id, fleet.StreamFailed)
		c.connect(offer(named("vision-2")))
	})
	t.Run("by its provider's word, of one member only", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		c := r.client(r.serve(slow()))
		one, two := c.connect(offer(named("one"), grouped("g"))), c.connect(offer(named("two"), grouped("g")))
		for range 2 { // again is the same
			_, err := c.Deregister(t.Context(), &nodev1.DeregisterRequest{ConnectionId: one.id})
			require.NoError(t, err)
		}
		require.ErrorContains(t, one.ended(), "EOF")
		r.ends(one.id, fleet.Deregistered)
		two.beat(0)
		two.acked()
		refused(t, codes.Aborted, errOf(c.Register(t.Context(), offer(named("three")))))
		_, err := c.Deregister(t.Context(), &nodev1.DeregisterRequest{ConnectionId: two.id})
		require.NoError(t, err)
		c.register(offer(named("three"))) // the last member released it
	})
	t.Run("when its token is taken back", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		l := r.client(r.serve(slow())).connect(offer())
		require.NoError(t, r.store.RevokeAPIToken(t.Context(), r.id))
		require.Contains(t, refused(t, codes.PermissionDenied, l.ended()), "revoked")
		r.ends(l.id, fleet.Revoked)
	})
	t.Run("when its node enrols anew", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(slow())
		l := r.dial(s.address, signed(r.node("plant-1-a"))).connect(offer(bare, named("plant-1-a")))
		require.Equal(t, fleet.NodeName("plant-1-a"), r.row(l.id).Node)
		r.node("plant-1-a")
		refused(t, codes.PermissionDenied, l.ended())
	})
}

func errOf[T any](_ T, err error) error { return err }

// C61: what does not activate.
func TestStreamsThatOpenNothing(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	c := r.client(s)
	l := c.connect(offer())
	other, _ := r.provider("other")
	stranger := r.dial(s.address, fixed(other))

	again := func(l *live) string {
		m := l.await("again", func(m *nodev1.ConnectResponse) bool { return m.GetRegisterAgain() != nil })
		require.ErrorContains(t, l.ended(), "EOF")
		return m.GetRegisterAgain().GetReason()
	}
	require.Equal(t, "unknown", again(c.open("00000000000000000000000000000000")))
	require.Equal(t, "unknown", again(c.open("")))
	require.Equal(t, "unknown", again(stranger.open(l.id)), "a stranger does not learn that it exists")
	refused(t, codes.FailedPrecondition, c.open(l.id).ended())

	early, err := c.Connect(t.Context())
	require.NoError(t, err)
	require.NoError(t, early.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_DrainAck{DrainAck: &nodev1.DrainAck{ConnectionId: l.id}}}))
	_, err = early.Recv()
	refused(t, codes.InvalidArgument, err)

	waiting := c.register(offer(bare, named("old"))).GetConnectionId()
	wrong := &live{t: t, id: waiting}
	wrong.stream, err = c.Connect(t.Context())
	require.NoError(t, err)
	require.NoError(t, wrong.say(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{Heartbeat: &nodev1.Heartbeat{ConnectionId: waiting, ProtocolVersion: 9}}}))
	_, err = wrong.stream.Recv()
	refused(t, codes.FailedPrecondition, err)
	r.ends(waiting, fleet.StreamFailed)

	_, err = stranger.Deregister(t.Context(), &nodev1.DeregisterRequest{ConnectionId: l.id})
	refused(t, codes.NotFound, err)
	l.beat(0)
	l.acked() // none of it touched the one that lives
	r.eventually("the refusals are written", func() bool { return len(r.refusals("not_its_connection")) == 2 })
}

func (r *region) refusals(reason string) []string {
	r.t.Helper()
	all, err := r.store.ListRefusals(r.t.Context(), "", 0, 1000)
	require.NoError(r.t, err)
	var out []string
	for _, f := range all {
		if f.Reason == reason {
			out = append(out, f.Identity)
		}
	}
	return out
}

// C20, C22: a heartbeat that names another connection is answered, and keeps nobody alive.
func TestHeartbeatOfAnother(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	c := r.client(r.serve(quick()))
	l := c.connect(offer())
	id := l.id
	l.id = "00000000000000000000000000000000"
	l.keep(quick().HeartbeatEvery)
	m := l.await("again", func(m *nodev1.ConnectResponse) bool { return m.GetRegisterAgain() != nil })
	require.Equal(t, "unknown", m.GetRegisterAgain().GetReason())
	refused(t, codes.DeadlineExceeded, l.ended())
	r.ends(id, fleet.HeartbeatLapsed)
}

// C73, C82: the same provider comes back before its old connection is dead.
func TestTakeover(t *testing.T) {
	t.Parallel()
	t.Run("by the same identity", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		c := r.client(r.serve(slow()))
		old := c.connect(offer())
		fresh := c.connect(offer())
		require.NotEqual(t, old.id, fresh.id)
		require.Equal(t, "replaced", refused(t, codes.Aborted, old.ended()))
		require.Equal(t, fleet.Replaced, r.row(old.id).Reason)
	})
	t.Run("at another server, at once", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		timing := slow()
		timing.HeartbeatEvery = 20 * time.Second // only the notification is so quick
		first := r.serve(timing)
		r.listens(1)
		old := r.client(first).connect(offer())
		began := now()
		r.client(r.serve(timing)).connect(offer())
		require.Equal(t, "replaced", refused(t, codes.Aborted, old.ended()))
		require.Less(t, now().Sub(began), timing.HeartbeatEvery/2)
	})
	t.Run("not by another identity, nor when it is refused", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := r.serve(slow())
		c := r.client(s)
		l := c.connect(offer())
		token, _ := r.provider("acme.vision")
		other := r.dial(s.address, fixed(token))
		require.Contains(t, refused(t, codes.Aborted, errOf(other.Register(t.Context(), offer()))), "belongs to provider vision-1 of token:"+r.id)
		refused(t, codes.PermissionDenied, errOf(c.Register(t.Context(), offer(func(in *nodev1.RegisterRequest) { in.ModuleNamespace = "beta" }))))
		l.beat(0)
		l.acked()
		r.eventually("the theft is written down", func() bool { return len(r.refusals("namespace_owned")) == 1 })
	})
	t.Run("of many at once one lives", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		one, two := r.client(r.serve(slow())), r.client(r.serve(slow()))
		const flood = 60
		var wg sync.WaitGroup
		for i := range flood {
			c := one
			if i%2 == 1 {
				c = two
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, err := c.Register(t.Context(), offer())
				if err != nil {
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		live, err := r.store.ListConnections(t.Context(), "", "", 100)
		require.NoError(t, err)
		require.Len(t, live, 1)
		var replaced, modules int
		require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT count(*) FROM connections WHERE reason = 'replaced'").Scan(&replaced))
		require.Equal(t, flood-1, replaced)
		require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT count(*) FROM modules m JOIN connections c ON c.id = m.connection WHERE c.ended_at IS NULL").Scan(&modules))
		require.Equal(t, 2, modules)
	})
}

// C76 to C78, C80, C81: what is refused, and that it leaves nothing behind.
func TestRegisterIsRefused(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow(), func(o *link.Options) {
		o.CheckSchema = func(text string) error {
			if text == "{" {
				return fleet.Errorf(fleet.Invalid, "not a schema")
			}
			return nil
		}
	})
	c := r.client(s)
	group := c.connect(offer(grouped("g"), named("member")))
	set := func(f func(*nodev1.RegisterRequest)) *nodev1.RegisterRequest { return offer(grouped("g"), f) }
	for name, row := range map[string]struct {
		in   *nodev1.RegisterRequest
		code codes.Code
		says string
	}{
		"no version":          {offer(func(in *nodev1.RegisterRequest) { in.ProtocolVersion = 0 }), codes.FailedPrecondition, "versions 1 to 1"},
		"no name":             {offer(named("")), codes.InvalidArgument, "provider"},
		"reserved":            {offer(func(in *nodev1.RegisterRequest) { in.ModuleNamespace = "stdlib.text" }), codes.PermissionDenied, "reserved"},
		"not granted":         {offer(func(in *nodev1.RegisterRequest) { in.ModuleNamespace = "acmeother" }), codes.PermissionDenied, "not granted"},
		"a scheme":            {offer(func(in *nodev1.RegisterRequest) { in.ExecutorAddress = "http://a:1" }), codes.InvalidArgument, "executorAddress"},
		"another's executor":  {offer(func(in *nodev1.RegisterRequest) { in.ExecutorAddress = "169.254.169.254:80" }), codes.PermissionDenied, "is not the one that its provider registered from"},
		"solo into a group":   {offer(), codes.Aborted, "belongs to group g"},
		"another group":       {offer(grouped("h")), codes.Aborted, "belongs to group g"},
		"fewer modules":       {set(func(in *nodev1.RegisterRequest) { in.Modules = in.Modules[:1] }), codes.Aborted, "other modules"},
		"other schemas":       {set(func(in *nodev1.RegisterRequest) { in.Modules[0].InputSchema = `{"type":"string"}` }), codes.Aborted, "other modules"},
		"no good module name": {set(func(in *nodev1.RegisterRequest) { in.Modules = []*nodev1.Module{{Name: "1st"}} }), codes.InvalidArgument, "no module was accepted"},
		"no good schema": {set(func(in *nodev1.RegisterRequest) {
			in.Modules = []*nodev1.Module{{Name: "a", OutputSchema: "{"}}
		}), codes.InvalidArgument, "not a schema"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Register(t.Context(), row.in)
			require.Contains(t, refused(t, row.code, err), row.says)
		})
	}
	live, err := r.store.ListConnections(t.Context(), "", "", 100)
	require.NoError(t, err)
	require.Len(t, live, 1, "nothing is left of the refused")
	require.Equal(t, group.id, string(live[0].ID))

	// One bad module does not take the others along; a member of another order is the same, and one
	// that is upgraded may take more.
	got := c.register(offer(grouped("g"), named("second"), func(in *nodev1.RegisterRequest) {
		in.ProtocolVersion = 7
		in.Modules = []*nodev1.Module{{Name: "track"}, {Name: "a-b"}, {Name: "track"}, {Name: "said", Description: "\x00"}, {Name: "detect", InputSchema: `{ "type": "object", "properties": {"a": {"type": "string"}} }`}}
	}))
	require.EqualValues(t, 1, got.GetProtocolVersion(), "the lower of both")
	var reasons []string
	for _, m := range got.GetModules() {
		reasons = append(reasons, m.GetReason())
	}
	require.Equal(t, []string{"", "name", "repeated", "description", ""}, reasons)
}

// C87: who may open the link at all.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	good := r.node("plant-1-a")
	stolen := good
	revoked := r.node("plant-1-b")
	r.exec(`UPDATE nodes SET revoked_at = now() WHERE name = 'plant-1-b'`)
	admin, _ := r.apiToken("admin")
	for name, row := range map[string]struct {
		as   bearer
		code codes.Code
	}{
		"a made-up token":                {fixed("made-up"), codes.Unauthenticated},
		"an administrator":               {fixed(admin), codes.PermissionDenied},
		"a revoked node":                 {signed(revoked), codes.Unauthenticated},
		"a node's token for bulk":        {func() (string, error) { return good.Sign("holdfast-region", now()) }, codes.Unauthenticated},
		"a token of two minutes ago":     {func() (string, error) { return good.Sign("holdfast-link", now().Add(-2*time.Minute)) }, codes.Unauthenticated},
		"nonsense in the form of one":    {fixed("a.b.c"), codes.Unauthenticated},
		"a node under another's name":    {signed(stolen), codes.PermissionDenied},
		"an empty token":                 {fixed(""), codes.Unauthenticated},
		"a node that claims a namespace": {signed(good), codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			in := offer(bare, named("plant-1-b"))
			if name == "a node that claims a namespace" {
				in = offer(named("plant-1-a"))
			}
			c := r.dial(s.address, row.as)
			_, err := c.Register(t.Context(), in)
			refused(t, row.code, err)
			if row.code != codes.Unauthenticated {
				return
			}
			stream, err := c.Connect(t.Context())
			require.NoError(t, err)
			_, err = stream.Recv()
			refused(t, row.code, err)
		})
	}
	r.dial(s.address, signed(good)).connect(offer(bare, named("plant-1-a")))
	for _, reason := range []string{"unknown_token", "role", "node_token", "provider_name", "namespace_not_granted", "no_token"} {
		r.eventually(reason+" is written down", func() bool { return len(r.refusals(reason)) > 0 })
	}
	require.Contains(t, r.refusals("node_token"), "?node:plant-1-b")
}
