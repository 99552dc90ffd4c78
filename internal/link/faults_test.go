package link_test

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// wire forwards TCP until it is cut: then bytes vanish and nobody is told.
type wire struct {
	listener net.Listener
	up, down atomic.Bool // cut, from the client and to it
	mu       sync.Mutex
	conns    []net.Conn
	wg       sync.WaitGroup
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &wire{listener: l}
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, client, server)
			w.mu.Unlock()
			w.wg.Add(2)
			go w.pump(client, server, &w.up)
			go w.pump(server, client, &w.down)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

func (w *wire) pump(from, to net.Conn, cut *atomic.Bool) {
	defer w.wg.Done()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if cut.Load() {
			if err != nil {
				return
			}
			continue
		}
		if _, werr := to.Write(b[:n]); werr != nil || err != nil {
			_ = to.Close()
			return
		}
	}
}

// C31: half-open connections, in both directions and in one.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*wire){
		"both ways":     func(w *wire) { w.up.Store(true); w.down.Store(true) },
		"from provider": func(w *wire) { w.up.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			s := r.serve(quick())
			w := newWire(t, s.address)
			l := r.dial(w.listener.Addr().String(), fixed(r.token)).connect(offer())
			l.keep(quick().HeartbeatEvery)
			cut(w)
			began := now()
			r.ends(l.id, fleet.HeartbeatLapsed)
			require.Less(t, now().Sub(began), 10*time.Second)
			r.client(s).connect(offer()) // it comes back another way
		})
	}
}

// A client that never reads: the server lets go of it, and nobody else waits.
func TestUnreadClient(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(quick())
	c := r.client(s)
	lively := c.connect(offer())
	lively.keep(quick().HeartbeatEvery)
	id := r.dial(s.address, fixed(r.token)).register(offer(bare, named("deaf"))).GetConnectionId()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := r.dial(s.address, fixed(r.token)).Connect(ctx)
	require.NoError(t, err)
	go func() {
		for stream.Send(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{
			Heartbeat: &nodev1.Heartbeat{ConnectionId: id, ProtocolVersion: 1},
		}}) == nil {
		}
	}()
	r.ends(id, fleet.StreamFailed)
	lively.beat(0)
	lively.acked()
	require.Equal(t, fleet.ConnectionActive, r.row(lively.id).State)
}

// shifted is a clock that a test moves.
type shifted struct{ by atomic.Int64 }

func (s *shifted) now() time.Time { return now().Add(time.Duration(s.by.Load())) }

// C32 the other way round: a server that was paused kills nobody for it.
func TestPausedServer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	clock := &shifted{}
	s := r.serve(quick(), func(o *link.Options) { o.Now = clock.now })
	c := r.client(s)
	l := c.connect(offer())
	l.keep(quick().HeartbeatEvery)
	waiting := c.register(offer(bare, named("waiting"))).GetConnectionId()
	silent := c.connect(offer(bare, named("silent")))
	clock.by.Store(int64(10 * time.Minute)) // as if it had been stopped so long
	refused(t, codes.DeadlineExceeded, silent.ended())
	r.ends(waiting, fleet.StreamRequired)
	l.beat(0)
	l.acked()
	require.Equal(t, fleet.ConnectionActive, r.row(l.id).State)
}

// mortal is a store that a server loses, as one does that was stopped or cut off.
type mortal struct {
	link.Store
	dead atomic.Bool
}

var errDead = fleet.Errorf(fleet.Unavailable, "no database")

func (m *mortal) LinkServerSeen(ctx context.Context, id string, silence time.Duration) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.LinkServerSeen(ctx, id, silence)
}

func (m *mortal) LinkServers(ctx context.Context) ([]nodes.LinkServer, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.LinkServers(ctx)
}

func (m *mortal) HeldConnections(ctx context.Context, server string) (map[fleet.ConnectionID]nodes.Held, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	return m.Store.HeldConnections(ctx, server)
}

func (m *mortal) MoveConnections(ctx context.Context, server string, moves nodes.ConnectionMoves) error {
	if m.dead.Load() {
		return errDead
	}
	return m.Store.MoveConnections(ctx, server, moves)
}

func (r *region) mortal() (*mortal, func(*link.Options)) {
	m := &mortal{Store: r.store}
	return m, func(o *link.Options) { o.Store = m }
}

// C75, X23: the connections of a server that is gone are ended by another; when it was only
// away, it learns of that.
func TestLapsedServer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	m, with := r.mortal()
	a, b := r.serve(quick(), with), r.serve(quick())
	l := r.client(a).connect(offer())
	l.keep(quick().HeartbeatEvery)
	other := r.client(b).connect(offer(bare, named("other")))
	other.keep(quick().HeartbeatEvery)
	m.dead.Store(true)
	r.ends(l.id, fleet.ServerLapsed)
	r.client(b).connect(offer(named("vision-2"))) // its module namespace is free
	l.beat(0)
	l.acked() // it cannot know
	m.dead.Store(false)
	require.Equal(t, "server_lapsed", refused(t, codes.Unavailable, l.ended()))
	r.client(a).connect(offer(bare, named("back"))) // and serves again
	require.Equal(t, fleet.ConnectionActive, r.row(other.id).State)
}

// A database that was away from all makes no server lapse, and no provider notice.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	am, aWith := r.mortal()
	bm, bWith := r.mortal()
	a, b := r.serve(quick(), aWith), r.serve(quick(), bWith)
	l, ending := r.client(a).connect(offer()), r.client(b).connect(offer(bare, named("ending")))
	l.keep(quick().HeartbeatEvery)
	away := time.NewTimer(2 * quick().HeartbeatTimeout)
	am.dead.Store(true)
	bm.dead.Store(true)
	refused(t, codes.DeadlineExceeded, ending.ended())
	require.Equal(t, fleet.ConnectionActive, r.row(ending.id).State, "it could not be written")
	<-away.C
	am.dead.Store(false)
	bm.dead.Store(false)
	r.ends(ending.id, fleet.HeartbeatLapsed) // as it was seen then
	for range 8 {                            // two timeouts
		l.acked()
	}
	require.Equal(t, fleet.ConnectionActive, r.row(l.id).State)
}

// C47: a server that stops ends its streams, and its rows with them.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	a, b := r.serve(slow()), r.serve(slow())
	l := r.client(a).connect(offer())
	waiting := r.client(a).register(offer(bare, named("waiting"))).GetConnectionId()
	began := now()
	a.stop()
	require.Less(t, now().Sub(began), 3*time.Second)
	require.Equal(t, "server_lapsed", refused(t, codes.Unavailable, l.ended()))
	for _, id := range []string{l.id, waiting} {
		require.Equal(t, fleet.ServerLapsed, r.row(id).Reason)
	}
	r.client(b).connect(offer())
}

// A registration may open its stream at another server, and is drained through any.
func TestStreamAtAnotherServer(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	timing := slow()
	timing.StreamRequired = 4 * time.Second // that includes to connect
	a, b := r.serve(timing), r.serve(timing)
	l := r.client(b).open(r.client(a).register(offer()).GetConnectionId())
	l.acked()
	require.Equal(t, b.id, r.row(l.id).Server)
	r.drain(l.id, "x", time.Minute)
	l.drainRequest()
	l.ackDrain(0)
	r.eventually("it drains", func() bool { return r.row(l.id).State == fleet.ConnectionDraining })
	over := time.NewTimer(timing.StreamRequired + 2*time.Second) // a's monitor has long looked by then
	defer over.Stop()
	<-over.C
	l.beat(0)
	l.acked()
	_, err := r.client(a).Deregister(t.Context(), &nodev1.DeregisterRequest{ConnectionId: l.id})
	require.NoError(t, err)
	require.ErrorIs(t, l.ended(), io.EOF)
}

// A row whose call broke off half way does not block its name for ever.
func TestHalfARegistration(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	r.client(s).connect(offer(bare)) // it serves
	made, err := r.store.RegisterConnection(t.Context(), fleet.Registration{
		Identity: "token:" + r.id, Provider: "lost", Namespace: "acme", Executor: "a:1", Protocol: 1,
	}, s.id)
	require.NoError(t, err)
	r.exec(`UPDATE connections SET registered_at = now() - interval '1 minute' WHERE id = $1`, string(made.ID))
	r.ends(string(made.ID), fleet.StreamFailed)
}

// busy is a store whose moves of connections have to wait.
type busy struct {
	link.Store
	waits    atomic.Bool
	compares atomic.Int64
}

func (b *busy) HeldConnections(ctx context.Context, server string) (map[fleet.ConnectionID]nodes.Held, error) {
	defer b.compares.Add(1)
	return b.Store.HeldConnections(ctx, server)
}

func (b *busy) MoveConnections(ctx context.Context, server string, moves nodes.ConnectionMoves) error {
	if b.waits.Load() {
		return errDead
	}
	return b.Store.MoveConnections(ctx, server, moves)
}

// C9: a connection ends for the reason that its server saw, however late its row is written, and though its row
// looks abandoned until then.
func TestReasonOutlivesBusyDatabase(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	store := &busy{Store: r.store}
	store.waits.Store(true)
	s := r.serve(quick(), func(o *link.Options) { o.Store = store })
	c := r.client(s)
	silent := make([]*live, 8)
	for i := range silent {
		silent[i] = c.connect(offer(bare, named("silent-"+number(i))))
	}
	r.exec(`UPDATE connections SET registered_at = now() - interval '1 minute'`) // none is about to be held
	for _, l := range silent {
		refused(t, codes.DeadlineExceeded, l.ended())
	}
	before := store.compares.Load()
	r.eventually("the server compares twice", func() bool { return store.compares.Load() >= before+3 })
	store.waits.Store(false)
	for _, l := range silent {
		r.ends(l.id, fleet.HeartbeatLapsed)
	}
}

// A flood of refusals fills no table: some rows, and a count of the rest.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	c := r.client(s)
	const flood = 300
	for range flood {
		_, err := c.Register(t.Context(), offer(func(in *nodev1.RegisterRequest) { in.ModuleNamespace = "other" }))
		refused(t, codes.PermissionDenied, err)
	}
	for i := range flood {
		s.audit.Refuse(audit.Refusal{Door: "tasks", Identity: "?node:n" + string(rune('a'+i%26)) + string(rune('a'+i/26)), Reason: "queue", What: "node.x"})
	}
	s.stop()
	all, err := r.store.ListRefusals(t.Context(), "", 0, 1000)
	require.NoError(t, err)
	var granted, times int64
	for _, f := range all {
		if f.Reason == "namespace_not_granted" {
			granted++
			times += f.Times
			require.Equal(t, "token:"+r.id, f.Identity)
		}
	}
	require.EqualValues(t, 6, granted)
	require.EqualValues(t, flood, times)
	require.LessOrEqual(t, len(all), 220)
}

func number(i int) string {
	return string([]byte{byte('0' + i/1000%10), byte('0' + i/100%10), byte('0' + i/10%10), byte('0' + i%10)})
}
