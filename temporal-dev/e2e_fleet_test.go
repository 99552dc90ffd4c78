//go:build slow

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workflows"
)

// wavePerSite has the sites changed one after the other.
func wavePerSite(sites ...string) []fleet.FleetWave {
	var waves []fleet.FleetWave
	for _, site := range sites {
		waves = append(waves, fleet.FleetWave{Sites: []fleet.SiteName{fleet.SiteName(site)}})
	}
	return waves
}

// N98, N99, N100, X6, X9, X20, X23, X27
func (s *stack) fleetChanges(t *testing.T) {
	together(t, []part{
		{"in waves", func(t *testing.T) {
			t.Run("delivers a generation of a template to 60 instances", s.fleetDelivers)
			t.Run("stops where it fails, and resume goes on to the end", s.fleetResumes)
			t.Run("is rolled back to the very bytes, but for what others wrote", s.fleetRollsBack)
			t.Run("stops when a command that it started ends after a second", s.fleetExits)
		}},
		{"steered", func(t *testing.T) {
			s.fleetSteered(t)
			t.Run("is run by any Temporal client", s.fleetDoors)
			t.Run("leaves out what cannot be changed", s.fleetBadItems)
		}},
		{"switches when its window opens, without a download", s.fleetWindow},
		{"that is put again without windows switches without a download", s.fleetWindowLifted},
		{"waits for no standby", s.fleetStandbyOff},
	})
}

func (s *stack) fleetDelivers(t *testing.T) {
	sites := []string{"plant-1", "plant-2", "plant-3"}
	f := newField(t, s, "sixty", 20, fieldOptions{template: true, running: 1}, sites...)
	before := f.newest(t).Run
	op := s.ended(t, f.run(t, api.FleetPut{Waves: wavePerSite(sites...), BatchSize: 10}).ID)
	requireSucceeded(t, op)
	run := f.newest(t)
	require.Equal(t, before+1, run.Run)
	require.Equal(t, fleet.FleetSucceeded, run.State)
	require.Equal(t, 60, run.Counts.Succeeded)
	require.Equal(t, []int{3, 3}, []int{run.Wave, run.Waves})
	f.good(t)
	batches, err := s.count(t.Context(), `SELECT count(*) FROM batches WHERE fleet = $1 AND fleet_run = $2`, f.name, run.Run)
	require.NoError(t, err)
	require.EqualValues(t, 6, batches)
	told := map[string]int{}
	for _, b := range f.told(t, run.Run) {
		told[b.queue]++
		require.Equal(t, 10, b.out.Applied)
	}
	want := map[string]int{}
	for _, site := range sites {
		for _, node := range pair(site) {
			want["node."+node] = 2
		}
	}
	require.Equal(t, want, told, "one activity per node and batch")
}

// toldBatch is what one node was asked, and its answer.
type toldBatch struct {
	mode  decide.SiteMode
	queue string
	out   fleet.BatchOutcome
}

// told reads from the histories what nodes were told in a run. Nothing of the field was ever delivered alone; a
// comparison that came in the middle may have woken an instance, which found nothing to do.
func (f *field) told(t *testing.T, run int64) []toldBatch {
	t.Helper()
	alone, err := f.count(t.Context(), `SELECT count(*) FROM deliveries WHERE starts_with(name, $1) AND batch_id = ''`, f.name+"-")
	require.NoError(t, err)
	require.Zero(t, alone, "deliveries outside of a batch")
	var all []toldBatch
	for _, r := range f.histories(t) {
		if !strings.HasPrefix(r.id, fmt.Sprintf("fleet.%s.%d.", f.name, run)) {
			continue
		}
		var in workflows.FleetSiteInput
		queues := map[int64]string{}
		for _, e := range r.events {
			if started := e.GetWorkflowExecutionStartedEventAttributes(); started != nil {
				require.NoError(t, json.Unmarshal(started.GetInput().GetPayloads()[0].GetData(), &in))
			}
			if scheduled := e.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
				require.Equal(t, "RefreshBatch", scheduled.GetActivityType().GetName())
				queues[e.GetEventId()] = scheduled.GetTaskQueue().GetName()
			}
			if done := e.GetActivityTaskCompletedEventAttributes(); done != nil {
				b := toldBatch{mode: in.Mode, queue: queues[done.GetScheduledEventId()]}
				require.NoError(t, json.Unmarshal(done.GetResult().GetPayloads()[0].GetData(), &b.out))
				all = append(all, b)
			}
		}
	}
	require.NotEmpty(t, all)
	return all
}

// breakThird runs a change whose third wave cannot start, and gives its operation.
func (f *field) breakThird(t *testing.T) {
	t.Helper()
	sites := []string{"plant-1", "plant-2", "plant-3", "plant-4"}
	op := f.ended(t, f.run(t, api.FleetPut{Waves: wavePerSite(sites...)}).ID)
	require.Equal(t, fleet.OperationFailed, op.State, "%+v", op)
	require.Equal(t, "error_threshold", op.Reason)
	require.Contains(t, op.Message, "wave 3 of 4")
	require.Contains(t, op.Message, "holdfast fleet resume|retry|rollback "+f.name)
	require.Equal(t, fleet.FleetStopped, f.newest(t).State)
	targets := f.targets(t)
	for _, key := range f.keys {
		target, runs := targets[key], f.witnesses[key] != nil
		switch {
		case key.Scope < "plant-3":
			require.Equal(t, fleet.FleetTargetSucceeded, target.State, "%+v", target)
			f.holds(t, key, f.version)
		case key.Scope == "plant-3" && runs:
			require.Equal(t, fleet.FleetTargetFailed, target.State, "%+v", target)
			require.Equal(t, "apply_failed", target.Reason)
			require.NotEmpty(t, target.Message)
			f.witnesses[key].runs(t, hashOf(f.config(key, f.version-1)))
		case key.Scope == "plant-4":
			require.Equal(t, fleet.FleetTargetWaiting, target.State, "%+v", target)
			f.holds(t, key, f.version-1)
		}
	}
}

// breakable is a field over four sites, of which the commands of the third do not start with
// version 2 until the file is there.
func breakable(t *testing.T, s *stack, name string) (*field, string) {
	t.Helper()
	mended := filepath.Join(ground(t), "mended")
	f := declareField(t, s, name, 2, fieldOptions{}, "plant-1", "plant-2", "plant-4")
	third := declareField(t, s, name, 3, fieldOptions{running: 2, broken: mended}, "plant-3")
	f.keys = append(f.keys, third.keys...)
	f.witnesses = third.witnesses
	requireSucceeded(t, s.ended(t, f.run(t, api.FleetPut{}).ID))
	f.good(t)
	return f, mended
}

func (s *stack) fleetResumes(t *testing.T) {
	f, mended := breakable(t, s, "mended")
	f.breakThird(t)
	touch(t, mended)
	op := f.turn(t, "resume")
	require.NotNil(t, op)
	requireSucceeded(t, s.ended(t, op.ID))
	require.Equal(t, fleet.FleetSucceeded, f.newest(t).State)
	f.good(t)
	for key, w := range f.witnesses {
		require.Len(t, w.starts(t), 2+1, "%s: version 1, version 1 again after the one that failed, version 2", key)
	}
}

func (s *stack) fleetRollsBack(t *testing.T) {
	f, _ := breakable(t, s, "back")
	f.breakThird(t)
	theirs := f.keys[0]
	config := []byte(`{"mine":true}`)
	requireSucceeded(t, s.ended(t, s.put(t, theirs, api.InstancePut{Config: config, Labels: map[string]string{"field": f.name}}).ID))
	op := f.turn(t, "rollback")
	require.NotNil(t, op)
	requireSucceeded(t, s.ended(t, op.ID))
	run := f.newest(t)
	require.NotZero(t, run.RollbackOf)
	require.Zero(t, run.Counts.Failed, "%+v", run)
	targets := f.targets(t)
	require.Equal(t, fleet.FleetTargetSuperseded, targets[theirs].State, "%+v", targets[theirs])
	s.held(t, theirs, hashOf(config))
	f.version--
	for _, key := range f.keys[1:] {
		f.holds(t, key, f.version)
	}
}

// fleetExits: a command that starts is not yet one that runs (N99).
func (s *stack) fleetExits(t *testing.T) {
	f := newField(t, s, "exits", 2, fieldOptions{running: 1, exits: true}, "plant-2", "plant-3")
	op := s.ended(t, f.run(t, api.FleetPut{
		Waves: wavePerSite("plant-2", "plant-3"), MinRunSeconds: new(int64(fleet.DefaultFleetMinRun / time.Second)),
	}).ID)
	require.Equal(t, "error_threshold", op.Reason, "%+v", op)
	require.Contains(t, op.Message, "wave 1 of 2")
	targets := f.targets(t)
	for _, key := range f.keys {
		target, runs := targets[key], f.witnesses[key] != nil
		switch {
		case key.Scope == "plant-3":
			f.holds(t, key, f.version-1)
		case runs:
			require.Equal(t, []string{string(fleet.FleetTargetFailed), fleet.FleetExited}, []string{string(target.State), target.Reason})
			require.Contains(t, target.Message, "3")
		default:
			require.Equal(t, fleet.FleetTargetSucceeded, target.State, "%+v", target)
		}
	}
}

func (s *stack) fleetSteered(t *testing.T) {
	const site = "plant-5"
	f := newField(t, s, "steered", 8, fieldOptions{}, site)
	// inFlight has the first of four batches under way when something is asked.
	inFlight := func(t *testing.T, verb string) api.Operation {
		letGo := s.hold(t, s.holder(t, site), "before_fetch")
		op := f.run(t, api.FleetPut{BatchSize: 2})
		f.underWay(t, site)
		f.turn(t, verb)
		letGo()
		return op
	}
	t.Run("is paused after the batch that is under way, and goes on", func(t *testing.T) {
		op := inFlight(t, "pause")
		run := f.until(t, "rests", func(r api.FleetRun) bool { return r.State == fleet.FleetPaused && r.Counts.Delivering == 0 })
		require.Equal(t, []int{2, 6}, []int{run.Counts.Succeeded, run.Counts.Waiting}, "%+v", run)
		f.turn(t, "resume")
		requireSucceeded(t, s.ended(t, op.ID))
		f.good(t)
	})
	t.Run("is cancelled after the batch that is under way, and leaves what it changed", func(t *testing.T) {
		op := s.ended(t, inFlight(t, "cancel").ID)
		require.Equal(t, fleet.OperationCancelled, op.State, "%+v", op)
		run := f.newest(t)
		require.Equal(t, fleet.FleetCancelled, run.State)
		require.Equal(t, []int{2, 6}, []int{run.Counts.Succeeded, run.Counts.Waiting}, "%+v", run)
		for i, key := range f.keys {
			version := f.version
			if i >= 2 {
				version--
			}
			f.holds(t, key, version)
		}
	})
	t.Run("takes over from one that is under way", func(t *testing.T) {
		letGo := s.hold(t, s.holder(t, site), "before_fetch")
		first := f.run(t, api.FleetPut{BatchSize: 2})
		f.underWay(t, site)
		second := f.run(t, api.FleetPut{BatchSize: 3})
		letGo()
		require.Equal(t, fleet.OperationSuperseded, s.ended(t, first.ID).State)
		requireSucceeded(t, s.ended(t, second.ID))
		f.good(t)
	})
}

func (s *stack) fleetDoors(t *testing.T) {
	f := newField(t, s, "doors", 3, fieldOptions{}, "plant-5")
	runs := f.newest(t).Run
	input := `{"fleet":"` + f.name + `"}`
	f.stage(t, api.FleetPut{BatchSize: 1})
	first := s.door(t, "any-"+rand.Text(), "DeployFleet", input, 0)
	second := s.door(t, "any-"+rand.Text(), "DeployFleet", input, 0)
	require.Equal(t, fleet.OperationSucceeded, s.result(t, first).State)
	require.Equal(t, fleet.OperationSucceeded, s.result(t, second).State)
	f.good(t)
	require.LessOrEqual(t, f.newest(t).Run, runs+2, "at most one run for each")

	f.stage(t, api.FleetPut{BatchSize: 1})
	require.Equal(t, fleet.OperationSucceeded, s.result(t, s.door(t, "c-"+f.name, "DeployFleet", input, 0)).State)
	f.until(t, "succeeds", func(r api.FleetRun) bool { return r.State == fleet.FleetSucceeded })
	f.good(t)
}

func (s *stack) fleetBadItems(t *testing.T) {
	const site = "plant-5"
	f := newField(t, s, "bad", 6, fieldOptions{}, site)
	bytes := "no JSON at all"
	artifact, err := s.api.UploadArtifact(t.Context(), api.Upload{Body: strings.NewReader(bytes), Size: int64(len(bytes))})
	require.NoError(t, err)
	labels := map[string]string{"field": f.name}
	requireSucceeded(t, s.ended(t, s.put(t, f.keys[5], api.InstancePut{Artifact: artifact.SHA256, Labels: labels}).ID))
	letGo := s.hold(t, s.holder(t, site), "before_fetch")
	op := f.run(t, api.FleetPut{BatchSize: 2, ErrorThreshold: 50})
	f.underWay(t, site)
	config := []byte(`{"mine":true}`)
	theirs := s.put(t, f.keys[0], api.InstancePut{Config: config, Labels: labels})
	gone := s.change(t, "delete", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return s.api.Delete(ctx, f.keys[2], m)
	})
	waitFor(t, "their own config takes over", func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM deliveries d JOIN batches b ON b.id = d.batch_id
			WHERE b.fleet = $1 AND d.name = $2 AND d.state = 'open'`, f.name, f.keys[0].Name)
		if err == nil && n > 0 {
			err = errNotYet
		}
		return err
	})
	letGo()
	for _, id := range []string{op.ID, theirs.ID, gone.ID} {
		requireSucceeded(t, s.ended(t, id))
	}
	targets := f.targets(t)
	for i, want := range []fleet.FleetTargetState{
		fleet.FleetTargetSuperseded, fleet.FleetTargetSucceeded, fleet.FleetTargetFailed,
		fleet.FleetTargetSucceeded, fleet.FleetTargetSucceeded, fleet.FleetTargetFailed,
	} {
		target := targets[f.keys[i]]
		require.Equal(t, want, target.State, "%+v", target)
		if want == fleet.FleetTargetFailed {
			require.NotEmpty(t, target.Reason)
			require.NotEmpty(t, target.Message)
		}
		if want == fleet.FleetTargetSucceeded {
			f.holds(t, f.keys[i], f.version)
		}
	}
	s.held(t, f.keys[0], hashOf(config))
	for _, node := range pair(site) {
		s.tombstone(t, node, f.keys[2].Name, 2)
	}
	s.held(t, f.keys[5], string(artifact.SHA256))
}

// staged checks that both nodes have the newest bodies in their stores, and that nothing has
// switched to them.
func (f *field) staged(t *testing.T) {
	t.Helper()
	f.until(t, "is staged", func(r api.FleetRun) bool { return r.Counts.Staged == len(f.keys) })
	for _, key := range f.keys {
		for _, node := range pair(key.Scope) {
			db, err := f.stores.of(node)
			require.NoError(t, err)
			var there int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM contents WHERE hash = ? AND complete`,
				hashOf(f.config(key, f.version))).Scan(&there))
			require.Equal(t, 1, there, "%s has the body of %s", node, key)
		}
		f.holdsOld(t, key)
	}
}

func (f *field) holdsOld(t *testing.T, key fleet.ObjectKey) {
	t.Helper()
	old := hashOf(f.config(key, f.version-1))
	for _, node := range pair(key.Scope) {
		got, err := f.stores.current(t.Context(), node, key.Name)
		require.NoError(t, err)
		require.Equal(t, old, got.hash, "%s has not switched", node)
	}
	f.activeFile(t, key, "config.json", old)
	if w := f.witnesses[key]; w != nil {
		w.runs(t, old)
		require.Len(t, w.starts(t), f.version-1)
	}
}

// requireFetched checks what the nodes downloaded in one mode of a run.
func (f *field) requireFetched(t *testing.T, run int64, mode decide.SiteMode, some bool) {
	t.Helper()
	seen := 0
	for _, b := range f.told(t, run) {
		if b.mode == mode {
			seen++
			require.Equal(t, some, b.out.Fetched > 0, "%+v", b)
		}
	}
	require.Equal(t, 2, seen, "both nodes were told once")
}

func (s *stack) fleetWindow(t *testing.T) {
	f := newField(t, s, "window", 6, fieldOptions{running: 2}, "plant-1")
	opens, window := opening(toStage)
	op := f.run(t, api.FleetPut{Windows: []fleet.Window{window}})
	f.staged(t)
	require.Less(t, time.Now(), opens, "it was staged before the window opened")
	requireSucceeded(t, s.ended(t, op.ID))
	require.GreaterOrEqual(t, time.Now(), opens)
	f.good(t)
	f.requireFetched(t, f.newest(t).Run, decide.SiteStage, true)
	f.requireFetched(t, f.newest(t).Run, decide.SiteSwitch, false)
}

func (s *stack) fleetWindowLifted(t *testing.T) {
	f := newField(t, s, "lifted", 6, fieldOptions{running: 2}, "plant-2")
	_, window := opening(6 * time.Hour)
	first := f.run(t, api.FleetPut{Windows: []fleet.Window{window}})
	f.staged(t)
	op := f.putFleet(t, f.again(api.FleetPut{}))
	require.Equal(t, fleet.OperationSuperseded, s.ended(t, first.ID).State)
	requireSucceeded(t, s.ended(t, op.ID))
	f.good(t)
	f.requireFetched(t, f.newest(t).Run, decide.SiteDeliver, false)
}

// fleetStandbyOff changes what needs a standby and what does not, while there is none.
func (s *stack) fleetStandbyOff(t *testing.T) {
	const site = "plant-6"
	sync := newField(t, s, "sync", 3, fieldOptions{running: 1}, "plant-4", site)
	async := newField(t, s, "async", 6, fieldOptions{running: 1, durability: fleet.DurabilityAsync}, site)
	away := s.standby(t, site)
	s.order(t, "stop", away)
	asked := sync.run(t, api.FleetPut{Waves: wavePerSite("plant-4", site), ErrorThreshold: 100})
	requireSucceeded(t, s.ended(t, async.run(t, api.FleetPut{}).ID))
	op := s.ended(t, asked.ID)
	require.Equal(t, "with_failures", op.Reason, "%+v", op)
	for key, target := range sync.targets(t) {
		want := fleet.FleetTargetSucceeded
		if key.Scope == site {
			want = fleet.FleetTargetFailed
			require.Equal(t, "not_replicated", target.Reason)
		}
		require.Equal(t, want, target.State, "%+v", target)
	}
	s.order(t, "start", away)
	before := sync.targets(t)
	again := sync.turn(t, "retry")
	require.NotNil(t, again)
	requireSucceeded(t, s.ended(t, again.ID))
	require.Zero(t, sync.newest(t).Counts.Failed)
	for key, target := range sync.targets(t) {
		if key.Scope != site {
			require.Equal(t, before[key], target, "it did not fail, and was not tried again")
		}
	}
	sync.good(t)
	async.good(t)
	s.pairEqual(t, site)
}
