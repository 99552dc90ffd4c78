//go:build slow

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/holdfast-io/holdfast/api"
)

// scrapes is how often the metrics are read: the server asks Temporal about every schedule each time.
const scrapes = time.Second

// idles waits until no node has a poll at Temporal, and says when that was.
func (s *stack) idles(t *testing.T) time.Time {
	t.Helper()
	require.NoError(t, pollEvery(t.Context(), scrapes, e2ePatience, func(context.Context) error {
		return unless(strings.Contains(s.metrics(t), "\nholdfast_node_tasks_polls 0\n"))
	}), "all nodes idle")
	return time.Now()
}

// untaken are the activity tasks that no node took in time.
func (s *stack) untaken(t *testing.T) int {
	t.Helper()
	n := 0
	for _, run := range s.histories(t) {
		for _, e := range run.events {
			why := e.GetActivityTaskTimedOutEventAttributes().GetFailure().GetTimeoutFailureInfo()
			if why.GetTimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START {
				n++
			}
		}
	}
	return n
}

// Nodes that have nothing to do ask Temporal for nothing, and are there at once when they are
// needed, whatever was restarted meanwhile (design: a node that has been idle stops polling and
// is woken over its stream).
func TestE2EIdle(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2)
	st := newStory(t, s, "plant-1", "press-7")
	delivered := func(t *testing.T) {
		op, hash := st.release(t)
		requireSucceeded(t, st.ended(t, op.ID))
		st.good(t, hash)
	}
	t.Run("a delivery wakes both nodes of its site, and no others", func(t *testing.T) {
		since := s.idles(t)
		delivered(t)
		for _, node := range pair("plant-1") {
			require.True(t, s.polled(t, node, since), node)
		}
		s.idles(t)
		for _, node := range pair("plant-2") {
			require.False(t, s.polled(t, node, since), node)
		}
		require.Zero(t, s.untaken(t), "each task found its node")
	})
	t.Run("a comparison wakes its node", func(t *testing.T) {
		since := s.idles(t)
		out, err := s.api.ReconcileNode(t.Context(), "plant-2-b", api.Mutation{})
		require.NoError(t, err)
		requireSucceeded(t, s.ended(t, out.Operation.ID))
		require.True(t, s.polled(t, "plant-2-b", since))
		require.Zero(t, s.untaken(t))
	})
	t.Run("a server that was killed while they idle", func(t *testing.T) {
		s.idles(t)
		s.kill(t, serverName)
		delivered(t)
	})
	t.Run("and one that is killed with the delivery under way", func(t *testing.T) {
		s.idles(t)
		op, hash := st.release(t)
		s.kill(t, serverName)
		requireSucceeded(t, st.ended(t, op.ID))
		st.good(t, hash)
	})
	t.Run("Temporal restarted while they idle", func(t *testing.T) {
		s.idles(t)
		s.kill(t, temporalName)
		delivered(t)
		s.idles(t)
	})
	t.Run("a node that was restarted while it idled", func(t *testing.T) {
		s.idles(t)
		s.kill(t, "plant-1-b")
		delivered(t)
		s.idles(t)
	})
}
