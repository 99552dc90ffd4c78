//go:build slow

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// rotateLease is within what time a node takes what it is asked, also on a busy machine: this is
// about whether it hears that at all.
const rotateLease = 15 * time.Second

func TestE2EHandOver(t *testing.T) {
	t.Parallel()
	s := startWith(t, 1, lasting(rotateLease))
	t.Run("right after the keys changed", s.rotatesThenHandsOver)
	t.Run("while the server restarts", s.failoverOutlastsServer)
}

// C87, N60: a hand-over right after the keys of a pair were changed is a graceful one: the nodes
// hear what they are asked, and nobody has to wait for a lease to run out.
func (s *stack) rotatesThenHandsOver(t *testing.T) {
	const site = "plant-1"
	operator := newCLI(t, s)
	for range 3 {
		holder, next := s.holder(t, site), s.standby(t, site)
		for _, node := range []string{next, holder} {
			var n api.Node
			operator.json(t, &n, cliOK, "node", "rotate-key", node, "--timeout", "2m")
			require.Empty(t, n.Key.Rotation)
		}
		op := s.ended(t, s.askFailover(t, site, next).ID)
		requireSucceeded(t, op)
		t.Logf("%s took over from %s within %s", next, holder, op.EndedAt.Sub(op.CreatedAt))
	}
	asked := s.asked(t, "site."+site)
	require.Equal(t, 3, asked["HandOver"])
	require.Zero(t, asked["AimVote"], "no node was taken for one that is not there: %v", asked)
}

// asked counts the activities that all runs of a workflow began.
func (s *stack) asked(t *testing.T, workflow string) map[string]int {
	t.Helper()
	asked := map[string]int{}
	for _, run := range s.histories(t) {
		if run.id != workflow {
			continue
		}
		for _, e := range run.events {
			if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
				asked[a.GetActivityType().GetName()]++
			}
		}
	}
	return asked
}
