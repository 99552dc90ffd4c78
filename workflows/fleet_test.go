package workflows_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// toyTarget is one instance of a toy fleet.
type toyTarget struct {
	site  fleet.SiteName
	wave  int
	state fleet.FleetTargetState
}

// toyFleet is a store of one fleet change: sites s-1 to s-3 with two instances each, each
// site a wave of its own.
type toyFleet struct {
	mu      sync.Mutex
	now     func() time.Time
	seen    fleet.FleetSeen
	targets []*toyTarget
	batches map[fleet.BatchID][]*toyTarget
	moves   []fleet.FleetMove
	misses  []fleet.BatchMiss
	modes   []decide.SiteMode
	told    map[fleet.BatchID]int // how often the active was told
	bad     map[fleet.SiteName]bool
	opens   time.Time                          // of every site's window; zero is always open
	shut    func(in activities.NextBatch) bool // what a batch finds; nil is as the look does
	broken  bool
	// onTell is called when a node is told, with the lock.
	onTell func(f *toyFleet, site fleet.SiteName)
}

func newToyFleet() *toyFleet {
	f := &toyFleet{
		batches: map[fleet.BatchID][]*toyTarget{}, told: map[fleet.BatchID]int{}, bad: map[fleet.SiteName]bool{},
		seen: fleet.FleetSeen{
			Run: 1, State: fleet.FleetRunning, Wave: 1, Waves: 3, Until: 3, SuccessThreshold: 100, SitesAtOnce: 2, BatchSize: 1, Asked: 1,
		},
	}
	for wave, site := range []fleet.SiteName{"s-1", "s-2", "s-3"} {
		for range 2 {
			f.targets = append(f.targets, &toyTarget{site, wave + 1, fleet.FleetTargetWaiting})
		}
	}
	return f
}

func (f *toyFleet) count(state fleet.FleetTargetState) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, t := range f.targets {
		if t.state == state {
			n++
		}
	}
	return n
}

func (f *toyFleet) SeeFleet(context.Context, fleet.FleetVisit) (fleet.FleetSeen, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.seen
	s.At, s.Counts = f.now(), fleet.FleetCounts{}
	if s.Deadline.IsZero() {
		f.seen.Deadline = s.At.Add(time.Hour)
		s.Deadline = f.seen.Deadline
	}
	for _, t := range f.targets {
		if t.wave == s.Wave {
			f.add(&s, t)
		}
	}
	return s, nil
}

func (f *toyFleet) add(s *fleet.FleetSeen, t *toyTarget) {
	site := fleet.FleetSiteSeen{Site: t.site, Closed: s.At.Before(f.opens), Opens: f.opens}
	s.Counts.Total++
	switch t.state {
	case fleet.FleetTargetWaiting:
		s.Counts.Waiting++
		site.Waiting = 1
	case fleet.FleetTargetStaged:
		s.Counts.Staged++
		site.Staged = 1
	case fleet.FleetTargetDelivering:
		s.Counts.Delivering++
	case fleet.FleetTargetFailed:
		s.Counts.Failed++
	case fleet.FleetTargetSucceeded, fleet.FleetTargetUnchanged, fleet.FleetTargetSuperseded:
		s.Counts.Succeeded++
	}
	for i, known := range s.Sites {
		if known.Site == site.Site {
			s.Sites[i].Waiting += site.Waiting
			s.Sites[i].Staged += site.Staged
			return
		}
	}
	if site.Waiting+site.Staged > 0 {
		s.Sites = append(s.Sites, site)
	}
}

func (f *toyFleet) MoveFleet(_ context.Context, m fleet.FleetMove) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moves = append(f.moves, m)
	if m.On == "" {
		f.seen.Wave++
		return nil
	}
	var err error
	f.seen.State, err = f.seen.State.Next(m.On)
	return err
}

func (f *toyFleet) Next(_ context.Context, in activities.NextBatch, _ []byte) (activities.BatchMade, *fleet.BatchNotify, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return activities.BatchMade{}, nil, fleet.Errorf(fleet.Invalid, "nonsense")
	}
	want := fleet.FleetTargetWaiting
	if in.Mode == decide.SiteSwitch {
		want = fleet.FleetTargetStaged
	}
	if f.seen.State != fleet.FleetRunning || f.seen.Cancel {
		return activities.BatchMade{}, nil, nil
	}
	if in.Mode != decide.SiteStage && (f.now().Before(f.opens) || f.shut != nil && f.shut(in)) {
		return activities.BatchMade{Closed: true}, nil, nil
	}
	for _, t := range f.targets {
		if t.site == in.Site && t.wave == in.Wave && t.state == want {
			t.state = fleet.FleetTargetDelivering
			f.batches[in.ID()] = []*toyTarget{t}
			f.modes = append(f.modes, in.Mode)
			return activities.BatchMade{Looked: 1, Claimed: 1, Nodes: []fleet.NodeName{"a", "b"}}, nil, nil
		}
	}
	return activities.BatchMade{}, nil, nil
}

func (f *toyFleet) PrepareBatch(_ context.Context, in fleet.BatchPrepare) (*fleet.BatchNotify, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bad[f.batches[in.ID][0].site] && in.Node == "b" {
		return nil, nil // the active did not apply it
	}
	if in.Node == "a" {
		if f.told[in.ID]++; f.told[in.ID] > in.Tries {
			return nil, nil
		}
	}
	return &fleet.BatchNotify{Command: fleet.BatchCommand{BatchID: in.ID, Site: f.batches[in.ID][0].site, Count: 1, Stage: f.modes[len(f.modes)-1] == decide.SiteStage}}, nil
}

func (f *toyFleet) MissBatch(_ context.Context, in fleet.BatchMiss) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.misses = append(f.misses, in)
	return nil
}

func (f *toyFleet) EndBatch(_ context.Context, id fleet.BatchID) (fleet.BatchEnded, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.batches[id][0]
	switch {
	case f.bad[t.site]:
		t.state = fleet.FleetTargetFailed
		return fleet.BatchEnded{Failed: 1}, nil
	case f.modes[len(f.modes)-1] == decide.SiteStage:
		t.state = fleet.FleetTargetStaged
		return fleet.BatchEnded{Staged: 1}, nil
	}
	t.state = fleet.FleetTargetSucceeded
	return fleet.BatchEnded{Succeeded: 1}, nil
}

// RefreshBatch is what the nodes do.
func (f *toyFleet) RefreshBatch(_ context.Context, cmd fleet.BatchCommand) (fleet.BatchOutcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.onTell != nil {
		f.onTell(f, cmd.Site)
	}
	if f.bad[cmd.Site] {
		return fleet.BatchOutcome{Failed: 1}, nil
	}
	return fleet.BatchOutcome{Applied: 1}, nil
}

func fleetEnv(t *testing.T, f *toyFleet) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	env := emptyEnv()
	f.now = env.Now
	for name, w := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(w, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Fleets{Store: f, Doors: silent{}, Log: slog.New(slog.DiscardHandler)})
	env.RegisterActivity(&activities.Batches{Maker: f, Store: f, Tokens: silent{}, Signer: silent{}, Doors: silent{}})
	env.RegisterActivityWithOptions(f.RefreshBatch, activity.RegisterOptions{Name: "RefreshBatch"})
	return env
}

func runFleet(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
	t.Helper()
	env.ExecuteWorkflow(workflows.TypeFleet, workflows.FleetInput{Fleet: "press-v7"})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
}

// N98, N99, N100, X6, X7
func TestFleetEntity(t *testing.T) {
	t.Parallel()
	t.Run("goes through the waves, and ends", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		runFleet(t, fleetEnv(t, f))
		require.Equal(t, 6, f.count(fleet.FleetTargetSucceeded))
		require.Equal(t, fleet.FleetSucceeded, f.seen.State)
	})
	t.Run("stops at a wave that fails, and touches no further site", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.bad["s-2"] = true
		f.seen.Turn = 7
		runFleet(t, fleetEnv(t, f))
		require.Equal(t, fleet.FleetStopped, f.seen.State)
		for _, m := range f.moves {
			require.EqualValues(t, 7, m.Turn, "so that a later turn of a person makes it void")
		}
		require.Equal(t, "error_threshold", f.moves[len(f.moves)-1].Reason)
		require.Equal(t, 2, f.count(fleet.FleetTargetWaiting), "the third wave waits")
	})
	t.Run("waits while it is paused, and goes on", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		env := fleetEnv(t, f)
		f.onTell = func(f *toyFleet, site fleet.SiteName) {
			if site == "s-2" {
				f.seen.State, f.onTell = fleet.FleetPaused, nil
			}
		}
		env.RegisterDelayedCallback(func() {
			require.Equal(t, 3, f.count(fleet.FleetTargetWaiting), "the batch on its way was the last")
			f.mu.Lock()
			f.seen.State = fleet.FleetRunning
			f.mu.Unlock()
			env.SignalWorkflow(workflows.SignalWake, nil)
		}, 10*time.Minute)
		runFleet(t, env)
		require.Equal(t, 6, f.count(fleet.FleetTargetSucceeded))
	})
	t.Run("is cancelled at once, and ends its batch", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.onTell = func(f *toyFleet, _ fleet.SiteName) { f.seen.Cancel = true }
		runFleet(t, fleetEnv(t, f))
		require.Equal(t, fleet.FleetCancelled, f.seen.State)
		require.Equal(t, 1, f.count(fleet.FleetTargetSucceeded))
		require.Zero(t, f.count(fleet.FleetTargetDelivering))
	})
	t.Run("fetches before the window, and switches in it", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		env := fleetEnv(t, f)
		f.opens = env.Now().Add(10 * time.Minute)
		runFleet(t, env)
		require.Equal(t, 6, f.count(fleet.FleetTargetSucceeded))
		require.Equal(t, []decide.SiteMode{decide.SiteStage, decide.SiteStage, decide.SiteSwitch, decide.SiteSwitch}, f.modes[:4])
		require.Equal(t, decide.SiteDeliver, f.modes[4], "the window is open")
	})
	t.Run("stops a site whose window closes in the middle, and goes on by itself when it opens", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		env := fleetEnv(t, f)
		f.onTell = func(f *toyFleet, _ fleet.SiteName) {
			f.opens, f.onTell = f.now().Add(10*time.Minute), nil
		}
		env.RegisterDelayedCallback(func() {
			require.Equal(t, 1, f.count(fleet.FleetTargetSucceeded), "the batch on its way was the last")
			require.Equal(t, 1, f.count(fleet.FleetTargetStaged), "the rest of the site is fetched")
			value, err := env.QueryWorkflow(workflows.QueryStatus)
			require.NoError(t, err)
			var status workflows.FleetStatus
			require.NoError(t, value.Get(&status))
			require.Equal(t, "window", status.Rule)
			require.True(t, f.opens.Equal(*status.Until))
		}, 5*time.Minute)
		runFleet(t, env)
		require.Equal(t, 6, f.count(fleet.FleetTargetSucceeded))
		require.Equal(t, []decide.SiteMode{decide.SiteDeliver, decide.SiteStage, decide.SiteSwitch}, f.modes[:3])
		require.Equal(t, fleet.FleetSucceeded, f.seen.State)
	})
	t.Run("rests when a batch finds a window closed that is open for the entity", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		env := fleetEnv(t, f)
		asked, began := 0, env.Now()
		f.shut = func(activities.NextBatch) bool {
			asked++
			return f.now().Sub(began) < time.Minute
		}
		runFleet(t, env)
		require.Equal(t, 6, f.count(fleet.FleetTargetSucceeded))
		require.Less(t, asked, 40, "it went round without a rest")
	})
	t.Run("stops at its deadline", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.seen.State = fleet.FleetPaused
		runFleet(t, fleetEnv(t, f))
		require.Equal(t, fleet.FleetStopped, f.seen.State)
		require.Equal(t, "deadline", f.moves[0].Reason)
	})
	t.Run("stops when a site fails as a whole", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.broken = true
		runFleet(t, fleetEnv(t, f))
		require.Equal(t, "site_failed", f.moves[0].Reason)
	})
	t.Run("does nothing for a change that was never run", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.seen.Run = 0
		runFleet(t, fleetEnv(t, f))
		require.Empty(t, f.moves)
	})
}

// N98, X14
func TestFleetSite(t *testing.T) {
	t.Parallel()
	in := workflows.FleetSiteInput{Fleet: "press-v7", Run: 1, Wave: 1, Site: "s-1", Mode: decide.SiteDeliver, Size: 1}
	t.Run("says that its window has closed, and what it did before", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.onTell = func(f *toyFleet, _ fleet.SiteName) { f.opens = f.now().Add(time.Hour) }
		env := fleetEnv(t, f)
		env.ExecuteWorkflow(workflows.TypeFleetSite, in)
		var out workflows.FleetSiteResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Equal(t, workflows.FleetSiteResult{Batches: 1, Succeeded: 1, Closed: true}, out)
	})
	t.Run("tells a node again that gave no word, with a token of its own", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		env := fleetEnv(t, f)
		told := 0
		env.OnActivity("RefreshBatch", mock.Anything, mock.Anything).Return(func(_ context.Context, c fleet.BatchCommand) (fleet.BatchOutcome, error) {
			if told++; told == 1 {
				return fleet.BatchOutcome{}, fleet.Errorf(fleet.Communication, "cut")
			}
			return fleet.BatchOutcome{Applied: c.Count}, nil
		})
		env.ExecuteWorkflow(workflows.TypeFleetSite, in)
		var out workflows.FleetSiteResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Equal(t, workflows.FleetSiteResult{Batches: 2, Succeeded: 2}, out)
		require.Len(t, f.misses, 1)
		require.Equal(t, 5, told)
	})
	t.Run("gives up on a node after its tries", func(t *testing.T) {
		t.Parallel()
		f := newToyFleet()
		f.bad["s-1"] = true
		env := fleetEnv(t, f)
		in := in
		in.Limits.Tries = 2
		env.ExecuteWorkflow(workflows.TypeFleetSite, in)
		var out workflows.FleetSiteResult
		require.NoError(t, env.GetWorkflowResult(&out))
		require.Equal(t, 2, out.Failed)
		for _, n := range f.told {
			require.Equal(t, 3, n, "the third was refused")
		}
	})
}

// X20, X23
func TestDeployFleet(t *testing.T) {
	t.Parallel()
	t.Run("refuses what is no name", func(t *testing.T) { // X19
		t.Parallel()
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.ExecuteWorkflow(workflows.TypeDeployFleet, workflows.DeployFleetInput{Fleet: "Press 7"})
		require.ErrorContains(t, b.GetWorkflowError(), "not a name")
	})
}
