//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
)

// N38, N98, N99, N100, N103, N106, X7, X8
func (s *stack) fleetOperator(t *testing.T) {
	together(t, []part{
		{"every verb, by the command line", s.fleetByCLI},
		{"one item that cannot be composed leaves the others alone", s.fleetBadNumber},
		{"a window that closes in the middle of a site", s.fleetWindowCloses},
		{"a site that loses both its nodes", s.fleetActiveLost},
		{"an active that dies for good", s.fleetActiveMoves},
	})
}

// changed is what holdfast prints of one object that it changed.
type changed struct {
	Kind      string         `json:"kind"`
	Name      string         `json:"name"`
	Operation *api.Operation `json:"operation"`
}

// byCLI is a field that an operator steers by the command line.
type byCLI struct {
	*field
	cli
	site string
}

// fleetByCLI: the first command of the field does not start with version 2 until it is mended.
func (s *stack) fleetByCLI(t *testing.T) {
	const site = "plant-7"
	mended := filepath.Join(ground(t), "mended")
	f := declareField(t, s, "cli", 6, fieldOptions{running: 1, broken: mended}, site)
	requireSucceeded(t, s.ended(t, f.run(t, api.FleetPut{}).ID))
	c := byCLI{f, newCLI(t, s), site}
	t.Run("run, retry, resume and rollback", func(t *testing.T) { c.mends(t, mended) })
	t.Run("pause, resume and cancel", c.steers)
	var runs struct{ Items []api.FleetRun }
	c.json(t, &runs, cliOK, "fleet", "runs", f.name)
	require.Len(t, runs.Items, 4)
	require.Equal(t, fleet.FleetCancelled, runs.Items[0].State)
	require.Equal(t, runs.Items[2].Run, runs.Items[1].RollbackOf)
	c.call(t, cliConflict, "fleet", "cancel", f.name)
	c.call(t, cliMissing, "fleet", "run", "ghost")
	c.call(t, cliUsage, "fleet", "run", "Ghost")
	c.call(t, cliOK, "fleet", "run", f.name)
	f.good(t)
}

// counts waits until the newest run is in a state, and checks how its targets stand.
func (c byCLI) counts(t *testing.T, state fleet.FleetState, succeeded, failed, waiting int) {
	t.Helper()
	run := c.until(t, "is "+string(state), func(r api.FleetRun) bool { return r.State == state && r.Counts.Delivering == 0 })
	require.Equal(t, []int{succeeded, failed, waiting}, []int{run.Counts.Succeeded, run.Counts.Failed, run.Counts.Waiting}, "%+v", run)
}

func (c byCLI) mends(t *testing.T, mended string) {
	c.stage(t, api.FleetPut{BatchSize: 2})
	_, said := c.call(t, cliFailed, "fleet", "run", c.name)
	require.Contains(t, said, "error_threshold")
	require.Contains(t, said, "holdfast fleet targets cli --state failed")
	c.counts(t, fleet.FleetStopped, 1, 1, 4)
	var targets struct{ Items []api.FleetTarget }
	c.json(t, &targets, cliOK, "fleet", "targets", c.name, "--state", "failed")
	require.Len(t, targets.Items, 1)
	require.Equal(t, []string{c.keys[0].Name, "apply_failed"}, []string{targets.Items[0].Instance, targets.Items[0].Reason})
	touch(t, mended)
	var did changed
	c.json(t, &did, cliOK, "fleet", "retry", c.name)
	require.Equal(t, "retried", did.Operation.Reason, "the others wait for a resume")
	c.counts(t, fleet.FleetStopped, 2, 0, 4)
	did = changed{}
	c.json(t, &did, cliOK, "fleet", "resume", c.name)
	require.Equal(t, []string{"fleet", c.name}, []string{did.Kind, did.Name})
	require.Equal(t, fleet.OperationSucceeded, did.Operation.State)
	c.good(t)
	out, _ := c.call(t, cliOK, "fleet", "rollback", c.name, "--reason", "ticket 4711")
	require.Contains(t, out, "fleet cli succeeded: wave 1 of 1, 6 of 6 instances done")
	c.version--
	c.good(t)
}

// steers asks for each thing while a batch of two is under way.
func (c byCLI) steers(t *testing.T) {
	letGo := c.hold(t, c.holder(t, c.site), "before_fetch")
	c.stage(t, api.FleetPut{BatchSize: 2})
	c.call(t, cliOK, "fleet", "run", c.name, "--wait=false")
	c.underWay(t, c.site)
	var did changed
	c.json(t, &did, cliOK, "fleet", "pause", c.name)
	require.Equal(t, fleet.OperationRunning, did.Operation.State, "it does not wait for a run that rests")
	letGo()
	c.counts(t, fleet.FleetPaused, 2, 0, 4)
	_, said := c.call(t, cliConflict, "fleet", "pause", c.name)
	require.Contains(t, said, "a fleet change that is paused cannot be paused")

	letGo = c.hold(t, c.holder(t, c.site), "before_fetch")
	c.call(t, cliOK, "fleet", "resume", c.name, "--wait=false")
	c.underWay(t, c.site)
	together(t, []part{
		{"cancel waits for the batch, and is content", func(t *testing.T) {
			out, _ := c.call(t, cliOK, "fleet", "cancel", c.name)
			require.Contains(t, out, "fleet cli cancelled")
		}},
		{"the batch goes on", func(t *testing.T) {
			waitFor(t, "the cancel is persisted", func(ctx context.Context) error {
				n, err := c.count(ctx, `SELECT count(*) FROM fleet_runs WHERE fleet = $1 AND cancel_requested`, c.name)
				if err == nil && n == 0 {
					err = errNotYet
				}
				return err
			})
			letGo()
		}},
	})
	c.counts(t, fleet.FleetCancelled, 4, 0, 2)
	for i, key := range c.keys {
		if i < 4 {
			c.holds(t, key, c.version)
		} else {
			c.holds(t, key, c.version-1)
		}
	}
}

// fleetBadNumber: every door refuses a number that no double holds, so one that an instance
// has all the same can only have been written by something else.
func (s *stack) fleetBadNumber(t *testing.T) {
	const site, number = "plant-8", "1e400"
	f := newField(t, s, "number", 6, fieldOptions{template: true, running: 1}, site)
	status, problem := s.send(t, "PUT", "/api/v1/templates/"+f.name, s.doc.Token, []byte(`{"base":{"n":`+number+`}}`))
	require.Equal(t, []any{400, "/base/n"}, []any{status, problem.Field}, "%+v", problem)
	bad := f.keys[3]
	s.override(t, bad, fmt.Appendf(nil, `{"instance":%q,"n":%s}`, bad.Name, number))
	ended := s.ended(t, f.run(t, api.FleetPut{ErrorThreshold: 20}).ID)
	requireSucceeded(t, ended)
	require.Equal(t, "with_failures", ended.Reason)
	for key, target := range f.targets(t) {
		if key == bad {
			require.Equal(t, fleet.FleetTargetFailed, target.State, "%+v", target)
			require.Equal(t, string(fleet.Invalid), target.Reason)
			require.Contains(t, target.Message, "/overrides/n")
			require.Contains(t, target.Message, "the number is beyond the range of a double")
			require.NotContains(t, target.Message, number)
			f.holds(t, key, f.version-1)
			continue
		}
		require.Equal(t, fleet.FleetTargetSucceeded, target.State, "%+v", target)
		f.holds(t, key, f.version)
	}
	batches, err := s.count(t.Context(), `SELECT count(*) FROM batches WHERE fleet = $1 AND fleet_run = $2`, f.name, f.newest(t).Run)
	require.NoError(t, err)
	require.EqualValues(t, 1, batches, "all of them were in one")

	s.override(t, bad, fmt.Appendf(nil, `{"instance":%q}`, bad.Name))
	again := f.turn(t, "retry")
	require.NotNil(t, again)
	requireSucceeded(t, s.ended(t, again.ID))
	f.good(t)
}

// override gives an instance other overrides behind the region's back.
func (s *stack) override(t *testing.T, key fleet.ObjectKey, text []byte) {
	t.Helper()
	store, err := store.Open(t.Context(), s.database, regionName)
	require.NoError(t, err)
	defer store.Close()
	hash, err := store.PutBody(t.Context(), "default", text)
	require.NoError(t, err)
	content := fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(text))}
	_, err = s.pg.Exec(t.Context(), `UPDATE objects SET spec = jsonb_set(spec, '{overrides}', $3::jsonb) WHERE kind = 'instance' AND scope = $1 AND name = $2`,
		key.Scope, key.Name, jsonText(t, content))
	require.NoError(t, err)
}

// fleetWindowCloses has no patience for a window that closes by itself: while the first batch
// is under way, the run is given the windows that it would be in a moment later.
func (s *stack) fleetWindowCloses(t *testing.T) {
	const site = "plant-9"
	f := newField(t, s, "closes", 6, fieldOptions{running: 2}, site)
	_, open := opening(-time.Minute)
	letGo := s.hold(t, s.holder(t, site), "before_fetch")
	op := f.run(t, api.FleetPut{BatchSize: 2, Windows: []fleet.Window{open}})
	f.underWay(t, site)
	opens, next := opening(toStage)
	_, err := s.pg.Exec(t.Context(), `UPDATE fleet_runs SET spec = jsonb_set(spec, '{windows}', $2::jsonb) WHERE fleet = $1 AND state = 'running'`,
		f.name, jsonText(t, []fleet.Window{next}))
	require.NoError(t, err)
	letGo()
	run := f.until(t, "has fetched the rest", func(r api.FleetRun) bool { return r.Counts.Staged == 4 })
	require.Equal(t, []int{2, 0, 0}, []int{run.Counts.Succeeded, run.Counts.Waiting, run.Counts.Delivering}, "%+v", run)
	for i, key := range f.keys {
		if i >= 2 {
			f.holdsOld(t, key)
		}
	}
	seen, err := s.api.Operation(t.Context(), op.ID, 0)
	require.NoError(t, err)
	require.Contains(t, seen.Message, "which opens at "+opens.UTC().Format(time.RFC3339))
	require.Less(t, time.Now(), opens, "all of that was before the window opened")
	requireSucceeded(t, s.ended(t, op.ID))
	require.GreaterOrEqual(t, time.Now(), opens)
	require.Equal(t, 6, f.newest(t).Counts.Succeeded)
	f.good(t)
}

// fleetActiveLost: a change goes on by its rules past a site that has lost both its nodes, and
// what failed is brought by the one that comes back, which was the standby.
func (s *stack) fleetActiveLost(t *testing.T) {
	const site, last = "plant-10", "plant-11"
	f := newField(t, s, "lost", 4, fieldOptions{durability: fleet.DurabilityAsync}, site, last)
	waves := wavePerSite(site, last)
	old := s.holder(t, site)
	next := peerOf(site, old)
	s.order(t, "stop", next) // nobody takes its place
	dead := s.arm(t, old, "before_switch")
	began := time.Now()
	op := f.run(t, api.FleetPut{Waves: waves, BatchSize: 2, ErrorThreshold: 0})
	s.gone(t, old, dead)
	ended := s.ended(t, op.ID)
	t.Logf("ended after %v: %+v", time.Since(began), ended)
	require.Equal(t, fleet.OperationFailed, ended.State, "%+v", ended)
	require.Equal(t, "error_threshold", ended.Reason)
	require.Contains(t, ended.Message, "wave 1 of 2")
	failed := 0
	for key, target := range f.targets(t) {
		if target.State == fleet.FleetTargetFailed {
			failed++
			require.Equal(t, site, key.Scope)
			require.NotEmpty(t, target.Reason)
			require.Contains(t, target.Message, old)
		}
	}
	require.Equal(t, 2, failed, "the batch that it died with was the last")

	began = time.Now()
	op = f.putFleet(t, f.again(api.FleetPut{Waves: waves, BatchSize: 2, ErrorThreshold: 100}))
	ended = s.ended(t, op.ID)
	t.Logf("ended after %v: %+v", time.Since(began), ended)
	requireSucceeded(t, ended)
	require.Equal(t, "with_failures", ended.Reason)
	for key, target := range f.targets(t) {
		if key.Scope == last {
			require.Equal(t, fleet.FleetTargetSucceeded, target.State, "%+v", target)
			f.holds(t, key, f.version)
			continue
		}
		require.Equal(t, fleet.FleetTargetFailed, target.State, "%+v", target)
		require.NotEmpty(t, target.Reason)
		require.Contains(t, target.Message, old)
	}

	s.order(t, "start", next)
	waitFor(t, next+" holds the lease", func(ctx context.Context) error {
		if now, err := s.holds(ctx, site); err != nil || now != next {
			return errors.Join(errNotYet, err)
		}
		return nil
	})
	again := f.turn(t, "retry")
	require.NotNil(t, again)
	requireSucceeded(t, s.ended(t, again.ID))
	require.Zero(t, f.newest(t).Counts.Failed)
	for _, key := range f.keys[:4] {
		got, err := s.stores.current(t.Context(), next, key.Name)
		require.NoError(t, err)
		require.Equal(t, hashOf(f.config(key, f.version)), got.hash, "%s holds %s", next, key)
	}
	s.order(t, "start", old) // as the standby that it is now
	for _, key := range f.keys {
		s.held(t, key, hashOf(f.config(key, f.version)))
	}
}

// fleetActiveMoves: what the dead active was told, the node that takes its place brings (N60).
func (s *stack) fleetActiveMoves(t *testing.T) {
	const site = "plant-12"
	f := newField(t, s, "moves", 4, fieldOptions{running: 1, durability: fleet.DurabilityAsync}, site)
	old := s.holder(t, site)
	next := peerOf(site, old)
	dead := s.arm(t, old, "before_switch")
	op := f.run(t, api.FleetPut{BatchSize: 2, ErrorThreshold: 0})
	s.gone(t, old, dead)
	requireSucceeded(t, s.ended(t, op.ID))
	require.Equal(t, next, s.holder(t, site))
	for _, key := range f.keys {
		got, err := s.stores.current(t.Context(), next, key.Name)
		require.NoError(t, err)
		require.Equal(t, hashOf(f.config(key, f.version)), got.hash, "%s holds %s", next, key)
	}
	for key, target := range f.targets(t) {
		require.Equal(t, fleet.FleetTargetSucceeded, target.State, "%s: %+v", key.Name, target)
	}
	s.order(t, "start", old) // as the standby that it is now
	f.good(t)
}

// gone has a node that died stay away.
func (s *stack) gone(t *testing.T, node string, fired func() bool) {
	t.Helper()
	waitFor(t, "it was killed", func(context.Context) error {
		if fired() {
			return nil
		}
		return errNotYet
	})
	s.order(t, "stop", node)
}
