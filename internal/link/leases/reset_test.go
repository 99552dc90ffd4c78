package leases_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/leases"
)

// X20, X21, X23: after a reset every server waits a TTL, whether it heard of it by a tick or by a write.
func TestResetVotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, other := w.server(), w.server()
	w.hold(s, nodeB, 2)
	require.NoError(t, other.Tick(t.Context()))
	reset, err := w.store.ResetVotes(t.Context(), plant, 0, "admin")
	require.NoError(t, err)
	next := reset.Epoch + 1

	answer := w.ask(other, ask, nodeB, 0, 0)
	require.Equal(t, "granted", answer.GetReason(), "it has not looked yet")
	require.Zero(t, answer.GetResets(), "and says so: the node does not take that for an answer")
	require.Equal(t, "restarted", w.ask(s, grant, nodeB, 2, 2).GetReason(), "the renewal of who held it")
	require.Equal(t, "restarted", w.ask(other, promise, nodeB, next, 0).GetReason(), "what it goes by is not written")
	answer = w.ask(other, ask, nodeA, 0, 0)
	require.Equal(t, "restarted", answer.GetReason())
	require.Equal(t, []int64{reset.Number, reset.Epoch}, []int64{answer.GetResets(), answer.GetVote().GetPromised()})
	for passed := time.Duration(0); passed < ttl; passed += time.Second {
		require.Equal(t, "restarted", w.ask(s, promise, nodeA, next, 0).GetReason())
		w.turn(time.Second)
		require.NoError(t, s.Tick(t.Context()))
	}
	w.hold(s, nodeA, next)
}

// X21, X23: resets at any time, seen by two servers at any time, make no two holders.
func TestResetsNeverGrantTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		servers := []*leases.Service{w.server(), w.server()}
		until, epoch, counter := map[fleet.NodeName]time.Duration{}, map[fleet.NodeName]int64{}, map[fleet.NodeName]int64{}
		now := func() time.Duration { return time.Duration(w.now.Load()) }
		w.turn(2 * ttl) // what another round left has ended
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			s := servers[rapid.IntRange(0, 1).Draw(r, "server")]
			node := rapid.SampledFrom([]fleet.NodeName{nodeA, nodeB}).Draw(r, "node")
			switch rapid.SampledFrom([]string{"tick", "turn", "turn", "leap", "forge", "reset", "take", "take", "renew", "renew"}).Draw(r, "do") {
			case "tick":
				require.NoError(r, s.Tick(t.Context()))
			case "turn":
				w.turn(time.Duration(rapid.IntRange(1, 4000).Draw(r, "ms")) * time.Millisecond)
				require.NoError(r, s.Tick(t.Context()))
			case "leap":
				w.turn(time.Duration(rapid.IntRange(1, 20).Draw(r, "s")) * time.Second)
			case "forge":
				w.forge(t.Context(), r)
			case "reset":
				_, err := w.store.ResetVotes(t.Context(), plant, 0, "admin")
				require.NoError(r, err)
			case "take":
				e, sent := w.record().Promised+rapid.Int64Range(0, 1).Draw(r, "above"), now()
				if w.ask(s, promise, node, e, 0).GetGranted() && w.ask(s, grant, node, e, 1).GetGranted() {
					epoch[node], counter[node], until[node] = e, 1, sent+ttl
				}
			case "renew":
				sent := now()
				if epoch[node] > 0 && w.ask(s, grant, node, epoch[node], counter[node]+1).GetGranted() {
					counter[node]++
					until[node] = sent + ttl
				}
			}
			require.False(r, until[nodeA] > now() && until[nodeB] > now(), "both hold the region's vote")
		}
		_, err := w.store.ResetVotes(t.Context(), plant, 0, "admin")
		require.NoError(r, err)
		for _, s := range servers {
			require.NoError(r, s.Tick(t.Context()))
		}
		for range ttl / time.Second {
			w.turn(time.Second)
			require.NoError(r, servers[0].Tick(t.Context()))
		}
		w.hold(servers[0], nodeA, w.record().Promised+1)
		require.Equal(r, "granted", w.ask(servers[0], release, nodeA, w.record().Epoch, 2).GetReason())
	})
}

// forge has the record say what nobody can follow.
func (w *world) forge(ctx context.Context, r *rapid.T) {
	_, err := w.raw.Exec(ctx, "UPDATE site_leases SET promised = $1", int64(math.MaxInt64-1))
	require.NoError(r, err)
}
