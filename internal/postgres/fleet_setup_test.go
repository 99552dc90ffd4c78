package postgres_test

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

const (
	bump    = fleet.FleetName("bump")
	bumpSub = "fleet.bump"
)

var bumpKey = fleet.FleetKey(bump)

// fleetPut is a PUT of the fleet change bump, which starts a run; edits come after the defaults.
func (b *bench) fleetPut(edits ...func(*fleets.FleetPut)) fleets.FleetPut {
	b.t.Helper()
	patch := jsonOf(`{"patch":1}`)
	_, err := b.PutBody(b.ctx(), project, []byte(`{"patch":1}`))
	require.NoError(b.t, err)
	p := fleets.FleetPut{
		Write: writeOf(bumpKey), Start: true,
		Spec: fleet.FleetSpec{Change: fleet.FleetChange{Patch: &patch}}.WithDefaults(),
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func (b *bench) putFleet(edits ...func(*fleets.FleetPut)) postgres.Started {
	b.t.Helper()
	out, err := b.PutFleet(b.ctx(), b.fleetPut(edits...))
	require.NoError(b.t, err)
	return out
}

func inWaves(percents ...float64) func(*fleets.FleetPut) {
	return func(p *fleets.FleetPut) {
		for _, percent := range percents {
			p.Spec.Waves = append(p.Spec.Waves, fleet.FleetWave{Percent: percent})
		}
	}
}

func unstarted(p *fleets.FleetPut) { p.Start = false }

func tolerating(percent float64) func(*fleets.FleetPut) {
	return func(p *fleets.FleetPut) { p.Spec.ErrorThreshold, p.Spec.SuccessThreshold = percent, 100-percent }
}

// selectable declares the instances i1 to in, each with a released revision.
func (b *bench) selectable(n int, edits ...func(*deliveries.InstanceChange)) {
	b.t.Helper()
	for i := 1; i <= n; i++ {
		b.put(`{"a":1}`, append([]func(*deliveries.InstanceChange){named(fmt.Sprintf("i%d", i))}, edits...)...)
	}
}

// selectableMany declares instances at ten sites by plain SQL, a tenth at each.
func (b *bench) selectableMany(n int) {
	b.t.Helper()
	b.exec(`INSERT INTO objects (kind, scope, name, project, generation, resource_version, spec, syncing, created_by)
		SELECT 'instance', 'site-' || i % 10, 'i' || i, $1, 1, 0, '{"enabled":true,"durability":"sync"}', '{}', 'ann'
		FROM generate_series(1, $2::int) i`, project, n)
	b.exec(`ANALYZE objects`)
}

func fleetTurn(on fleet.FleetEvent, edits ...func(*fleets.FleetTurn)) fleets.FleetTurn {
	t := fleets.FleetTurn{Write: writeOf(bumpKey), On: on}
	for _, edit := range edits {
		edit(&t)
	}
	return t
}

func byDoor(run string) func(*fleets.FleetTurn) {
	return func(t *fleets.FleetTurn) { t.Door = postgres.Door{Workflow: "door", Run: run} }
}

func (b *bench) turnFleet(on fleet.FleetEvent, edits ...func(*fleets.FleetTurn)) postgres.Started {
	b.t.Helper()
	out, err := b.TurnFleet(b.ctx(), fleetTurn(on, edits...))
	require.NoError(b.t, err)
	return out
}

func (b *bench) seeFleet() fleet.FleetSeen {
	b.t.Helper()
	seen, err := b.SeeFleet(b.ctx(), fleet.FleetVisit{Fleet: bump, Run: run1, Build: "build-1"})
	require.NoError(b.t, err)
	return seen
}

func (b *bench) fleetRun(run int64) fleets.FleetRun {
	b.t.Helper()
	r, err := b.GetFleetRun(b.ctx(), bump, run)
	require.NoError(b.t, err)
	return r
}

// moveFleet takes the newest run a step on, from the wave that it is in.
func (b *bench) moveFleet(on fleet.FleetEvent, edits ...func(*fleet.FleetMove)) {
	b.t.Helper()
	seen := b.seeFleet()
	m := fleet.FleetMove{Fleet: bump, Run: seen.Run, On: on, Wave: seen.Wave, Turn: seen.Turn}
	for _, edit := range edits {
		edit(&m)
	}
	require.NoError(b.t, b.MoveFleet(b.ctx(), m))
}

// bringTargets has the targets of a wave come to a state, as a batch would.
func (b *bench) bringTargets(wave int, state fleet.FleetTargetState, names ...string) {
	b.t.Helper()
	b.exec(`UPDATE fleet_targets SET state = $2, tries = 3 WHERE wave = $1 AND run = (SELECT max(run) FROM fleet_runs)
		AND (cardinality($3::text[]) = 0 OR name = ANY($3::text[]))`, wave, string(state), append([]string{}, names...))
}

// stoppedIn gives a run of one instance a wave that stopped in the second of its three waves,
// where it failed; the first succeeded.
func (b *bench) stoppedIn2() {
	b.t.Helper()
	b.selectable(3)
	b.putFleet(inWaves(33, 66, 100))
	b.bringTargets(1, fleet.FleetTargetSucceeded)
	b.moveFleet("")
	b.bringTargets(2, fleet.FleetTargetFailed)
	b.moveFleet(fleet.FleetStop, func(m *fleet.FleetMove) { m.Reason = "error_threshold" })
}

// fleetTargets lists the targets of a run as "name wave state".
func (b *bench) fleetTargets(run int64) []string {
	b.t.Helper()
	all, err := b.ListFleetTargets(b.ctx(), fleets.FleetTargetFilter{Fleet: bump, Run: run, Limit: 1000})
	require.NoError(b.t, err)
	var out []string
	for _, t := range all {
		out = append(out, fmt.Sprintf("%s %d %s", t.Instance, t.Wave, t.State))
	}
	return out
}

// targetsPage is the next targets of a wave at the plant.
func (b *bench) targetsPage(wave int, state fleet.FleetTargetState) []fleets.FleetTarget {
	b.t.Helper()
	out, err := b.FleetTargets(b.ctx(), fleets.FleetPage{
		Fleet: bump, Run: b.fleetRun(0).Run, Wave: wave, Site: plant, State: state, Limit: 100,
	})
	require.NoError(b.t, err)
	return out
}

func instancesOf(targets []fleets.FleetTarget) string {
	var out []string
	for _, t := range targets {
		out = append(out, string(t.Instance))
	}
	return strings.Join(out, " ")
}

// fleetOperations lists the operations of the fleet change, the oldest first, as "run state reason".
func (b *bench) fleetOperations() []string {
	b.t.Helper()
	return scan[[]string](b, `SELECT coalesce(array_agg(trim(format('%s %s %s', revision, state, reason)) ORDER BY created_at, id), '{}')
		FROM operations WHERE subject = $1`, bumpSub)
}

func (b *bench) fleetOutbox() int {
	b.t.Helper()
	return scan[int](b, `SELECT count(*) FROM outbox WHERE subject = $1`, bumpSub)
}

// nothing of a fleet change is left in any table.
func (b *bench) noFleet() {
	b.t.Helper()
	for _, table := range []string{
		"fleet_runs", "fleet_targets", "operations WHERE kind = 'fleet'", "outbox WHERE subject LIKE 'fleet.%'",
		"events WHERE kind = 'fleet'", "objects WHERE kind = 'fleet'",
	} {
		require.Zero(b.t, scan[int](b, `SELECT count(*) FROM `+table), table)
	}
}

// fleetEvents lists the status events as "run wave state reason". Each begins where the one before
// ended (X17), but for what was delivered in between.
func (b *bench) fleetEvents() []string {
	b.t.Helper()
	require.Zero(b.t, scan[int](b, `SELECT count(*) FROM (
		SELECT before, lag(after) OVER (PARTITION BY name ORDER BY seq) AS was FROM events WHERE kind = 'fleet' AND type = 'status') e
		WHERE before - 'counts' IS DISTINCT FROM was - 'counts'`))
	return scan[[]string](b, `SELECT coalesce(array_agg(trim(format('%s %s %s %s', after ->> 'run', after ->> 'wave', after ->> 'state',
		after ->> 'reason')) ORDER BY seq), '{}') FROM events WHERE kind = 'fleet' AND type = 'status'`)
}
