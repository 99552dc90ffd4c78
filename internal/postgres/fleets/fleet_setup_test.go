package fleets_test

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const (
	bump    = fleet.FleetName("bump")
	bumpSub = "fleet.bump"
)

var bumpKey = fleet.FleetKey(bump)

// fleetPut is a PUT of the fleet change bump, which starts a run; edits come after the defaults.
func (b *bench) fleetPut(edits ...func(*fleets.FleetPut)) fleets.FleetPut {
	b.T.Helper()
	patch := stores.JSONOf(`{"patch":1}`)
	_, err := b.PutBody(b.Ctx(), project, []byte(`{"patch":1}`))
	require.NoError(b.T, err)
	p := fleets.FleetPut{
		Write: stores.WriteOf(bumpKey), Start: true,
		Spec: fleet.FleetSpec{Change: fleet.FleetChange{Patch: &patch}}.WithDefaults(),
	}
	for _, edit := range edits {
		edit(&p)
	}
	return p
}

func (b *bench) putFleet(edits ...func(*fleets.FleetPut)) postgres.Started {
	b.T.Helper()
	out, err := b.PutFleet(b.Ctx(), b.fleetPut(edits...))
	require.NoError(b.T, err)
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
	b.T.Helper()
	for i := 1; i <= n; i++ {
		b.Put(`{"a":1}`, append([]func(*deliveries.InstanceChange){stores.Named(fmt.Sprintf("i%d", i))}, edits...)...)
	}
}

// selectableMany declares instances at ten sites by plain SQL, a tenth at each.
func (b *bench) selectableMany(n int) {
	b.T.Helper()
	b.Exec(`INSERT INTO objects (kind, scope, name, project, generation, resource_version, spec, syncing, created_by)
		SELECT 'instance', 'site-' || i % 10, 'i' || i, $1, 1, 0, '{"enabled":true,"durability":"sync"}', '{}', 'ann'
		FROM generate_series(1, $2::int) i`, project, n)
	b.Exec(`ANALYZE objects`)
}

func fleetTurn(on fleet.FleetEvent, edits ...func(*fleets.FleetTurn)) fleets.FleetTurn {
	t := fleets.FleetTurn{Write: stores.WriteOf(bumpKey), On: on}
	for _, edit := range edits {
		edit(&t)
	}
	return t
}

func byDoor(run string) func(*fleets.FleetTurn) {
	return func(t *fleets.FleetTurn) { t.Door = postgres.Door{Workflow: "door", Run: run} }
}

func (b *bench) turnFleet(on fleet.FleetEvent, edits ...func(*fleets.FleetTurn)) postgres.Started {
	b.T.Helper()
	out, err := b.TurnFleet(b.Ctx(), fleetTurn(on, edits...))
	require.NoError(b.T, err)
	return out
}

func (b *bench) seeFleet() fleet.FleetSeen {
	b.T.Helper()
	seen, err := b.SeeFleet(b.Ctx(), fleet.FleetVisit{Fleet: bump, Run: stores.Run1, Build: "build-1"})
	require.NoError(b.T, err)
	return seen
}

func (b *bench) fleetRun(run int64) fleets.FleetRun {
	b.T.Helper()
	r, err := b.GetFleetRun(b.Ctx(), bump, run)
	require.NoError(b.T, err)
	return r
}

// moveFleet takes the newest run a step on, from the wave that it is in.
func (b *bench) moveFleet(on fleet.FleetEvent, edits ...func(*fleet.FleetMove)) {
	b.T.Helper()
	seen := b.seeFleet()
	m := fleet.FleetMove{Fleet: bump, Run: seen.Run, On: on, Wave: seen.Wave, Turn: seen.Turn}
	for _, edit := range edits {
		edit(&m)
	}
	require.NoError(b.T, b.MoveFleet(b.Ctx(), m))
}

// bringTargets has the targets of a wave come to a state, as a batch would.
func (b *bench) bringTargets(wave int, state fleet.FleetTargetState, names ...string) {
	b.T.Helper()
	b.Exec(`UPDATE fleet_targets SET state = $2, tries = 3 WHERE wave = $1 AND run = (SELECT max(run) FROM fleet_runs)
		AND (cardinality($3::text[]) = 0 OR name = ANY($3::text[]))`, wave, string(state), append([]string{}, names...))
}

// stoppedIn gives a run of one instance a wave that stopped in the second of its three waves,
// where it failed; the first succeeded.
func (b *bench) stoppedIn2() {
	b.T.Helper()
	b.selectable(3)
	b.putFleet(inWaves(33, 66, 100))
	b.bringTargets(1, fleet.FleetTargetSucceeded)
	b.moveFleet("")
	b.bringTargets(2, fleet.FleetTargetFailed)
	b.moveFleet(fleet.FleetStop, func(m *fleet.FleetMove) { m.Reason = "error_threshold" })
}

// fleetTargets lists the targets of a run as "name wave state".
func (b *bench) fleetTargets(run int64) []string {
	b.T.Helper()
	all, err := b.ListFleetTargets(b.Ctx(), fleets.FleetTargetFilter{Fleet: bump, Run: run, Limit: 1000})
	require.NoError(b.T, err)
	var out []string
	for _, t := range all {
		out = append(out, fmt.Sprintf("%s %d %s", t.Instance, t.Wave, t.State))
	}
	return out
}

// targetsPage is the next targets of a wave at the plant.
func (b *bench) targetsPage(wave int, state fleet.FleetTargetState) []fleets.FleetTarget {
	b.T.Helper()
	out, err := b.FleetTargets(b.Ctx(), fleets.FleetPage{
		Fleet: bump, Run: b.fleetRun(0).Run, Wave: wave, Site: plant, State: state, Limit: 100,
	})
	require.NoError(b.T, err)
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
	b.T.Helper()
	return stores.Scan[[]string](b, `SELECT coalesce(array_agg(trim(format('%s %s %s', revision, state, reason)) ORDER BY created_at, id), '{}')
		FROM operations WHERE subject = $1`, bumpSub)
}

func (b *bench) fleetOutbox() int {
	b.T.Helper()
	return stores.Scan[int](b, `SELECT count(*) FROM outbox WHERE subject = $1`, bumpSub)
}

// nothing of a fleet change is left in any table.
func (b *bench) noFleet() {
	b.T.Helper()
	for _, table := range []string{
		"fleet_runs", "fleet_targets", "operations WHERE kind = 'fleet'", "outbox WHERE subject LIKE 'fleet.%'",
		"events WHERE kind = 'fleet'", "objects WHERE kind = 'fleet'",
	} {
		require.Zero(b.T, stores.Scan[int](b, `SELECT count(*) FROM `+table), table)
	}
}

// fleetEvents lists the status events as "run wave state reason". Each begins where the one before
// ended (X17), but for what was delivered in between.
func (b *bench) fleetEvents() []string {
	b.T.Helper()
	require.Zero(b.T, stores.Scan[int](b, `SELECT count(*) FROM (
		SELECT before, lag(after) OVER (PARTITION BY name ORDER BY seq) AS was FROM events WHERE kind = 'fleet' AND type = 'status') e
		WHERE before - 'counts' IS DISTINCT FROM was - 'counts'`))
	return stores.Scan[[]string](b, `SELECT coalesce(array_agg(trim(format('%s %s %s %s', after ->> 'run', after ->> 'wave', after ->> 'state',
		after ->> 'reason')) ORDER BY seq), '{}') FROM events WHERE kind = 'fleet' AND type = 'status'`)
}
