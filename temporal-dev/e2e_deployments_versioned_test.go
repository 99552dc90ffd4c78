//go:build slow

package main

import (
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// waiting are the fields that wait for a restart.
func (d *service) waiting(t *testing.T) (fields []string) {
	t.Helper()
	if p := d.status(t).PendingRestart; p != nil {
		for _, c := range p.Fields {
			fields = append(fields, c.Field)
		}
	}
	return fields
}

// replicasVersioned: in mode versioned a variable of the environment waits. What is created meanwhile runs what is applied,
// and a change of memory or a restart takes it along (F1, F2, F3, F4, F5, F6, F7, F15, F16, F17, F41, F51, F52).
func (s *stack) replicasVersioned(t *testing.T) {
	d := newService(t, s, "versioned", 2, func(p *api.DeploymentPut) {
		p.Update, p.Resources.Memory = fleet.UpdateVersioned, 128<<20
	})
	d.put.Env["GREETING"] = "one"
	d.deploy(t)
	before := d.answering(t, 2, "one")

	d.put.Env["GREETING"], d.put.StopSeconds = "two", 3
	require.Equal(t, []string{"/process/env/GREETING needs_restart", "/process/stopSeconds in_place"}, d.changes(t))
	require.Equal(t, ids(before), ids(d.answering(t, 2, "one")), "nothing is replaced")
	require.Equal(t, []string{"/process/env/GREETING"}, d.waiting(t))
	require.NoError(t, syscall.Kill(before[0].PID, syscall.SIGKILL))
	d.until(t, "it is replaced", func(now []api.Replica) error {
		return unless(len(now) == 2 && !slices.Contains(ids(now), before[0].ID) && allHealthy(now))
	})
	d.answering(t, 2, "one")
	requireSucceeded(t, d.ended(t, d.scale(t, 3).ID))
	d.answering(t, 3, "one")

	d.put.Resources.Memory, d.put.Health.Path = 160<<20, "/ready"
	require.Equal(t, []string{
		"/process/env/GREETING new_runtime_object", "/process/health/path new_runtime_object", "/resources/memory new_runtime_object",
	}, d.changes(t), "another check is said to replace, and does")
	d.answering(t, 3, "two")
	require.Empty(t, d.waiting(t))

	d.put.Env["GREETING"] = "three"
	require.Equal(t, []string{"/process/env/GREETING needs_restart"}, d.changes(t))
	d.answering(t, 3, "two")
	fewest := d.least(t)
	requireSucceeded(t, d.ended(t, d.restart(t).ID))
	d.answering(t, 3, "three")
	require.GreaterOrEqual(t, fewest(), 3, "as many as there were to be answered all the time")
	require.Empty(t, d.waiting(t))

	d.put.Env["GREETING"], d.put.State = "four", fleet.StateStopped
	require.Equal(t, []string{"/process/env/GREETING deferred", "/state deferred"}, d.changes(t))
	d.put.State = fleet.StateStarted
	require.Equal(t, []string{"/state in_place"}, d.changes(t))
	d.answering(t, 3, "four")
	d.destroy(t)
}
