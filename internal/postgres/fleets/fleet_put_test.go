package fleets_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N99, X1, X2
func TestPutFleet(t *testing.T) {
	t.Parallel()

	t.Run("starts a run over what it selects, with its operation", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(4)
		out := b.putFleet(inWaves(25, 50), tolerating(10))
		require.True(t, out.Changed)
		op := b.Operation(out.Operation.ID)
		require.Equal(t, fleet.OperationFleet, op.Kind)
		require.Equal(t, bump, op.Fleet)
		require.Equal(t, bumpSub, op.Subject)
		require.EqualValues(t, 1, op.Revision)
		require.Equal(t, project, op.Project)
		require.Empty(t, op.Site)
		require.Equal(t, 24*time.Hour, op.Deadline.Sub(op.CreatedAt))
		require.Equal(t, []string{"i1 1 waiting", "i2 2 waiting", "i3 3 waiting", "i4 3 waiting"}, b.fleetTargets(1))
		require.Equal(t, 1, b.fleetOutbox())
		require.Equal(t, []string{"1 1 running"}, b.fleetEvents())
		run := b.fleetRun(0)
		require.EqualValues(t, 1, run.Run)
		require.EqualValues(t, 1, run.Generation)
		require.Equal(t, fleet.FleetRunning, run.State)
		require.Equal(t, "ann", run.RequestedBy)
		require.Equal(t, []int{1, 3, 3}, []int{run.Wave, run.Waves, run.Until})
		require.Equal(t, fleet.FleetCounts{Total: 4, Waiting: 4}, run.Counts)
		require.Equal(t, map[int]fleet.FleetCounts{1: {Total: 1, Waiting: 1}, 2: {Total: 1, Waiting: 1}, 3: {Total: 2, Waiting: 2}}, run.PerWave)
		require.InDelta(t, 10, run.Spec.ErrorThreshold, 0)
	})

	t.Run("selects by project, site, label and template, and nothing that is being deleted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.PutSite("other", "other-a", "")
		template := fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "press"}
		_, err := b.Declare(t.Context(), stores.WriteOf(template), b.TemplateOf(`{"t":1}`))
		require.NoError(t, err)
		of := func(c *deliveries.InstanceChange) {
			c.Spec.Config, c.Spec.Template, c.Spec.TemplateGeneration = nil, "press", 1
		}
		red := stores.Labelled(map[string]string{"color": "red", "size": "xl"})
		b.Put(`{"a":1}`, stores.Named("a"), red)
		b.Put(`{"a":1}`, stores.Named("b"), red, of)
		b.Put(`{"a":1}`, stores.Named("c"), of)
		b.DeclareProject("else")
		b.Put(`{"a":1}`, stores.Named("d"), red, of, func(c *deliveries.InstanceChange) { c.Project = "else" })
		b.Put(`{"a":1}`, stores.Named("e"), red, of, func(c *deliveries.InstanceChange) { c.Key.Scope = "other" })
		b.Put(`{"a":1}`, stores.Named("f"), red, of)
		deleted := stores.TurnOf(fleet.OperationDelete)
		deleted.Key.Name = "f"
		_, err = b.TurnInstance(t.Context(), deleted)
		require.NoError(t, err)
		for i, c := range []struct {
			edit func(*fleet.FleetSpec)
			want []string
		}{
			{func(*fleet.FleetSpec) {}, []string{"e", "a", "b", "c"}},
			{func(s *fleet.FleetSpec) { s.Selector.Sites = []fleet.SiteName{plant} }, []string{"a", "b", "c"}},
			{func(s *fleet.FleetSpec) { s.Selector.Labels = map[string]string{"color": "red"} }, []string{"e", "a", "b"}},
			{func(s *fleet.FleetSpec) { s.Change.Template = "press" }, []string{"e", "b", "c"}},
			{func(s *fleet.FleetSpec) {
				s.Change.Template, s.Selector.Labels, s.Selector.Sites = "press", map[string]string{"size": "xl"}, []fleet.SiteName{plant}
			}, []string{"b"}},
		} {
			b.putFleet(func(p *fleets.FleetPut) { c.edit(&p.Spec) })
			var want []string
			for _, name := range c.want {
				want = append(want, name+" 1 waiting")
			}
			require.Equal(t, want, b.fleetTargets(int64(i+1)))
		}
	})

	t.Run("refuses to select nobody, and keeps nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.PutFleet(t.Context(), b.fleetPut())
		stores.Refused(t, fleet.Invalid, err)
		var e *fleet.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "/selector", e.Field)
		require.NotEmpty(t, e.Hint)
		b.noFleet()
		b.putFleet(unstarted) // that is only declared
		require.Empty(t, b.fleetOperations())
	})

	t.Run("pins the template's generation, and refuses one that there is not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		template := fleet.ObjectKey{Kind: fleet.KindTemplate, Name: "press"}
		of := func(generation int64) func(p *fleets.FleetPut) {
			return func(p *fleets.FleetPut) {
				unstarted(p)
				p.Spec.Change.Template, p.Spec.Change.TemplateGeneration = "press", generation
			}
		}
		for generation, field := range map[int64]string{0: "/change/template", 1: "/change/templateGeneration"} {
			_, err := b.PutFleet(t.Context(), b.fleetPut(of(generation)))
			stores.Refused(t, fleet.NotFound, err)
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, field, e.Field)
		}
		_, err := b.Declare(t.Context(), stores.WriteOf(template), b.TemplateOf(`{"t":1}`))
		require.NoError(t, err)
		require.Contains(t, string(b.putFleet(of(0)).After.Spec), `"templateGeneration": 1`)
		_, err = b.Declare(t.Context(), stores.WriteOf(template), b.TemplateOf(`{"t":2}`))
		require.NoError(t, err)
		require.False(t, b.putFleet(of(1)).Changed)
		require.Contains(t, string(b.putFleet(of(0)).After.Spec), `"templateGeneration": 2`)
	})

	t.Run("holds the patch against the collection, also for a run whose spec was replaced", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		gone := b.fleetPut()
		patch := stores.JSONOf(`{"never":"stored"}`)
		gone.Spec.Change.Patch = &patch
		_, err := b.PutFleet(t.Context(), gone)
		stores.Refused(t, fleet.Unavailable, err)
		b.putFleet()
		b.putFleet(unstarted, func(p *fleets.FleetPut) {
			_, err := b.PutBody(t.Context(), project, []byte(`{"patch":2}`))
			require.NoError(t, err)
			patch := stores.JSONOf(`{"patch":2}`)
			p.Spec.Change.Patch = &patch
		})
		b.Age("25 hours")
		b.Collect(fleet.CollectBodies)
		require.True(t, b.Stored(`{"patch":1}`))
		require.True(t, b.Stored(`{"patch":2}`))
	})
}

// X1, X7, X13
func TestPutFleetAgain(t *testing.T) {
	t.Parallel()

	t.Run("joins the run that is under way, and changes nothing once it ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		first := b.putFleet()
		again := b.putFleet()
		require.False(t, again.Changed)
		require.Equal(t, first.Operation.ID, again.Operation.ID)
		b.bringTargets(1, fleet.FleetTargetSucceeded)
		b.moveFleet(fleet.FleetFinish)
		again = b.putFleet()
		require.False(t, again.Changed)
		require.Nil(t, again.Operation)
		require.Equal(t, []string{"1 succeeded"}, b.fleetOperations())
	})

	t.Run("with another spec supersedes the run that is under way", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		first := b.putFleet(inWaves(50))
		b.turnFleet(fleet.FleetPause)
		second := b.putFleet(inWaves(100))
		require.Equal(t, fleet.OperationSuperseded, b.Operation(first.Operation.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(second.Operation.ID).State)
		require.Equal(t, fleet.FleetSuperseded, b.fleetRun(1).State)
		require.NotNil(t, b.fleetRun(1).EndedAt)
		require.Equal(t, []string{"i1 1 waiting", "i2 2 waiting"}, b.fleetTargets(1))
		require.Equal(t, []string{"i1 1 waiting", "i2 1 waiting"}, b.fleetTargets(2))
		require.EqualValues(t, 2, b.fleetRun(0).Generation)
		require.Equal(t, []string{"1 1 running", "1 1 paused paused", "1 1 superseded superseded", "2 1 running"}, b.fleetEvents())
	})

	t.Run("leaves one that ended in history", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		b.putFleet()
		b.moveFleet(fleet.FleetStop)
		b.putFleet(inWaves(50))
		require.Equal(t, fleet.FleetStopped, b.fleetRun(1).State)
		require.Equal(t, fleet.FleetRunning, b.fleetRun(2).State)
		runs, err := b.ListFleetRuns(t.Context(), bump, 0, 10)
		require.NoError(t, err)
		require.Len(t, runs, 2)
		require.EqualValues(t, 2, runs[0].Run)
		runs, err = b.ListFleetRuns(t.Context(), bump, 2, 10)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Equal(t, fleet.FleetCounts{Total: 2, Waiting: 2}, runs[0].Counts)
	})

	t.Run("starts what was only declared", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		require.Nil(t, b.putFleet(unstarted).Operation)
		require.NotNil(t, b.putFleet().Operation)
	})

	t.Run("under the same name after a delete has runs of its own", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		b.putFleet()
		b.moveFleet(fleet.FleetStop)
		_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(bumpKey))
		require.NoError(t, err)
		b.putFleet(unstarted)
		_, err = b.TurnFleet(t.Context(), fleetTurn(fleet.FleetResume))
		stores.Refused(t, fleet.IllegalState, err)
		require.NotNil(t, b.putFleet().Operation)
		require.EqualValues(t, 2, b.fleetRun(0).Run)
	})
}

// X13, X19, X23
func TestPutFleetRequests(t *testing.T) {
	t.Parallel()

	t.Run("a dry run leaves nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		out := b.putFleet(func(p *fleets.FleetPut) { p.DryRun = true })
		require.True(t, out.Changed)
		require.NotNil(t, out.Operation)
		b.noFleet()
	})

	t.Run("a key is answered with the first operation, and refused with another body", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(2)
		with := func(hash string) func(*fleets.FleetPut) {
			return func(p *fleets.FleetPut) { p.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte(hash)} }
		}
		first := b.putFleet(with("1"))
		b.bringTargets(1, fleet.FleetTargetSucceeded)
		b.moveFleet(fleet.FleetFinish)
		again := b.putFleet(with("1"))
		require.Equal(t, first.Operation.ID, again.Operation.ID)
		_, err := b.PutFleet(t.Context(), b.fleetPut(with("2"), inWaves(50)))
		stores.Refused(t, fleet.Conflict, err)
		require.Equal(t, []string{"1 succeeded"}, b.fleetOperations())
	})

	t.Run("If-Match and the project are checked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(1)
		v := b.putFleet(unstarted).After.ResourceVersion
		_, err := b.PutFleet(t.Context(), b.fleetPut(func(p *fleets.FleetPut) { p.IfMatch = v + 1 }))
		stores.Refused(t, fleet.Precondition, err)
		_, err = b.PutFleet(t.Context(), b.fleetPut(func(p *fleets.FleetPut) { p.Project = "else" }))
		stores.Refused(t, fleet.Conflict, err)
		b.putFleet(func(p *fleets.FleetPut) { p.IfMatch = v })
	})

	t.Run("two at once start one run after the other", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.selectable(3)
		for round := range 5 {
			puts := []fleets.FleetPut{b.fleetPut(inWaves(float64(10 + round))), b.fleetPut(inWaves(float64(50 + round)))}
			require.NoError(t, stores.AtOnce(2, func(i int) error {
				_, err := b.PutFleet(t.Context(), puts[i])
				return err
			}))
			require.Equal(t, 1, stores.Scan[int](b, `SELECT count(*) FROM fleet_runs WHERE state = 'running'`))
			require.Equal(t, 1, stores.Scan[int](b, `SELECT count(*) FROM operations WHERE kind = 'fleet' AND state = 'running'`))
		}
		same := b.fleetPut(inWaves(99))
		require.NoError(t, stores.AtOnce(4, func(int) error {
			_, err := b.PutFleet(t.Context(), same)
			return err
		}))
		require.Equal(t, 11, stores.Scan[int](b, `SELECT count(*) FROM fleet_runs`))
	})
}

// N98, N99: no statement for each of them.
func TestPutFleetOfMany(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10_000, 100_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			if n > 10_000 && testing.Short() {
				t.Skip("takes a while")
			}
			b := bare(t)
			b.selectableMany(n)
			ctx, cancel := stores.ContextWithDeadline(t)
			defer cancel()
			_, err := b.PutFleet(ctx, b.fleetPut(inWaves(1, 10, 100)))
			require.NoError(t, err)
			b.Exec(`ANALYZE fleet_targets`)
			seen := b.seeFleet()
			require.Equal(t, n/100, seen.Counts.Waiting)
			require.Equal(t, 3, seen.Waves)
			require.Len(t, seen.Sites, 1, "the first tenth are of the first site")
			page, err := b.FleetTargets(ctx, fleets.FleetPage{
				Fleet: bump, Run: 1, Wave: 1, Site: seen.Sites[0].Site, State: fleet.FleetTargetWaiting, Limit: fleet.MaxBatchItems,
			})
			require.NoError(t, err)
			require.Len(t, page, min(n/100, fleet.MaxBatchItems))
			require.Equal(t, n, b.fleetRun(0).Counts.Total)
			b.Exec(`UPDATE fleet_targets SET state = 'failed'`)
			b.moveFleet(fleet.FleetStop)
			_, err = b.TurnFleet(ctx, fleetTurn(fleet.FleetRetry))
			require.NoError(t, err)
			require.Equal(t, n/100, b.seeFleet().Counts.Waiting)
			require.NoError(t, ctx.Err())
		})
	}
}
