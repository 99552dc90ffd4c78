package leases_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/leases"
)

// X21, X23: whatever servers start, pause, miss their ticks and are asked in whatever order,
// the region's vote never has two holders whose leases run, and its epoch only rises. A holder
// counts from when it asked.
func TestTwoServersNeverGrantTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.declare(plant)
	rapid.Check(t, func(r *rapid.T) {
		w.declare(plant, nodeA, nodeB) // a new lease, by a higher epoch
		defer w.declare(plant)
		servers := []*leases.Service{w.server(), w.server()}
		until := map[fleet.NodeName]time.Duration{}
		epoch, counter := map[fleet.NodeName]int64{}, map[fleet.NodeName]int64{}
		highest := w.record().Epoch
		now := func() time.Duration { return time.Duration(w.now.Load()) }
		for range rapid.IntRange(5, 40).Draw(r, "steps") {
			i := rapid.IntRange(0, 1).Draw(r, "server")
			node := rapid.SampledFrom([]fleet.NodeName{nodeA, nodeB}).Draw(r, "node")
			switch rapid.SampledFrom([]string{"tick", "tick", "turn", "turn", "leap", "restart", "ask", "ask", "renew", "renew", "release"}).Draw(r, "do") {
			case "tick":
				require.NoError(r, servers[i].Tick(t.Context()))
			case "turn":
				w.turn(time.Duration(rapid.IntRange(1, 4000).Draw(r, "ms")) * time.Millisecond)
				require.NoError(r, servers[i].Tick(t.Context()))
			case "leap":
				w.turn(time.Duration(rapid.IntRange(1, 20).Draw(r, "s")) * time.Second)
			case "restart":
				servers[i] = w.server()
			case "ask":
				e, sent := w.record().Promised+rapid.Int64Range(0, 1).Draw(r, "above"), now()
				if !w.ask(servers[i], promise, node, e, 0).GetGranted() {
					continue
				}
				w.turn(time.Duration(rapid.IntRange(0, 900).Draw(r, "delay")) * time.Millisecond)
				if w.ask(servers[rapid.IntRange(0, 1).Draw(r, "granter")], grant, node, e, 1).GetGranted() {
					epoch[node], counter[node], until[node] = e, 1, sent+ttl
				}
			case "renew":
				sent := now()
				if epoch[node] > 0 && w.ask(servers[i], grant, node, epoch[node], counter[node]+1).GetGranted() {
					counter[node]++
					until[node] = sent + ttl
				}
			case "release":
				if epoch[node] > 0 && w.ask(servers[i], release, node, epoch[node], counter[node]+1).GetGranted() {
					until[node], epoch[node] = 0, 0
				}
			}
			require.False(r, until[nodeA] > now() && until[nodeB] > now(), "both hold the region's vote")
			got := w.record().Epoch
			require.GreaterOrEqual(r, got, highest)
			highest = got
		}
	})
}
