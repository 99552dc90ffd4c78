package tenure_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// fakeTenant notes what is asked of a node.
type fakeTenant struct {
	floor  int64
	onOwed func(ctx context.Context) error
	onStop func(ctx context.Context) error
	// onReset may have a reset of the store fail.
	onReset func() error

	resets, resetFrom int64

	mu    sync.Mutex
	lease guardian.Lease
	role  fleet.Role
	epoch int64
	steps []string
}

var _ tenure.Tenant = (*fakeTenant)(nil)

func (f *fakeTenant) note(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps = append(f.steps, step)
}

func (f *fakeTenant) Lease(_ context.Context, l guardian.Lease) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lease = l
	return nil
}

func (f *fakeTenant) Owed(ctx context.Context) error {
	f.note("owed")
	if f.onOwed != nil {
		return f.onOwed(ctx)
	}
	return nil
}

func (f *fakeTenant) Adopt(_ context.Context, role fleet.Role, epoch int64, _ fleet.NodeName) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.role, f.epoch, f.floor = role, epoch, max(f.floor, epoch)
	f.steps = append(f.steps, string(role))
	return nil
}

func (f *fakeTenant) Stop(ctx context.Context) error {
	f.note("stop")
	if f.onStop != nil {
		return f.onStop(ctx)
	}
	return nil
}

func (f *fakeTenant) Settle() { f.note("settle") }

func (f *fakeTenant) Reset(_ context.Context, number, epoch int64) (int64, error) {
	f.note(fmt.Sprintf("reset %d to %d", number, epoch))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onReset != nil {
		if err := f.onReset(); err != nil {
			return 0, err
		}
	}
	if number > f.resets {
		f.resets, f.resetFrom = number, f.floor
		if lease.Far(f.floor, epoch) {
			f.floor = epoch
		}
	}
	return f.resetFrom, nil
}

func (f *fakeTenant) Floor(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.floor, nil
}

func (f *fakeTenant) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

func (f *fakeTenant) seen() (guardian.Lease, fleet.Role, int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lease, f.role, f.epoch
}

// taken tells the steps so far.
func (f *fakeTenant) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

// fakeRegion is what of a region answers a site of one node.
type fakeRegion struct {
	vote func(lease.Call, lease.Request) lease.Answer // nil is away

	mu   sync.Mutex
	told int64
}

func (f *fakeRegion) Vote(_ context.Context, call lease.Call, q lease.Request) (lease.Answer, error) {
	if f.vote == nil {
		return lease.Answer{}, fleet.Errorf(fleet.Unavailable, "away")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.vote(call, q), nil
}

func (f *fakeRegion) Tell(_ context.Context, _ fleet.SiteName, epoch int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = epoch
	return nil
}

type kept struct {
	*tenure.Keeper
	t      *testing.T
	dir    string
	ttl    time.Duration
	key    identity.Key
	tenant *fakeTenant
	region *fakeRegion
	stop   func()
	clock  func() (lease.Instant, error)
	said   chan audit.Refusal
}

const (
	shortTTL      = 900 * time.Millisecond
	steadyTTL     = 3 * time.Second
	shortInterval = 300 * time.Millisecond
)

// newKept is a node that joined, and knows nothing of its site yet.
func newKept(t *testing.T) *kept {
	t.Helper()
	key, err := identity.Generate(nodeA)
	require.NoError(t, err)
	k := &kept{
		t: t, dir: testkit.Dir(t), ttl: shortTTL, key: key, tenant: &fakeTenant{floor: 4}, region: &fakeRegion{},
		said: make(chan audit.Refusal, 100),
	}
	require.NoError(t, tenure.Joined(k.dir, site, nodeA))
	return k
}

// steady has its leases last so long that a busy machine renews each in time.
func (k *kept) steady() *kept {
	k.ttl = steadyTTL
	return k
}

// open makes the keeper, without its loop.
func (k *kept) open() {
	k.t.Helper()
	var err error
	k.Keeper, err = tenure.Open(tenure.Options{
		Site: site, Node: nodeA, Dir: k.dir, TTL: k.ttl, Interval: shortInterval, Key: func() identity.Key { return k.key },
		Tenant: k.tenant, Region: k.region, Log: slog.New(slog.DiscardHandler), OwedLimit: 50 * time.Millisecond,
		Clock: k.clock, Refused: func(r audit.Refusal) bool { k.said <- r; return true },
	})
	require.NoError(k.t, err)
}

func (k *kept) start() *kept {
	k.t.Helper()
	k.open()
	require.NoError(k.t, k.Begin(k.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	k.stop = sync.OnceFunc(func() { cancel(); require.NoError(k.t, <-done) })
	k.t.Cleanup(k.stop)
	return k
}

// end is the agent's: what it held stays held until its deadline.
func (k *kept) end() { k.stop() }

func (k *kept) tell(members ...tenure.Member) {
	k.t.Helper()
	require.NoError(k.t, k.SetSite(k.t.Context(), tenure.Site{
		Name: site, Generation: 3, Members: members, OnIsolation: lease.IsolationStop,
	}))
}

func (k *kept) eventually(what string, cond func() bool) {
	k.t.Helper()
	require.Eventually(k.t, cond, patience, 5*time.Millisecond, what)
}

// slowed is the clock of leases, so many times slower from now on.
func slowed(times time.Duration) func() (lease.Instant, error) {
	from := guardian.SinceBoot()
	return func() (lease.Instant, error) { return lease.Instant(from + (guardian.SinceBoot()-from)/times), nil }
}

var (
	alone  = tenure.Member{Node: nodeA, Role: fleet.RoleActive}
	worker = tenure.Member{Node: nodeA, Role: fleet.RoleWorker}
	other  = tenure.Member{Node: nodeB, Role: fleet.RoleStandby, PeerAddress: "127.0.0.1:1"}
)

// X21
func TestKeeper(t *testing.T) {
	t.Parallel()
	t.Run("without a site it holds nothing, and what ran may not", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		require.False(t, k.MayRun())
		l, _, _ := k.tenant.seen()
		require.Equal(t, guardian.Lease{TTL: shortTTL}, l)
		out, err := k.TakeOver(t.Context(), fleet.TakeOverCommand{Site: site, DeadlineSeconds: 1})
		require.NoError(t, err)
		require.Equal(t, fleet.TakeOverResult{Reason: "no_part"}, out)
	})
	t.Run("alone it takes an epoch above what its store knows, tells the region, and asks first for what is owed", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).steady()
		k.tenant.onOwed = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } // the region is away
		k.start().tell(alone)
		k.eventually("it may run", k.MayRun)
		k.eventually("it is active", func() bool { _, role, epoch := k.tenant.seen(); return role == fleet.RoleActive && epoch == 5 })
		k.eventually("the region is told", func() bool { k.region.mu.Lock(); defer k.region.mu.Unlock(); return k.region.told >= 5 })
		k.eventually("it is settled", func() bool { return len(k.tenant.taken()) >= 3 })
		require.Equal(t, []string{"owed", "active", "settle"}, k.tenant.taken()[:3])
		stats := k.Stats()
		require.True(t, stats.Holds)
		require.EqualValues(t, 5, stats.Epoch)
		require.Positive(t, stats.Left)
		require.LessOrEqual(t, stats.Left, k.ttl)
		out, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, To: nodeB, DeadlineSeconds: 1})
		require.NoError(t, err)
		require.Equal(t, "not_a_voter", out.Reason, "there is nobody to hand it to")
		require.False(t, out.Released)
	})
	t.Run("restarted late in its lease, it has what was refused a start settled by the renewal", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		boot, err := boottime.Boot()
		require.NoError(t, err)
		known, err := json.Marshal(tenure.Site{Name: site, Generation: 3, Members: []tenure.Member{alone}, OnIsolation: lease.IsolationStop})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(k.dir, tenure.SiteFile), known, 0o600))
		k.clock = slowed(100)
		now, err := k.clock()
		require.NoError(t, err)
		require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), votefile.State{
			Site: site, Node: nodeA, Record: lease.Record{Promised: 5, PromisedTo: nodeA, Holder: nodeA, Epoch: 5, Counter: 9, TTL: shortTTL},
			Claim: lease.Claim{Epoch: 5, Counter: 9, Deadline: now.Add(shortTTL / 5), Boot: boot},
		}))
		k.start()
		k.eventually("it is settled", func() bool { return slices.Contains(k.tenant.taken(), "settle") })
		require.NotContains(t, k.tenant.taken(), "owed", "it never lost it")
	})
	t.Run("restarted late in its lease, the holder of a site that says run has no deadline before it runs", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		boot, err := boottime.Boot()
		require.NoError(t, err)
		known, err := json.Marshal(tenure.Site{Name: site, Generation: 3, Members: []tenure.Member{alone, other}, OnIsolation: lease.IsolationRun})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(k.dir, tenure.SiteFile), known, 0o600))
		k.clock = slowed(1000)
		now, err := k.clock()
		require.NoError(t, err)
		state := votefile.State{
			Site: site, Node: nodeA, Record: lease.Record{Promised: 5, PromisedTo: nodeA, Holder: nodeA, Epoch: 5, Counter: 9, TTL: shortTTL},
			Claim: lease.Claim{Epoch: 5, Counter: 9, Deadline: now.Add(2 * shortTTL / 3), Boot: boot},
		}
		require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), state))
		k.open()
		require.NoError(t, k.Begin(t.Context()))
		l, _, _ := k.tenant.seen()
		require.Equal(t, guardian.Lease{Deadline: time.Duration(state.Claim.Deadline), TTL: shortTTL, Patient: true}, l, "it has time to ask")

		state.Claim.Deadline = now.Add(shortTTL / 2)
		require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), state))
		k.open()
		require.NoError(t, k.Begin(t.Context()))
		l, _, _ = k.tenant.seen()
		require.Equal(t, decide.NoDeadline, l.Deadline, "the guardians know before the loop ever looks at the time")
		require.True(t, k.MayRun())
		kept, err := votefile.Load(filepath.Join(k.dir, votefile.Name), votefile.State{Site: site, Node: nodeA}, votefile.Enrolled)
		require.NoError(t, err)
		require.True(t, kept.Claim.Unbounded, "and so does its next life")
	})
	t.Run("alone it hands over to nobody when it is drained", func(t *testing.T) { // X5
		t.Parallel()
		k := newKept(t).steady().start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		out, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		require.False(t, k.MayRun())
	})
	t.Run("it gives back the epoch that is named, and no other", func(t *testing.T) { // X13, X21
		t.Parallel()
		k := newKept(t).steady().start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		held := k.Stats().Epoch
		for _, other := range []int64{held - 1, held + 1} {
			_, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, Epoch: other, DeadlineSeconds: 30})
			require.Equal(t, fleet.Stale, fleet.KindOf(err))
			require.True(t, k.MayRun())
		}
		out, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, Epoch: held, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		require.False(t, k.MayRun())
	})
	t.Run("a hand-over that is asked for again goes on when the first is cut short", func(t *testing.T) { // X5, X13
		t.Parallel()
		k := newKept(t).steady()
		stopped := make(chan struct{})
		k.tenant.onStop = func(ctx context.Context) error {
			select {
			case <-stopped:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		k.start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		first := make(chan fleet.HandOverResult, 1)
		go func() {
			out, _ := k.HandOver(context.WithoutCancel(t.Context()), fleet.HandOverCommand{Site: site, DeadlineSeconds: 2})
			first <- out
			close(stopped)
		}()
		k.eventually("it stops", func() bool { return slices.Contains(k.tenant.all(), "stop") })
		settled := len(k.tenant.all())
		out, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		require.Equal(t, "deadline", (<-first).Reason)
		require.NotContains(t, k.tenant.all()[settled:], "settle", "what was stopped is not started again")
	})
	t.Run("a worker has no part in it, and no deadline", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(worker, tenure.Member{Node: nodeB, Role: fleet.RoleActive})
		k.eventually("no deadline", func() bool { l, _, _ := k.tenant.seen(); return l == guardian.NoDeadline() })
		require.False(t, k.MayRun())
	})
	t.Run("a holder that is made a worker stops and gives it back", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		k.tell(worker)
		k.eventually("it ended", func() bool { l, _, _ := k.tenant.seen(); return l == guardian.NoDeadline() && !k.MayRun() })
		require.Contains(t, k.tenant.taken(), "stop")
	})
	t.Run("one that decided alone tells its epoch again when a second node is declared: until then the region's vote is lost", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).steady()
		k.region.vote = func(_ lease.Call, q lease.Request) lease.Answer {
			return lease.Answer{Voter: lease.Region, Reason: lease.Lost, Nonce: q.Nonce}
		}
		told := func(epoch int64) bool {
			k.region.mu.Lock()
			defer k.region.mu.Unlock()
			return k.region.told == epoch
		}
		k.start().tell(alone)
		k.eventually("the region knows", func() bool { return told(5) })
		k.region.mu.Lock()
		k.region.told = 0
		k.region.mu.Unlock()
		k.tell(alone, other) // which is not up
		k.eventually("the region is told again", func() bool { return told(5) })
	})
	t.Run("one whose lease ended before it heard of the second node tells the last epoch that it decided alone", func(t *testing.T) {
		t.Parallel()
		for name, record := range map[string]lease.Record{
			"ran out":  {Promised: 5, PromisedTo: nodeA, Holder: nodeA, Epoch: 5, Counter: 9, TTL: shortTTL},
			"released": {Promised: 5, PromisedTo: nodeA, Epoch: 5, Counter: 9, TTL: shortTTL},
		} {
			k := newKept(t)
			require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), votefile.State{Site: site, Node: nodeA, Record: record}))
			k.region.vote = func(_ lease.Call, q lease.Request) lease.Answer {
				return lease.Answer{Voter: lease.Region, Reason: lease.Lost, Nonce: q.Nonce}
			}
			k.start().tell(alone, other) // which is not up
			k.eventually("the region is told: "+name, func() bool { k.region.mu.Lock(); defer k.region.mu.Unlock(); return k.region.told == 5 })
			require.False(t, k.MayRun())
		}
	})
	for name, record := range map[string]lease.Record{
		"its peer's":                    {Promised: 5, PromisedTo: nodeB, Holder: nodeB, Epoch: 5, Counter: 9, TTL: shortTTL},
		"that of a node that was there": {Promised: 5, PromisedTo: "plant-1-c", Holder: "plant-1-c", Epoch: 5, Counter: 9, TTL: shortTTL},
		"released by another":           {Promised: 5, PromisedTo: "plant-1-c", Epoch: 5, Counter: 9, TTL: shortTTL},
	} {
		t.Run("one whose last lease is "+name+" tells nothing", func(t *testing.T) {
			t.Parallel()
			k := newKept(t)
			require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), votefile.State{Site: site, Node: nodeA, Record: record}))
			asked := 0
			k.region.vote = func(_ lease.Call, q lease.Request) lease.Answer {
				asked++
				return lease.Answer{Voter: lease.Region, Reason: lease.Lost, Nonce: q.Nonce}
			}
			k.start().tell(alone, other)
			k.eventually("it asks", func() bool { k.region.mu.Lock(); defer k.region.mu.Unlock(); return asked > 3 })
			k.region.mu.Lock()
			defer k.region.mu.Unlock()
			require.Zero(t, k.region.told)
		})
	}
	t.Run("one of two alone gets nothing, and says who answered what", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(alone, other)
		out, err := k.TakeOver(t.Context(), fleet.TakeOverCommand{Site: site, Forced: true, DeadlineSeconds: 1})
		require.NoError(t, err)
		require.Zero(t, out.Epoch)
		require.Contains(t, out.Reason, "plant-1-b: not_reached")
		require.False(t, k.MayRun())
	})
	t.Run("a vote that cannot be written is not cast, and the lease runs out", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		votes := filepath.Join(k.dir, votefile.Name)
		k.eventually("something is in the file's way", func() bool { // it may be written again in between
			require.NoError(t, os.Rename(votes, votes+".away"))
			return os.MkdirAll(filepath.Join(votes, "in the way"), 0o700) == nil
		})
		k.eventually("it ran out", func() bool { l, _, _ := k.tenant.seen(); return !k.MayRun() && l == guardian.Lease{TTL: shortTTL} })
		require.NoError(t, os.RemoveAll(votes))
		require.NoError(t, os.Rename(votes+".away", votes))
		k.eventually("it may run again", k.MayRun)
		_, _, epoch := k.tenant.seen()
		require.GreaterOrEqual(t, epoch, int64(5))
	})
	t.Run("a lost vote comes back alone above the store's epoch, and waits first", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		require.NoError(t, os.Remove(filepath.Join(k.dir, votefile.Name)))
		began := guardian.SinceBoot()
		k.start().tell(alone)
		k.eventually("it may run", k.MayRun)
		require.GreaterOrEqual(t, guardian.SinceBoot()-began, shortTTL)
	})
	t.Run("what is older of the site is left out, and the file is its own", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(alone)
		older := tenure.Site{Name: site, Generation: 2, OnIsolation: lease.IsolationStop}
		require.NoError(t, k.SetSite(t.Context(), older))
		path := filepath.Join(k.dir, tenure.SiteFile)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(raw), `"generation":3`)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		require.Error(t, k.SetSite(t.Context(), tenure.Site{Name: "plant-2", Generation: 9, OnIsolation: lease.IsolationStop}))
	})
}

// X21: the peer's door takes the peer's own votes and nothing else.
func TestPeerDoor(t *testing.T) {
	t.Parallel()
	peer, err := identity.Generate(nodeB)
	require.NoError(t, err)
	thief, err := identity.Generate(nodeB)
	require.NoError(t, err)
	k := newKept(t).start()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	ask := func(key identity.Key, audience string, q lease.Request) (lease.Answer, error) {
		r := &tenure.Remote{Key: func() identity.Key { return key }, Wall: time.Now, Redial: 100 * time.Millisecond}
		defer r.Close()
		r.At(l.Addr().String(), audience)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return r.Vote(ctx, lease.Ask, q)
	}
	q := lease.Request{Site: site, Candidate: nodeB, TTL: shortTTL}
	_, err = ask(peer, tenure.PeerAudience(nodeA), q)
	require.Equal(t, codes.Unavailable, status.Code(err), "it does not know its site yet")
	with := other
	with.SigningKey = ed25519.PublicKey(peer.SigningPublic())
	k.tell(alone, with)

	answer, err := ask(peer, tenure.PeerAudience(nodeA), q)
	require.NoError(t, err)
	require.Equal(t, lease.Granted, answer.Reason)
	for name, c := range map[string]struct {
		key      identity.Key
		audience string
		q        lease.Request
		code     codes.Code
	}{
		"a key that is not the peer's": {thief, tenure.PeerAudience(nodeA), q, codes.Unauthenticated},
		"a token for the region":       {peer, identity.LinkAudience, q, codes.Unauthenticated},
		"a token for another node":     {peer, tenure.PeerAudience(nodeB), q, codes.Unauthenticated},
		"its own key":                  {k.key, tenure.PeerAudience(nodeA), q, codes.Unauthenticated},
		"another candidate":            {peer, tenure.PeerAudience(nodeA), lease.Request{Site: site, Candidate: nodeA, TTL: shortTTL}, codes.PermissionDenied},
	} {
		_, err := ask(c.key, c.audience, c.q)
		require.Equal(t, c.code, status.Code(err), name)
		said := <-k.said
		want := audit.Refusal{Door: audit.DoorPeer, Identity: "?node:" + string(c.key.Node()), Reason: audit.Unauthenticated, What: "Vote"}
		if c.code == codes.PermissionDenied {
			want.Identity, want.Reason, want.What = "node:"+string(nodeB), audit.NotTheCandidate, `Vote for "plant-1-a"`
		}
		require.Equal(t, want, said, name)
	}
	require.Empty(t, k.said)
}
