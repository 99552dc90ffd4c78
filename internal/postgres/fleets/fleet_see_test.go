package fleets_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N99, N100, X8
func TestSeeFleet(t *testing.T) {
	t.Parallel()

	t.Run("sees nothing of what was never run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.putFleet(unstarted)
		seen := b.seeFleet()
		require.WithinDuration(t, time.Now(), seen.At, time.Hour)
		seen.At = time.Time{}
		require.Equal(t, fleet.FleetSeen{}, seen)
	})

	t.Run("sees its spec, its counts and its windows", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(7)
		window := fleet.Window{From: "22:00", To: "04:00", Sites: []fleet.SiteName{plant}, Zone: "Europe/Berlin", Days: []string{"fri"}}
		b.putFleet(tolerating(12.5), func(p *fleets.FleetPut) {
			p.Spec.Windows, p.Spec.BatchSize, p.Spec.SitesAtOnce = []fleet.Window{window}, 7, 3
		})
		for i, state := range fleet.FleetTargetStates() {
			b.bringTargets(1, state, fmt.Sprintf("i%d", i+1))
		}
		seen, err := b.SeeFleet(t.Context(), fleet.FleetVisit{Fleet: bump, Run: stores.Run2, Build: "build-2"})
		require.NoError(t, err)
		require.Equal(t, fleet.FleetCounts{
			Total: 7, Waiting: 1, Delivering: 1, Staged: 1, Succeeded: 1, Unchanged: 1, Superseded: 1, Failed: 1,
		}, seen.Counts)
		require.Equal(t, []float64{87.5, 12.5}, []float64{seen.SuccessThreshold, seen.ErrorThreshold})
		require.Equal(t, []int{3, 7, 1}, []int{seen.SitesAtOnce, seen.BatchSize, seen.Asked})
		site := fleet.FleetSiteSeen{Site: plant, Waiting: 1, Staged: 1}
		if open, opens := decide.WindowAt([]fleet.Window{window}, plant, seen.At, time.LoadLocation); !open {
			site.Closed, site.Opens = true, opens
		}
		require.Equal(t, []fleet.FleetSiteSeen{site}, seen.Sites)
		require.Equal(t, stores.Run2, stores.Scan[string](b, `SELECT entity_run FROM fleet_runs`))
		require.Equal(t, stores.Run2, stores.Scan[string](b, `SELECT entity_run FROM operations WHERE kind = 'fleet'`))
		require.Zero(t, b.fleetOutbox())
	})

	t.Run("sees so many sites, those that wait first", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.Exec(`INSERT INTO objects (kind, scope, name, project, generation, resource_version, spec, syncing, created_by)
			SELECT 'instance', to_char(i, '"site-"FM000'), 'press', $1, 1, 0, '{}', '{}', 'ann' FROM generate_series(1, 200) i`, project)
		b.putFleet()
		b.Exec(`UPDATE fleet_targets SET state = 'staged' WHERE site < 'site-101'`)
		sites := b.seeFleet().Sites
		require.Len(t, sites, fleet.MaxFleetSitesSeen)
		require.Equal(t, fleet.FleetSiteSeen{Site: "site-101", Waiting: 1}, sites[0])
		require.Equal(t, fleet.FleetSiteSeen{Site: "site-200", Waiting: 1}, sites[99])
		require.Equal(t, fleet.FleetSiteSeen{Site: "site-001", Staged: 1}, sites[100])
		staged, now, err := b.StagedFleetSites(t.Context(), b.fleetRun(0))
		require.NoError(t, err)
		require.Len(t, staged, 100)
		require.WithinDuration(t, stores.Scan[time.Time](b, `SELECT now()`), now, stores.Deadline)
		_, err = b.Now(t.Context())
		require.NoError(t, err)
	})
}

// N99, X13
func TestMoveFleet(t *testing.T) {
	t.Parallel()
	move := func(on fleet.FleetEvent, wave int) fleet.FleetMove {
		return fleet.FleetMove{Fleet: bump, Run: 1, On: on, Wave: wave}
	}

	t.Run("goes from wave to wave, once each", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(3)
		b.putFleet(inWaves(33, 66))
		for range 2 {
			require.NoError(t, b.MoveFleet(t.Context(), move("", 1)))
			require.Equal(t, 2, b.fleetRun(0).Wave)
		}
		require.NoError(t, stores.AtOnce(4, func(int) error { return b.MoveFleet(t.Context(), move("", 2)) }))
		require.Equal(t, 3, b.fleetRun(0).Wave)
		require.NoError(t, b.MoveFleet(t.Context(), move("", 3)))
		require.Equal(t, 3, b.fleetRun(0).Wave, "there is no more")
		require.Equal(t, []string{"1 1 running", "1 2 running", "1 3 running"}, b.fleetEvents())
	})

	t.Run("finishes with its operations, and says how many failed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		b.putFleet(tolerating(50))
		b.turnFleet("", byDoor("r1"))
		b.bringTargets(1, fleet.FleetTargetSucceeded, "i1")
		b.bringTargets(1, fleet.FleetTargetFailed, "i2")
		for range 2 {
			require.NoError(t, b.MoveFleet(t.Context(), move(fleet.FleetFinish, 1)))
		}
		run := b.fleetRun(0)
		require.Equal(t, []string{"succeeded", "with_failures"}, []string{string(run.State), run.Reason})
		require.Equal(t, "1 of 2 instances failed; try them again with: holdfast fleet retry bump", run.Message)
		require.NotNil(t, run.EndedAt)
		require.Equal(t, []string{"1 succeeded with_failures", "1 succeeded with_failures"}, b.fleetOperations())
		require.Equal(t, []string{"1 1 running", "1 1 succeeded with_failures"}, b.fleetEvents())
		require.JSONEq(t, `{"run":1,"wave":1,"waves":1,"state":"succeeded","reason":"with_failures","counts":{"total":2,"waiting":0,
			"delivering":0,"staged":0,"succeeded":1,"unchanged":0,"superseded":0,"failed":1}}`,
			stores.Scan[string](b, `SELECT after::text FROM events WHERE kind = 'fleet' AND type = 'status' ORDER BY seq DESC LIMIT 1`))
		require.JSONEq(t, `{"run":1,"wave":1,"waves":1,"state":"running","reason":"","counts":{"total":2,"waiting":0,
			"delivering":0,"staged":0,"succeeded":1,"unchanged":0,"superseded":0,"failed":1}}`,
			stores.Scan[string](b, `SELECT before::text FROM events WHERE kind = 'fleet' AND type = 'status' ORDER BY seq DESC LIMIT 1`)) // X17
	})

	t.Run("stops, says what can be done, and leaves nothing under way", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(4)
		op := b.putFleet(inWaves(50)).Operation
		b.bringTargets(1, fleet.FleetTargetFailed, "i1")
		b.bringTargets(1, fleet.FleetTargetDelivering, "i2")
		stop := move(fleet.FleetStop, 1)
		stop.Reason, stop.Message = "error_threshold", "more failed than may"
		require.NoError(t, b.MoveFleet(t.Context(), stop))
		ended := b.Operation(op.ID)
		require.Equal(t, fleet.OperationFailed, ended.State)
		require.Equal(t, "error_threshold", ended.Reason)
		require.Equal(t, "more failed than may; continue with: holdfast fleet resume|retry|rollback bump", ended.Message)
		require.Equal(t, []string{"i1 1 failed", "i2 1 failed", "i3 2 waiting", "i4 2 waiting"}, b.fleetTargets(1))
	})

	t.Run("stops a paused one, and finishes it not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		b.turnFleet(fleet.FleetPause)
		require.NoError(t, b.MoveFleet(t.Context(), move(fleet.FleetFinish, 1)))
		require.Equal(t, fleet.FleetPaused, b.fleetRun(0).State)
		require.NoError(t, b.MoveFleet(t.Context(), move(fleet.FleetStop, 1)))
		require.Equal(t, fleet.FleetStopped, b.fleetRun(0).State)
	})

	t.Run("what was decided before a person's turn is void", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		late := move(fleet.FleetStop, 1)
		late.Turn = b.seeFleet().Turn
		require.NoError(t, b.MoveFleet(t.Context(), late))
		b.turnFleet(fleet.FleetResume)
		require.NoError(t, b.MoveFleet(t.Context(), late))
		require.Equal(t, fleet.FleetRunning, b.fleetRun(0).State)
	})

	t.Run("refuses what is no step, and a run that is not there", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		stores.Refused(t, fleet.Invalid, b.MoveFleet(t.Context(), move(fleet.FleetPause, 1)))
		stores.Refused(t, fleet.NotFound, b.MoveFleet(t.Context(), fleet.FleetMove{Fleet: bump, Run: 7}))
	})
}

// releasedByRun says that the newest run released a revision, the second of each instance.
func (b *bench) releasedByRun(names ...string) {
	b.T.Helper()
	for _, name := range names {
		b.Put(`{"a":2}`, stores.Named(name))
	}
	b.Exec(`UPDATE fleet_targets t SET revision = s.desired_revision, before_revision = s.desired_revision - 1, state = 'succeeded'
		FROM subjects s WHERE s.site = t.site AND s.name = t.name AND t.name = ANY($1) AND t.run = (SELECT max(run) FROM fleet_runs)`, names)
}

// N99
func TestFleetTargets(t *testing.T) {
	t.Parallel()

	t.Run("come by name, with what their change is made from, in one query", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(3, stores.Labelled(map[string]string{"color": "red"}), stores.Running("press"))
		b.putFleet()
		n := b.CountQueries()
		page, err := b.FleetTargets(t.Context(), fleets.FleetPage{
			Fleet: bump, Run: 1, Wave: 1, Site: plant, State: fleet.FleetTargetWaiting, Limit: 2,
		})
		require.NoError(t, err)
		require.EqualValues(t, 1, n.Load())
		require.Equal(t, "i1 i2", instancesOf(page))
		require.Equal(t, project, page[0].Project)
		require.Equal(t, map[string]string{"color": "red"}, page[0].Labels)
		require.EqualValues(t, 1, page[0].Generation)
		content := stores.JSONOf(`{"a":1}`)
		require.Equal(t, &content, page[0].Spec.Config)
		require.Equal(t, []string{"press"}, page[0].Spec.Run.Command)
		require.Zero(t, page[0].Revision)
		require.Nil(t, page[0].Restore)
		require.NoError(t, page[0].Refused)
		b.bringTargets(1, fleet.FleetTargetStaged, "i2")
		b.bringTargets(1, fleet.FleetTargetDelivering, "i1")
		require.Equal(t, "i3", instancesOf(b.targetsPage(1, fleet.FleetTargetWaiting)))
		require.Equal(t, "i2", instancesOf(b.targetsPage(1, fleet.FleetTargetStaged)))
		require.Empty(t, b.targetsPage(2, fleet.FleetTargetWaiting))
	})

	t.Run("are refused when they are gone, on their way out, or of another project", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(5)
		b.putFleet()
		b.releasedByRun("i3", "i4")
		b.bringTargets(1, fleet.FleetTargetWaiting)
		b.Exec(`DELETE FROM objects WHERE name = 'i1'`)
		b.Exec(`UPDATE objects SET deleting_since = now() WHERE name = 'i2'`)
		b.Put(`{"a":3}`, stores.Named("i4"))
		b.Exec(`UPDATE objects SET project = 'else' WHERE name = 'i5'`)
		page := b.targetsPage(1, fleet.FleetTargetWaiting)
		for i, kind := range []fleet.Kind{fleet.NotFound, fleet.Gone, "", "", fleet.NotFound} {
			if kind == "" {
				require.NoError(t, page[i].Refused)
				require.EqualValues(t, 2, page[i].Revision)
				continue
			}
			stores.Refused(t, kind, page[i].Refused)
		}
	})

	t.Run("end without a batch, but not those that have one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(4)
		b.putFleet()
		b.bringTargets(1, fleet.FleetTargetDelivering, "i3")
		b.bringTargets(1, fleet.FleetTargetSucceeded, "i4")
		var ends []fleets.FleetOutcome
		for _, name := range []fleet.InstanceName{"i1", "i3", "i4", "i9"} {
			ends = append(ends, fleets.FleetOutcome{Instance: name, State: fleet.FleetTargetFailed, Reason: fleet.Invalid, Message: "it has no array"})
		}
		ends = append(ends, fleets.FleetOutcome{Instance: "i2", State: fleet.FleetTargetUnchanged})
		for range 2 {
			require.NoError(t, b.EndFleetTargets(t.Context(), bump, 1, plant, ends))
		}
		require.NoError(t, b.EndFleetTargets(t.Context(), bump, 1, plant, nil))
		require.Equal(t, []string{"i1 1 failed", "i2 1 unchanged", "i3 1 delivering", "i4 1 succeeded"}, b.fleetTargets(1))
		list, err := b.ListFleetTargets(t.Context(), fleets.FleetTargetFilter{Fleet: bump, Run: 1, State: fleet.FleetTargetFailed, Limit: 10})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, []string{"invalid", "it has no array"}, []string{list[0].Reason, list[0].Message})
		list, err = b.ListFleetTargets(t.Context(), fleets.FleetTargetFilter{
			Fleet: bump, Run: 1, AfterSite: plant, AfterName: "i2", Limit: 1,
		})
		require.NoError(t, err)
		require.EqualValues(t, "i3", list[0].Instance)
	})
}

// N99, X7
func TestRollbackFleet(t *testing.T) {
	t.Parallel()

	t.Run("writes what was there before, wherever the run released something", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(4, stores.Running("press"))
		b.putFleet(inWaves(25, 50, 75))
		b.releasedByRun("i1", "i2")
		b.moveFleet(fleet.FleetStop)
		out := b.turnFleet(fleet.FleetRollback)
		require.EqualValues(t, 2, out.Operation.Revision)
		require.Equal(t, fleet.FleetSuperseded, b.fleetRun(1).State)
		run := b.fleetRun(2)
		require.EqualValues(t, 1, run.RollbackOf)
		require.EqualValues(t, 1, run.Generation)
		require.Equal(t, []float64{100, 0}, []float64{run.Spec.ErrorThreshold, run.Spec.SuccessThreshold})
		require.Equal(t, 1, run.Waves)
		require.Equal(t, []string{"i1 1 waiting", "i2 1 waiting"}, b.fleetTargets(2))
		page := b.targetsPage(1, fleet.FleetTargetWaiting)
		for _, target := range page {
			require.NoError(t, target.Refused)
			require.Equal(t, stores.JSONOf(`{"a":1}`), target.Restore.Content)
			require.NotEmpty(t, target.Restore.RunHash)
			require.JSONEq(t, `{"command":["press"]}`, string(target.Restore.RunJSON))
			require.Equal(t, []string{"press"}, target.Restore.Spec.Run.Command)
			require.EqualValues(t, 2, target.Generation)
		}

		again := b.putFleet(inWaves(25, 50, 75)) // still declared, and was run
		require.Nil(t, again.Operation)
		require.EqualValues(t, 3, b.turnFleet("").Operation.Revision, "but who asks for it runs it")
		require.Equal(t, fleet.FleetSuperseded, b.fleetRun(2).State)
	})

	t.Run("leaves what somebody else released since, and what was never there before", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(5)
		b.putFleet()
		b.releasedByRun("i1", "i2", "i3", "i4", "i5")
		b.Exec(`UPDATE fleet_targets SET before_revision = 0 WHERE name = 'i2'`)
		b.Exec(`UPDATE fleet_targets SET before_revision = 77 WHERE name = 'i3'`)
		b.Exec(`UPDATE revisions SET action = 'delete', body_hash = NULL WHERE name = 'i5' AND revision = 1`)
		b.moveFleet(fleet.FleetFinish)
		b.Put(`{"a":3}`, stores.Named("i1"))
		b.turnFleet(fleet.FleetRollback)
		for i, kind := range []fleet.Kind{fleet.Stale, fleet.IllegalState, fleet.Gone, "", fleet.IllegalState} {
			target := b.targetsPage(1, fleet.FleetTargetWaiting)[i]
			if kind == "" {
				require.NoError(t, target.Refused)
				require.NotNil(t, target.Restore)
				continue
			}
			stores.Refused(t, kind, target.Refused)
			require.Nil(t, target.Restore)
		}
	})

	t.Run("of a rollback brings the change back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		b.releasedByRun("i1")
		b.moveFleet(fleet.FleetFinish)
		b.turnFleet(fleet.FleetRollback)
		b.Put(`{"a":1}`, stores.Named("i1"))
		b.Exec(`UPDATE fleet_targets SET revision = 3, before_revision = 2 WHERE run = 2`)
		page := b.targetsPage(1, fleet.FleetTargetWaiting)
		require.NoError(t, page[0].Refused)
		require.EqualValues(t, 3, page[0].Revision, "it was released, and is only to be delivered")
		require.Nil(t, page[0].Restore)
		b.moveFleet(fleet.FleetStop)
		b.turnFleet(fleet.FleetRollback)
		require.EqualValues(t, 2, b.fleetRun(3).RollbackOf)
		page = b.targetsPage(1, fleet.FleetTargetWaiting)
		require.NoError(t, page[0].Refused)
		require.Equal(t, stores.JSONOf(`{"a":2}`), page[0].Restore.Content)
	})

	t.Run("is refused when nothing was released, and changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.stoppedIn2()
		_, err := b.TurnFleet(t.Context(), fleetTurn(fleet.FleetRollback))
		stores.Refused(t, fleet.IllegalState, err)
		require.Equal(t, fleet.FleetStopped, b.fleetRun(0).State)
		require.Len(t, b.fleetOperations(), 1)
	})
}

func TestNewestFleetRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.selectable(2)
	b.putFleet()
	b.putFleet(inWaves(50))
	b.putFleet(func(p *fleets.FleetPut) { p.Key = fleet.FleetKey("other") })
	runs, err := b.NewestFleetRuns(t.Context(), string(bump), "other", "none")
	require.NoError(t, err)
	require.Len(t, runs, 2)
	require.EqualValues(t, 2, runs[string(bump)].Run)
	require.Equal(t, fleet.FleetCounts{Total: 2, Waiting: 2}, runs[string(bump)].Counts)
	require.EqualValues(t, 1, runs["other"].Run)
	runs, err = b.NewestFleetRuns(t.Context())
	require.NoError(t, err)
	require.Empty(t, runs)
	_, err = b.GetFleetRun(t.Context(), "none", 0)
	stores.Refused(t, fleet.NotFound, err)
	_, err = b.GetFleetRun(t.Context(), bump, 9)
	stores.Refused(t, fleet.NotFound, err)
}

func TestCollectFleetRuns(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.selectableMany(1500)
	for range 12 {
		b.turnOrPut()
		b.moveFleet(fleet.FleetStop)
	}
	b.turnFleet(fleet.FleetResume)
	require.Zero(t, b.Collect(fleet.CollectFleetRuns), "they are young")
	b.Exec(`UPDATE fleet_runs SET ended_at = ended_at - interval '31 days' WHERE ended_at IS NOT NULL`)
	n, more, err := b.CollectPage(context.Background(), fleet.CollectFleetRuns, fleet.DefaultRetention())
	require.NoError(t, err)
	require.True(t, more)
	require.LessOrEqual(t, n, int64(500))
	require.EqualValues(t, 2*1500+2-n, b.Collect(fleet.CollectFleetRuns))
	runs, err := b.ListFleetRuns(t.Context(), bump, 0, 100)
	require.NoError(t, err)
	require.Len(t, runs, 10)
	require.EqualValues(t, 3, runs[9].Run)

	b.moveFleet(fleet.FleetStop)
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(bumpKey))
	require.NoError(t, err)
	b.Exec(`UPDATE fleet_runs SET ended_at = now() - interval '31 days'`)
	b.Collect(fleet.CollectFleetRuns)
	require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM fleet_runs`), "nothing is kept of what is deleted")
}

// turnOrPut starts another run.
func (b *bench) turnOrPut() {
	b.T.Helper()
	b.putFleet(unstarted)
	b.turnFleet("")
}
