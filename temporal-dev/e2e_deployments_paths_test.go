//go:build slow

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// changes declares it and gives the fields that differ from what runs, once the operation has succeeded.
func (d *service) changes(t *testing.T) (fields []string) {
	t.Helper()
	var out api.Accepted
	op := d.change(t, "put "+d.name, func(ctx context.Context, m api.Mutation) (_ api.Accepted, err error) {
		out, err = d.api.PutDeployment(ctx, d.name, d.manifest(), m)
		return out, err
	})
	requireSucceeded(t, d.ended(t, op.ID))
	for _, c := range out.Changes {
		fields = append(fields, c.Field+" "+string(c.Path))
	}
	return fields
}

// startOf is when a process was started, in ticks since the machine was.
func startOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)[19]
}

// replicasInPlace changes what a running replica can follow, and then what needs another (F13, F14, F15, F51). By
// what was declared first, its failed probes would go unseen, and its stops would take ten minutes.
func (s *stack) replicasInPlace(t *testing.T) {
	d := newService(t, s, "inplace", 1, func(p *api.DeploymentPut) {
		p.Env["STUBBORN"], p.StopSeconds, p.Recovery.Restarts = "yes", 600, 100
		p.Health.Interval, p.Health.UnhealthyThreshold = 600, 100
	})
	one := d.deploy(t)[0]
	started := startOf(t, one.PID)
	d.put.StopSeconds, d.put.Recovery.Restarts, d.put.Health.Interval, d.put.Health.UnhealthyThreshold = 1, 1, 1, 2
	require.Equal(t, []string{
		"/process/health/interval in_place", "/process/health/unhealthy_threshold in_place", "/process/stopSeconds in_place",
		"/recovery/restarts in_place",
	}, d.changes(t))
	same := d.healthy(t, 1)[0]
	require.Equal(t, []any{one.ID, one.PID, started, 0}, []any{same.ID, same.PID, startOf(t, same.PID), same.Restarts}, "its process stays")

	heal := d.sick(t, one.ID)
	d.until(t, "its failed probes are seen, and it is killed", func(now []api.Replica) error {
		return unless(len(now) == 1 && now[0].ID == one.ID && now[0].Restarts == 1 && !alive(one.PID))
	})
	heal()
	again := d.healthy(t, 1)[0]
	require.Equal(t, one.ID, again.ID)
	heal = d.sick(t, one.ID)
	other := d.until(t, "its one restart is used up", func(now []api.Replica) error {
		return unless(len(now) == 1 && now[0].ID != one.ID && allHealthy(now))
	})[0]
	heal()
	require.False(t, alive(again.PID))

	d.put.Env["GREETING"], d.put.StopSeconds = "good day", 2
	require.Equal(t, []string{"/process/env/GREETING new_runtime_object", "/process/stopSeconds in_place"}, d.changes(t))
	last := d.healthy(t, 1)
	require.False(t, slices.Contains(ids(last), other.ID), "it is replaced")
	require.Equal(t, []string{"good day", "2"}, []string{answersAt(t, last[0])["greeting"], answersAt(t, last[0])["epoch"]})
	out, err := d.api.PutDeployment(t.Context(), d.name, d.manifest(), api.Mutation{DryRun: true})
	require.NoError(t, err)
	require.Empty(t, out.Changes, "it runs as it is declared")

	d.put.Env["GREETING"], d.put.State = "good night", fleet.StateStopped
	require.Equal(t, []string{"/process/env/GREETING deferred", "/state deferred"}, d.changes(t))
	require.Empty(t, d.replicas(t))
	d.put.State = fleet.StateStarted
	require.Equal(t, []string{"/state in_place"}, d.changes(t))
	d.answering(t, 1, "good night")
	d.destroy(t)
}
