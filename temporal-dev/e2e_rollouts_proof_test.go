//go:build slow

package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// releaseCrashes: with all defaults, a release that is healthy at once and exits after 4 s ends nothing that works. It returns,
// and says why. A restart waits for its proof as well (F53, F61, F71, F72).
func (s *stack) releaseCrashes(t *testing.T) {
	d := newService(t, s, "crashing", 3, func(p *api.DeploymentPut) {
		*p = api.DeploymentPut{Command: []string{"/bin/sleep", "100000"}, Replicas: p.Replicas}
	})
	d.proves, d.ledger = true, ""
	good := d.deploy(t)
	d.put.Command = []string{"/bin/sh", "-c", "sleep 4; exit 3"}
	op := d.ended(t, d.declare(t).ID)
	require.Equal(t, []any{fleet.OperationFailed, decide.ReasonKeepsFailing}, []any{op.State, op.Reason}, "%+v", op)
	require.Contains(t, op.Message, "exit")
	pids := func(all []api.Replica) (out []int) {
		for _, r := range all {
			out = append(out, r.PID)
		}
		return out
	}
	still := d.healthy(t, 3)
	require.Equal(t, [][]any{{ids(good), pids(good)}}, [][]any{{ids(still), pids(still)}}, "what was good ran all the time")
	r := d.rollouts(t)[0]
	require.Equal(t, []any{fleet.RolloutFailed, 10.0}, []any{r.State, r.MinHealthyTime})

	fewest := d.least(t)
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	require.GreaterOrEqual(t, fewest(), 3)
	for _, r := range d.healthy(t, 3) {
		require.False(t, slices.Contains(ids(good), r.ID), "it was restarted")
	}
	d.destroy(t)
}
