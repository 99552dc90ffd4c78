package leases_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/leases"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const (
	ask     = nodev1.Call_CALL_ASK
	promise = nodev1.Call_CALL_PROMISE
	grant   = nodev1.Call_CALL_GRANT
	release = nodev1.Call_CALL_RELEASE
)

// hold makes a node the holder by an epoch.
func (w *world) hold(s *leases.Service, node fleet.NodeName, epoch int64) {
	w.t.Helper()
	require.Equal(w.t, "granted", w.ask(s, promise, node, epoch, 0).GetReason())
	require.Equal(w.t, "granted", w.ask(s, grant, node, epoch, 1).GetReason())
}

func (w *world) record() nodes.Vote {
	w.t.Helper()
	v, err := w.store.VoteOf(w.t.Context(), plant)
	require.NoError(w.t, err)
	return v.Vote
}

// X21, X23
func TestVote(t *testing.T) {
	t.Parallel()

	t.Run("a site that was only declared waits for nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.server()
		require.Equal(t, "outbid", w.ask(s, promise, nodeB, 1, 0).GetReason(), "its epoch is spent")
		w.hold(s, nodeB, 2)
		require.Equal(t, nodes.Vote{Promised: 2, PromisedTo: nodeB, Holder: nodeB, Epoch: 2, Counter: 1, TTL: ttl}, w.record())
	})

	t.Run("what was granted is durable before it is answered, and seen by the other server", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s, other := w.server(), w.server()
		require.Equal(t, "granted", w.ask(other, ask, nodeA, 0, 0).GetReason())
		w.hold(s, nodeB, 2)
		require.Equal(t, "held", w.ask(other, promise, nodeA, 2, 0).GetReason(), "it saw nothing, and its write was refused")
		require.Equal(t, "held", w.ask(other, promise, nodeA, 3, 0).GetReason())
		require.Equal(t, "granted", w.ask(other, grant, nodeB, 2, 2).GetReason(), "a renewal at the other server")
		require.Equal(t, "behind", w.ask(s, grant, nodeB, 2, 2).GetReason())
	})

	t.Run("favours another once it has itself seen the counter still for the TTL", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s, other := w.server(), w.server()
		w.hold(s, nodeB, 2)
		for range 14 {
			w.turn(time.Second)
			require.NoError(t, s.Tick(t.Context()))
			require.NoError(t, other.Tick(t.Context()))
		}
		require.Equal(t, "held", w.ask(s, promise, nodeA, 3, 0).GetReason())
		w.turn(time.Second)
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "restarted", w.ask(other, promise, nodeA, 3, 0).GetReason(), "that server began later")
		require.Equal(t, "granted", w.ask(s, promise, nodeA, 3, 0).GetReason())
	})

	t.Run("a pause of the server begins its clocks anew", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.server()
		w.hold(s, nodeB, 2)
		w.turn(ttl)
		require.Equal(t, "held", w.ask(s, promise, nodeA, 3, 0).GetReason())
	})

	t.Run("one tick that passed by a busy vote is no pause", func(t *testing.T) {
		t.Parallel()
		const short = 3 * time.Second
		w := newWorld(t)
		s := w.server(func(o *leases.Options) { o.Timing.HeartbeatTimeout = short })
		asks := func(call nodev1.Call, node fleet.NodeName, epoch, counter int64) string {
			out, err := s.Vote(context.WithValue(t.Context(), caller{}, node), &nodev1.VoteRequest{
				Call: call, Site: string(plant), Candidate: string(node), Epoch: epoch, Counter: counter, Ttl: durationpb.New(short),
			})
			require.NoError(t, err)
			return out.GetReason()
		}
		require.Equal(t, "granted", asks(promise, nodeB, 2, 0))
		require.Equal(t, "granted", asks(grant, nodeB, 2, 1))
		for _, gap := range []time.Duration{time.Second, 2*time.Second + 50*time.Millisecond} {
			w.turn(gap)
			require.NoError(t, s.Tick(t.Context()))
		}
		require.Equal(t, "granted", asks(promise, nodeA, 3, 0))
		require.Equal(t, "granted", asks(grant, nodeA, 3, 1))
		w.turn(short)
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "held", asks(promise, nodeB, 4, 0), "this was one")
	})

	t.Run("a tick that finds the vote busy follows when it is not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		gate := &slowStore{Store: w.store, entered: make(chan struct{}), open: make(chan struct{})}
		s := w.server(func(o *leases.Options) { o.Store = gate })
		w.hold(s, nodeB, 2)
		w.turn(7 * time.Second)
		require.NoError(t, s.Tick(t.Context()))
		gate.slow = plant
		busy := make(chan error, 1)
		go func() {
			_, err := s.Vote(context.WithValue(context.Background(), caller{}, nodeB), &nodev1.VoteRequest{
				Call: promise, Site: string(plant), Candidate: string(nodeB), Epoch: 3, Ttl: durationpb.New(ttl),
			})
			busy <- err
		}()
		<-gate.entered
		w.turn(7 * time.Second)
		require.NoError(t, s.Tick(t.Context()))
		close(gate.open)
		require.NoError(t, <-busy)
		leases.WaitLater(s)
		w.turn(time.Second)
		require.Equal(t, "granted", w.ask(s, promise, nodeA, 4, 0).GetReason())
	})

	t.Run("a release frees it at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s, other := w.server(), w.server()
		w.hold(s, nodeB, 2)
		require.NoError(t, other.Tick(t.Context()))
		require.Equal(t, "granted", w.ask(s, release, nodeB, 2, 2).GetReason())
		require.Equal(t, "granted", w.ask(s, promise, nodeA, 3, 0).GetReason())
		require.Equal(t, "granted", w.ask(s, grant, nodeA, 3, 1).GetReason())
	})

	t.Run("aimed at one node it favours no other, until that one holds", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s, other := w.server(), w.server()
		w.hold(s, nodeB, 2)
		require.NoError(t, other.Aim(t.Context(), plant, nodeA))
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "withheld", w.ask(s, grant, nodeB, 2, 2).GetReason())
		for range 16 {
			w.turn(time.Second)
			require.NoError(t, s.Tick(t.Context()))
		}
		w.hold(s, nodeA, 3)
		require.Empty(t, w.record().Target)
		require.NoError(t, other.Aim(t.Context(), plant, nodeB))
		for range 46 { // three TTLs: a dead target must not leave the site without an active node
			w.turn(time.Second)
			require.NoError(t, other.Tick(t.Context()))
		}
		require.Empty(t, w.record().Target)
	})

	t.Run("aimed by one server, it is withdrawn by another that has not looked since", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s, other := w.server(), w.server()
		w.hold(s, nodeB, 2)
		require.NoError(t, other.Tick(t.Context()))
		require.NoError(t, s.Aim(t.Context(), plant, nodeA))
		require.NoError(t, other.Aim(t.Context(), plant, ""))
		require.Empty(t, w.record().Target)
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "granted", w.ask(s, grant, nodeB, 2, 2).GetReason())
	})

	t.Run("has no vote where a node decides alone, nor for strangers", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		s := w.server()
		require.Equal(t, "not_a_voter", w.ask(s, ask, "stranger", 0, 0).GetReason())
		w.hold(s, nodeB, 2)
		for _, call := range []nodev1.Call{ask, promise, grant, release} {
			said := w.ask(s, call, "stranger", 3, 1)
			require.Equal(t, "not_a_voter", said.GetReason())
			require.Empty(t, said.GetVote().GetHolder(), "a stranger is not told who holds")
			require.Zero(t, said.GetVote().GetPromised()+said.GetVote().GetEpoch()+said.GetVote().GetCounter()+said.GetNonce())
			require.Zero(t, said.GetVote().GetTtl().AsDuration()+said.GetWait().AsDuration())
		}
		require.Equal(t, slices.Repeat([]string{"not_a_voter"}, 5), w.refusals(), "each was refused and written")
		_, err := s.Vote(context.WithValue(t.Context(), caller{}, nodeA), &nodev1.VoteRequest{
			Call: ask, Site: "nowhere", Candidate: string(nodeA), Ttl: durationpb.New(ttl),
		})
		require.NoError(t, err)
		require.Len(t, w.refusals(), 6)
		w.declare(plant, nodeA, "plant-c")
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "not_a_voter", w.ask(s, grant, nodeB, 2, 2).GetReason())
		require.Equal(t, "restarted", w.ask(s, promise, "plant-c", 3, 0).GetReason(), "the one that was removed runs out")
		require.Equal(t, nodeB, w.record().Holder)
		w.declare(plant, nodeA)
		require.NoError(t, s.Tick(t.Context()))
		require.Equal(t, "not_a_voter", w.ask(s, ask, nodeA, 0, 0).GetReason())
	})

	t.Run("one site that is locked holds up no other", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.declare("other", "other-a", "other-b")
		gate := &slowStore{Store: w.store, slow: plant, entered: make(chan struct{}), open: make(chan struct{})}
		s := w.server(func(o *leases.Options) { o.Store = gate })
		blocked := make(chan error, 1)
		go func() {
			_, err := s.Vote(context.WithValue(context.Background(), caller{}, nodeB), &nodev1.VoteRequest{
				Call: promise, Site: string(plant), Candidate: string(nodeB), Epoch: 2, Ttl: durationpb.New(ttl),
			})
			blocked <- err
		}()
		<-gate.entered
		require.NoError(t, s.Tick(t.Context()))
		out, err := s.Vote(context.WithValue(t.Context(), caller{}, fleet.NodeName("other-a")), &nodev1.VoteRequest{
			Call: promise, Site: "other", Candidate: "other-a", Epoch: 2, Ttl: durationpb.New(ttl),
		})
		require.NoError(t, err)
		require.True(t, out.GetGranted())
		close(gate.open)
		require.NoError(t, <-blocked)
	})
}

// slowStore waits before it writes the vote of one site.
type slowStore struct {
	leases.Store
	slow          fleet.SiteName
	entered, open chan struct{}
	once          sync.Once
}

func (s *slowStore) CastVote(ctx context.Context, c nodes.VoteChange, actor string) (bool, error) {
	if c.Site == s.slow {
		s.once.Do(func() { close(s.entered) })
		<-s.open
	}
	return s.Store.CastVote(ctx, c, actor)
}

// X21: a restored region grants nothing until a TTL has passed and it has heard both nodes.
func TestRestoredVote(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.server()
	w.hold(s, nodeB, 2)
	_, err := postgres.RaiseEra(t.Context(), w.url, testkit.Region)
	require.NoError(t, err)
	require.NoError(t, s.Tick(t.Context()))
	standing := &nodev1.Standing{Promised: 9, Holder: string(nodeA), Epoch: 9, Counter: 4, Ttl: durationpb.New(ttl)}
	say := func(node fleet.NodeName, call nodev1.Call, epoch, nonce int64) *nodev1.VoteResponse {
		out, err := s.Vote(context.WithValue(t.Context(), caller{}, node), &nodev1.VoteRequest{
			Call: call, Site: string(plant), Candidate: string(node), Epoch: epoch, Counter: 5, Ttl: durationpb.New(ttl), Nonce: nonce, Vote: standing,
		})
		require.NoError(t, err)
		return out
	}
	require.Equal(t, "lost", say(nodeB, grant, 2, 0).GetReason(), "not even to whom it has on record")
	require.Zero(t, say(nodeA, ask, 0, 0).GetNonce(), "nobody is heard before a TTL has passed")
	for range 15 {
		w.turn(time.Second)
		require.NoError(t, s.Tick(t.Context()))
	}
	nonce := say(nodeA, ask, 0, 0).GetNonce()
	require.NotZero(t, nonce)
	require.Equal(t, "lost", say(nodeA, grant, 9, nonce).GetReason(), "one of two was heard")
	require.Equal(t, "lost", say(nodeB, ask, 0, nonce+1).GetReason(), "this was said before")
	require.Equal(t, "held", say(nodeB, ask, 0, nonce).GetReason())
	got := w.record()
	require.Equal(t, []any{false, nodeA, int64(9), int64(9)}, []any{got.Lost, got.Holder, got.Epoch, got.Promised})
	require.Equal(t, "granted", say(nodeA, grant, 9, 0).GetReason())
}

// X21: who calls is the candidate, as the link proved; all else is refused and audited.
func TestVoteOverTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.server()
	a := wire(t, s, nodeA)
	in := &nodev1.VoteRequest{Call: promise, Site: string(plant), Candidate: string(nodeB), Epoch: 2, Ttl: durationpb.New(ttl)}
	_, err := a.Vote(t.Context(), in)
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	_, err = wire(t, s, "").Vote(t.Context(), in)
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	_, err = a.Tell(t.Context(), &nodev1.TellRequest{Site: string(plant), Epoch: 7})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "it does not decide alone")
	require.Equal(t, []string{"not_the_candidate", "not_the_candidate", "not_alone"}, w.refusals())
	require.True(t, w.record().Unvoted())
	out, err := wire(t, s, nodeB).Vote(t.Context(), in)
	require.NoError(t, err)
	require.True(t, out.GetGranted())
	require.Equal(t, "@region", out.GetVoter())
	for _, nonsense := range []*nodev1.VoteRequest{
		{},
		{Site: string(plant), Candidate: string(nodeA)},
		{Call: 99, Site: string(plant), Candidate: string(nodeA), Ttl: durationpb.New(ttl)},
		{Call: grant, Site: string(plant), Candidate: string(nodeA), Epoch: 1 << 60, Ttl: durationpb.New(ttl)},
		{Call: grant, Site: string(plant), Candidate: string(nodeA), Epoch: 3, Counter: -1, Ttl: durationpb.New(-ttl)},
		{Call: promise, Site: string(plant), Candidate: string(nodeA), Epoch: 3, Ttl: durationpb.New(2 * ttl)},
	} {
		if out, err := a.Vote(t.Context(), nonsense); err == nil {
			require.False(t, out.GetGranted(), "%v", nonsense)
		}
	}
	require.EqualValues(t, 2, w.record().Promised)
	w.declare(plant, nodeA)
	_, err = a.Tell(t.Context(), &nodev1.TellRequest{Site: string(plant), Epoch: 7})
	require.NoError(t, err)
	require.EqualValues(t, 7, w.record().Epoch)
	_, err = a.Tell(t.Context(), &nodev1.TellRequest{Site: string(plant), Epoch: math.MaxInt64 - 1})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.EqualValues(t, 7, w.record().Promised)
	require.Contains(t, w.refusals(), "bad_epoch")
}
