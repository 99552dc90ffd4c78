package link

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// C44: a connection moves by compare-and-set: of those that try the same arrow at once, one wins.
// Chance decides how the goroutines meet, so there are many rounds; no round may have two winners.
func TestMoveHasOneWinner(t *testing.T) {
	t.Parallel()
	const movers = 2
	rounds := sized.Many(50_000)
	for _, arrow := range []struct {
		from fleet.ConnectionState
		on   fleet.ConnectionEvent
	}{
		{fleet.ConnectionRegistered, fleet.StreamOpened}, {fleet.ConnectionActive, fleet.DrainAcked}, {fleet.ConnectionDraining, fleet.Deregistered},
	} {
		won := make([]atomic.Int32, rounds)
		connections := make([]*connection, rounds)
		ready := make([]atomic.Int32, rounds)
		for i := range connections {
			connections[i] = newConnection("c", arrow.from, 1, 0)
		}
		var all sync.WaitGroup
		for range movers {
			all.Go(func() {
				for i, c := range connections {
					ready[i].Add(1)
					for spun := 1; ready[i].Load() < movers; spun++ { // they start together
						if spun%100 == 0 {
							runtime.Gosched()
						}
					}
					if c.move(arrow.on) {
						won[i].Add(1)
					}
				}
			})
		}
		all.Wait()
		for i := range won {
			require.EqualValues(t, 1, won[i].Load(), "%s on %s", arrow.from, arrow.on)
		}
	}
}
