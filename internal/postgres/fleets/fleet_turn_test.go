package fleets_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N99, X7, X8
func TestTurnFleet(t *testing.T) {
	t.Parallel()

	t.Run("pauses and resumes without touching operation or deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		op := b.putFleet().Operation
		seen := b.seeFleet()
		require.Equal(t, 0, b.fleetOutbox())
		require.Equal(t, "i1 i2", instancesOf(b.targetsPage(1, fleet.FleetTargetWaiting)))
		paused := b.turnFleet(fleet.FleetPause, func(t *fleets.FleetTurn) { t.Reason = "lunch" })
		require.Equal(t, op.ID, paused.Operation.ID)
		require.Equal(t, fleet.OperationRunning, paused.Operation.State)
		require.Equal(t, 1, b.fleetOutbox())
		run := b.fleetRun(0)
		require.Equal(t, fleet.FleetPaused, run.State)
		require.Equal(t, "lunch", run.Message)
		require.Equal(t, "paused", run.Reason)
		require.Empty(t, b.targetsPage(1, fleet.FleetTargetWaiting), "nothing more begins")
		require.NoError(t, b.MoveFleet(t.Context(), fleet.FleetMove{Fleet: bump, Run: 1, Wave: 1}))
		require.Equal(t, 1, b.fleetRun(0).Wave)
		require.Equal(t, op.ID, b.turnFleet(fleet.FleetResume).Operation.ID)
		require.Equal(t, "i1 i2", instancesOf(b.targetsPage(1, fleet.FleetTargetWaiting)))
		require.Equal(t, seen.Deadline, b.seeFleet().Deadline)
		require.Equal(t, []string{"1 running"}, b.fleetOperations())
		require.Equal(t, []string{"1 1 running", "1 1 paused paused", "1 1 running"}, b.fleetEvents())
	})

	t.Run("resumes a stopped one with what failed in its wave, and all of its time", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.stoppedIn2()
		b.bringTargets(1, fleet.FleetTargetFailed)
		b.Exec(`UPDATE fleet_runs SET deadline_at = now(), cancel_requested = true`)
		out := b.turnFleet(fleet.FleetResume)
		require.Equal(t, []string{"i1 1 failed", "i2 2 waiting", "i3 3 waiting"}, b.fleetTargets(1))
		require.Zero(t, stores.Scan[int](b, `SELECT tries FROM fleet_targets WHERE name = 'i2'`))
		seen := b.seeFleet()
		require.Equal(t, fleet.FleetRunning, seen.State)
		require.Equal(t, []int{2, 3, 3}, []int{seen.Wave, seen.Waves, seen.Until})
		require.False(t, seen.Cancel)
		require.Greater(t, seen.Deadline.Sub(seen.At), 23*time.Hour)
		require.Equal(t, []string{"1 failed error_threshold", "1 running"}, b.fleetOperations())
		require.Equal(t, fleet.OperationRunning, b.Operation(out.Operation.ID).State)
	})

	t.Run("retries those that failed, and no others", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(6)
		b.putFleet(inWaves(33, 66, 100))
		b.bringTargets(1, fleet.FleetTargetFailed, "i1")
		b.bringTargets(1, fleet.FleetTargetSucceeded, "i2")
		b.moveFleet("")
		b.bringTargets(2, fleet.FleetTargetFailed, "i3")
		b.moveFleet(fleet.FleetStop)
		b.turnFleet(fleet.FleetRetry)
		seen := b.seeFleet()
		require.Equal(t, []int{1, 3, 2}, []int{seen.Wave, seen.Waves, seen.Until})
		require.Equal(t, fleet.FleetCounts{Total: 2, Waiting: 1, Succeeded: 1}, seen.Counts)
		require.Equal(t, "i1", instancesOf(b.targetsPage(1, fleet.FleetTargetWaiting)))
		b.bringTargets(1, fleet.FleetTargetSucceeded)
		b.moveFleet("")
		seen = b.seeFleet()
		require.Equal(t, fleet.FleetCounts{Total: 2, Waiting: 1}, seen.Counts, "i4 was never tried")
		require.Equal(t, []fleet.FleetSiteSeen{{Site: plant, Waiting: 1}}, seen.Sites)
		require.Equal(t, "i3", instancesOf(b.targetsPage(2, fleet.FleetTargetWaiting)))
		b.moveFleet("")
		require.Equal(t, 2, b.seeFleet().Wave, "a retry goes no further")

		b.bringTargets(2, fleet.FleetTargetSucceeded, "i3")
		b.moveFleet(fleet.FleetStop)
		b.turnFleet(fleet.FleetResume)
		seen = b.seeFleet()
		require.Equal(t, []int{2, 3, 3}, []int{seen.Wave, seen.Waves, seen.Until})
		require.Equal(t, "i4", instancesOf(b.targetsPage(2, fleet.FleetTargetWaiting)))
	})

	t.Run("a retry of all that failed stops where others wait, whatever the thresholds", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(3)
		b.putFleet(tolerating(50))
		b.bringTargets(1, fleet.FleetTargetFailed, "i1", "i2")
		b.moveFleet(fleet.FleetStop)
		require.Contains(t, b.fleetRun(0).Message, "2 of 3 instances failed in wave 1 of 1; continue with: ")
		asked := b.turnFleet(fleet.FleetRetry)
		b.bringTargets(1, fleet.FleetTargetSucceeded, "i1", "i2")
		require.True(t, b.seeFleet().Counts.Over())
		b.moveFleet(fleet.FleetFinish)
		op, err := b.GetOperation(t.Context(), asked.Operation.ID)
		require.NoError(t, err)
		require.Equal(t, fleet.OperationSucceeded, op.State, "what it was for is done")
		run := b.fleetRun(0)
		require.Equal(t, []string{"stopped", "retried"}, []string{string(run.State), run.Reason})
		require.Contains(t, run.Message, "1 instances wait for a resume")
		b.turnFleet(fleet.FleetResume)
		require.Equal(t, "i3", instancesOf(b.targetsPage(1, fleet.FleetTargetWaiting)))
	})

	t.Run("a retry that stops on its way goes on with the next", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.stoppedIn2()
		b.bringTargets(1, fleet.FleetTargetFailed)
		b.turnFleet(fleet.FleetRetry)
		require.Equal(t, []string{"i1 1 waiting", "i2 2 waiting", "i3 3 waiting"}, b.fleetTargets(1))
		b.bringTargets(1, fleet.FleetTargetFailed)
		b.moveFleet(fleet.FleetStop)
		b.turnFleet(fleet.FleetRetry)
		seen := b.seeFleet()
		require.Equal(t, []int{1, 3, 2}, []int{seen.Wave, seen.Waves, seen.Until})
	})

	t.Run("retries one that succeeded but for some, and refuses when none failed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		b.putFleet(tolerating(50))
		b.bringTargets(1, fleet.FleetTargetSucceeded, "i1")
		b.bringTargets(1, fleet.FleetTargetFailed, "i2")
		b.moveFleet(fleet.FleetFinish)
		b.turnFleet(fleet.FleetRetry)
		require.Equal(t, []string{"i1 1 succeeded", "i2 1 waiting"}, b.fleetTargets(1))
		b.bringTargets(1, fleet.FleetTargetSucceeded)
		b.moveFleet(fleet.FleetFinish)
		_, err := b.TurnFleet(t.Context(), fleetTurn(fleet.FleetRetry))
		stores.Refused(t, fleet.IllegalState, err)
		require.Equal(t, fleet.FleetSucceeded, b.fleetRun(0).State)
		require.Equal(t, []string{"1 succeeded with_failures", "1 succeeded"}, b.fleetOperations())
	})

	t.Run("asks the entity for the end of a live one, and ends a stopped one at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		op := b.putFleet().Operation
		require.Equal(t, op.ID, b.turnFleet(fleet.FleetCancel).Operation.ID)
		require.Equal(t, op.ID, b.turnFleet(fleet.FleetCancel).Operation.ID)
		require.Equal(t, 2, b.fleetOutbox(), "the second changes nothing")
		require.True(t, b.seeFleet().Cancel)
		require.Empty(t, b.targetsPage(1, fleet.FleetTargetWaiting))
		require.Equal(t, []string{"1 running"}, b.fleetOperations())
		b.moveFleet(fleet.FleetCancel)
		require.Equal(t, []string{"1 cancelled cancelled"}, b.fleetOperations())
		require.Equal(t, fleet.FleetCancelled, b.fleetRun(0).State)

		b.turnFleet("")
		b.moveFleet(fleet.FleetStop)
		require.Nil(t, b.turnFleet(fleet.FleetCancel).Operation)
		run := b.fleetRun(0)
		require.Equal(t, fleet.FleetCancelled, run.State)
		require.NotNil(t, run.EndedAt)
	})
}

// N99, X7, X19: what is not an arrow of the machine is refused, and changes nothing.
func TestTurnFleetInEachState(t *testing.T) {
	t.Parallel()
	for _, state := range fleet.FleetStates() {
		t.Run("when "+string(state), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.selectable(1)
			b.putFleet()
			for _, on := range []fleet.FleetEvent{fleet.FleetPause, fleet.FleetResume, fleet.FleetCancel, fleet.FleetRetry, fleet.FleetRollback} {
				b.Exec(`UPDATE fleet_runs SET cancel_requested = false, state = $1,
					ended_at = CASE WHEN $1::text IN ('running', 'paused') THEN NULL ELSE now() END WHERE run = 1`, string(state))
				b.Exec(`UPDATE fleet_targets SET state = 'failed', revision = 1 WHERE run = 1`)
				turn := fleetTurn(on)
				turn.DryRun = true
				before := stores.Scan[string](b, `SELECT string_agg(r::text, ' ') FROM fleet_runs r`)
				_, err := b.TurnFleet(t.Context(), turn)
				if _, illegal := state.Next(on); illegal != nil {
					stores.Refused(t, fleet.IllegalState, err)
					turn.DryRun = false
					_, err = b.TurnFleet(t.Context(), turn)
					stores.Refused(t, fleet.IllegalState, err)
				} else {
					require.NoError(t, err)
				}
				require.Equal(t, before, stores.Scan[string](b, `SELECT string_agg(r::text, ' ') FROM fleet_runs r`), on)
			}
		})
	}

	t.Run("also of none, of another project's and of no known kind", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		_, err := b.TurnFleet(t.Context(), fleetTurn(""))
		stores.Refused(t, fleet.NotFound, err)
		b.putFleet(unstarted)
		_, err = b.TurnFleet(t.Context(), fleetTurn(fleet.FleetPause))
		stores.Refused(t, fleet.IllegalState, err)
		for _, on := range []fleet.FleetEvent{fleet.FleetStop, fleet.FleetSupersede, "dance"} {
			_, err = b.TurnFleet(t.Context(), fleetTurn(on))
			require.Contains(t, []fleet.Kind{fleet.Invalid, fleet.IllegalState}, fleet.KindOf(err))
		}
		_, err = b.TurnFleet(t.Context(), fleetTurn("", func(t *fleets.FleetTurn) { t.Project = "else" }))
		stores.Refused(t, fleet.NotFound, err)
		b.turnFleet("")
		_, err = b.TurnFleet(t.Context(), fleetTurn(fleet.FleetStop))
		stores.Refused(t, fleet.Invalid, err)
	})
}

// X13, X23
func TestFleetDoors(t *testing.T) {
	t.Parallel()

	t.Run("each has an operation of its own on the same run, however often it asks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		b.putFleet(unstarted)
		ops := make([]postgres.Started, 6)
		require.NoError(t, stores.AtOnce(6, func(i int) (err error) {
			ops[i], err = b.TurnFleet(t.Context(), fleetTurn("", byDoor([]string{"r1", "r2"}[i%2])))
			return err
		}))
		require.Equal(t, ops[0].Operation.ID, ops[2].Operation.ID)
		require.NotEqual(t, ops[0].Operation.ID, ops[1].Operation.ID)
		require.Equal(t, []string{"1 running", "1 running"}, b.fleetOperations())
		require.Equal(t, 1, stores.Scan[int](b, `SELECT count(*) FROM fleet_runs`))
		require.Equal(t, 2, b.seeFleet().Asked)
		require.Equal(t, 2, stores.Scan[int](b, `SELECT count(*) FROM operations WHERE entity_run = $1 AND entity_build = 'build-1'`, stores.Run1))
		b.bringTargets(1, fleet.FleetTargetSucceeded)
		b.moveFleet(fleet.FleetFinish)
		seen := b.seeFleet()
		require.Equal(t, []int{0, 2}, []int{seen.Asked, seen.Untold})
		require.Equal(t, ops[0].Operation.ID, b.turnFleet("", byDoor("r1")).Operation.ID, "also when it ended")
		require.EqualValues(t, 2, b.turnFleet("", byDoor("r3")).Operation.Revision)
	})

	t.Run("whoever has no door joins the operation that there is", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		op := b.putFleet().Operation
		require.Equal(t, op.ID, b.turnFleet("").Operation.ID)
		b.Exec(`UPDATE operations SET state = 'failed', ended_at = now() WHERE kind = 'fleet'`)
		again := b.turnFleet("").Operation
		require.NotEqual(t, op.ID, again.ID)
		require.WithinDuration(t, b.fleetRun(0).Deadline, again.Deadline, time.Minute)
	})

	t.Run("a new generation is run anew", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		b.putFleet(unstarted, inWaves(50))
		require.EqualValues(t, 2, b.turnFleet("").Operation.Revision)
		require.Equal(t, []string{"1 superseded superseded", "2 running"}, b.fleetOperations())
	})
}

// X13, X23
func TestTurnFleetTwiceAtOnce(t *testing.T) {
	t.Parallel()

	t.Run("pause and cancel both count, in some order", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		verbs := []fleet.FleetEvent{fleet.FleetPause, fleet.FleetCancel}
		require.NoError(t, stores.AtOnce(2, func(i int) error {
			_, err := b.TurnFleet(t.Context(), fleetTurn(verbs[i]))
			return err
		}))
		run := b.fleetRun(0)
		require.Equal(t, fleet.FleetPaused, run.State)
		require.True(t, run.Cancel)
		b.moveFleet(fleet.FleetCancel)
		require.Equal(t, fleet.FleetCancelled, b.fleetRun(0).State)
	})

	t.Run("a key is answered once, and refused for another verb", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.stoppedIn2()
		keyed := func(hash string) func(*fleets.FleetTurn) {
			return func(t *fleets.FleetTurn) { t.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte(hash)} }
		}
		ops := make([]postgres.Started, 4)
		require.NoError(t, stores.AtOnce(4, func(i int) (err error) {
			ops[i], err = b.TurnFleet(t.Context(), fleetTurn(fleet.FleetRetry, keyed("retry")))
			return err
		}))
		require.Equal(t, ops[0].Operation.ID, ops[3].Operation.ID)
		_, err := b.TurnFleet(t.Context(), fleetTurn(fleet.FleetPause, keyed("pause")))
		stores.Refused(t, fleet.Conflict, err)
		require.Len(t, b.fleetOperations(), 2)
	})

	t.Run("one of two retries wins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.stoppedIn2()
		err := stores.AtOnce(2, func(int) error {
			_, err := b.TurnFleet(t.Context(), fleetTurn(fleet.FleetRetry))
			return err
		})
		stores.Refused(t, fleet.IllegalState, err)
		require.Len(t, b.fleetOperations(), 2)
	})
}

// X7, X25
func TestFleetOperations(t *testing.T) {
	t.Parallel()

	t.Run("the cancel of one is the cancel of its run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		op := b.putFleet().Operation
		out, err := b.CancelOperation(t.Context(), op.ID)
		require.NoError(t, err)
		require.Equal(t, op.ID, out.ID)
		require.True(t, b.seeFleet().Cancel)
		b.moveFleet(fleet.FleetCancel)
		_, err = b.CancelOperation(t.Context(), op.ID)
		stores.Refused(t, fleet.IllegalState, err)
	})

	t.Run("are listed by fleet change, and not as an instance's", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.Put(`{"a":1}`, stores.Named(string(bump)))
		op := b.putFleet().Operation
		list := func(f postgres.OperationFilter) []postgres.Operation {
			out, err := b.ListOperations(t.Context(), f, postgres.Place{}, 100)
			require.NoError(t, err)
			return out
		}
		require.Len(t, list(postgres.OperationFilter{Fleet: bump}), 1)
		require.Equal(t, op.ID, list(postgres.OperationFilter{Fleet: bump})[0].ID)
		require.Len(t, list(postgres.OperationFilter{Instance: fleet.InstanceName(bump)}), 1)
		require.Empty(t, list(postgres.OperationFilter{Fleet: bump})[0].Instance)
		require.Len(t, list(postgres.OperationFilter{}), 3)
	})

	t.Run("the sweep finds them, and a run that nobody waits for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		_, err := b.AskReconcile(t.Context(), nodes.ReconcileRequest{Request: postgres.Request{Actor: "ann", Limit: time.Hour}, Node: stores.NodeA})
		require.NoError(t, err)
		b.putFleet()
		open := func() []postgres.OpenEntity {
			out, err := b.OpenEntities(t.Context(), fleet.EntityFleet, "", 0, 100)
			require.NoError(t, err)
			return out
		}
		require.Equal(t, []postgres.OpenEntity{{Subject: bumpSub}}, open())
		b.seeFleet()
		require.Equal(t, []postgres.OpenEntity{{Subject: bumpSub, Run: stores.Run1}}, open())
		_, err = b.CloseEntityOperations(t.Context(), postgres.OpenEntity{Subject: bumpSub, Run: "another"}, "workflow_lost")
		require.NoError(t, err)
		require.Equal(t, []string{"1 running"}, b.fleetOperations())
		_, err = b.CloseEntityOperations(t.Context(), open()[0], "workflow_terminated")
		require.NoError(t, err)
		require.Equal(t, []string{"1 failed workflow_terminated"}, b.fleetOperations())
		require.Equal(t, []postgres.OpenEntity{{Subject: bumpSub, Run: stores.Run1}}, open(), "still under way")
		b.moveFleet(fleet.FleetStop)
		require.Empty(t, open())
		nodes, err := b.OpenEntities(t.Context(), fleet.EntityNode, "", 0, 100)
		require.NoError(t, err)
		require.Equal(t, []postgres.OpenEntity{{Subject: fleet.NodeSubject(stores.NodeA)}}, nodes)
	})

	t.Run("a fleet change that is under way is not deleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(bumpKey))
		stores.Refused(t, fleet.IllegalState, err)
		b.turnFleet(fleet.FleetPause)
		_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(bumpKey))
		stores.Refused(t, fleet.IllegalState, err)
		b.moveFleet(fleet.FleetStop)
		_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(bumpKey))
		require.NoError(t, err)
		require.Equal(t, fleet.FleetStopped, b.fleetRun(1).State)
	})
}
