package fleets_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func withCommand(c *deliveries.InstanceChange) {
	c.RunJSON, c.RunHash = json.RawMessage(`{"command":["press"]}`), stores.JSONOf("run").Hash
}

func minRun(seconds int64) func(*fleets.FleetPut) {
	return func(p *fleets.FleetPut) { p.Spec.MinRunSeconds = &seconds }
}

// delivered has targets of a wave succeed some time ago, by the revision that their instances have.
func (b *bench) delivered(wave int, ago time.Duration, names ...string) {
	b.T.Helper()
	b.bringTargets(wave, fleet.FleetTargetSucceeded, names...)
	b.Exec(`UPDATE fleet_targets SET revision = 1, updated_at = now() - make_interval(secs => $1) WHERE name = ANY($2::text[])`, ago.Seconds(), names)
}

// reports has the active node report how the command of an instance does, and that it looked at all of them.
func (b *bench) reports(name string, revision int64, running bool, exits int) {
	b.T.Helper()
	held := fleet.Held{Known: true, Running: running, Exits: exits}
	held.Version = fleet.Version{Era: stores.Scan[int64](b, `SELECT era FROM region`), Revision: revision}
	held.HighWater, held.Enabled, held.Action = held.Version, true, fleet.ActionDeploy
	if exits > 0 {
		held.LastExit = "exit code 3"
	}
	_, err := b.HeldBy(b.Ctx(), nodes.NodeReport{Node: stores.NodeA, Instances: []fleet.NodeInstance{{Instance: fleet.InstanceName(name), Held: held}}})
	require.NoError(b.T, err)
	require.NoError(b.T, b.NodeCounted(b.Ctx(), stores.NodeA, map[string]int64{"applied": 1}))
}

// N99
func TestFleetStarts(t *testing.T) {
	t.Parallel()

	t.Run("a wave waits until the commands that it started have run for long enough", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2, withCommand)
		b.putFleet(minRun(60))
		b.delivered(1, 10*time.Second, "i1", "i2")
		b.reports("i1", 1, true, 0)
		b.reports("i2", 1, true, 0)
		seen := b.seeFleet()
		require.Equal(t, 2, seen.Proving)
		require.WithinDuration(t, seen.At.Add(50*time.Second), seen.ProvenAt, 20*time.Second)
		n, err := b.CountFleetStarts(t.Context(), b.fleetRun(0))
		require.NoError(t, err)
		require.Equal(t, 2, n)
		b.delivered(1, 100*time.Second, "i1")
		require.Equal(t, 1, b.seeFleet().Proving)
		b.Exec(`UPDATE nodes SET counted_at = now() - interval '90 seconds'`)
		b.delivered(1, 100*time.Second, "i2")
		require.Equal(t, 1, b.seeFleet().Proving, "its node has not looked since")
		b.reports("i2", 1, true, 0)
		seen = b.seeFleet()
		require.Zero(t, seen.Proving)
		require.Equal(t, 2, seen.Counts.Succeeded)
		b.reports("i1", 1, true, 1)
		require.Equal(t, 2, b.seeFleet().Counts.Succeeded, "what is proven stays so")
	})

	t.Run("a command that exits has failed, and watchers are told", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2, withCommand)
		b.putFleet(minRun(60))
		b.delivered(1, time.Second, "i1", "i2")
		b.reports("i1", 1, true, 1)
		events := len(b.fleetEvents())
		seen := b.seeFleet()
		require.Equal(t, []int{1, 1, 1}, []int{seen.Counts.Failed, seen.Counts.Succeeded, seen.Proving})
		require.Equal(t, "exited its command ended before it had run for 1m0s: exit code 3",
			stores.Scan[string](b, `SELECT reason || ' ' || message FROM fleet_targets WHERE name = 'i1'`))
		require.Len(t, b.fleetEvents(), events+1)
		b.seeFleet()
		require.Len(t, b.fleetEvents(), events+1)
	})

	t.Run("exits from before the delivery do not count", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1, withCommand)
		b.putFleet(minRun(60))
		b.delivered(1, 100*time.Second, "i1")
		b.Exec(`UPDATE fleet_targets SET delivery_id = 'd1'`)
		b.Exec(`INSERT INTO delivery_nodes (delivery_id, node, role, state, exits, updated_at)
			VALUES ('d1', $1, 'active', 'applied', 4, now() - interval '90 seconds')`, stores.NodeA)
		b.reports("i1", 1, true, 4)
		seen := b.seeFleet()
		require.Equal(t, []int{0, 0}, []int{seen.Proving, seen.Counts.Failed})
	})

	t.Run("what runs nothing, and what another revision replaced, waits for nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.Put(`{"a":1}`, stores.Named("i2"), withCommand)
		b.Put(`{"a":2}`, stores.Named("i2"), withCommand)
		b.putFleet(minRun(60))
		b.delivered(1, time.Second, "i1", "i2")
		b.reports("i2", 2, true, 3)
		require.Zero(t, b.seeFleet().Proving)
	})

	t.Run("a declared 0, a run of a version without it, and one that ended judge nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1, withCommand)
		b.putFleet(minRun(0))
		b.delivered(1, time.Second, "i1")
		b.reports("i1", 1, true, 1)
		require.Zero(t, b.seeFleet().Counts.Failed+b.seeFleet().Proving)
		b.Exec(`UPDATE fleet_runs SET spec = spec - 'minRunSeconds'`)
		require.Zero(t, b.seeFleet().Counts.Failed+b.seeFleet().Proving)
		b.Exec(`UPDATE fleet_runs SET spec = jsonb_set(spec, '{minRunSeconds}', '60'), state = 'stopped', ended_at = now()`)
		require.Zero(t, b.seeFleet().Counts.Failed+b.seeFleet().Proving)
	})

	t.Run("an exited command is tried again by a retry", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1, withCommand)
		b.putFleet(minRun(60))
		b.delivered(1, time.Second, "i1")
		b.reports("i1", 1, false, 1)
		require.Equal(t, 1, b.seeFleet().Counts.Failed)
		b.moveFleet(fleet.FleetStop)
		b.turnFleet(fleet.FleetRetry)
		require.Equal(t, []string{"i1 1 waiting"}, b.fleetTargets(1))
	})
}
