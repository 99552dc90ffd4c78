package workflows_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// leased is a site's lease, its store and its nodes a and b, which write down what happens.
type leased struct {
	mu       sync.Mutex
	now      func() time.Time
	did      []string
	seen     fleet.FailoverSeen
	end      []fleet.FailoverEnd
	notes    []string
	handOver func() (fleet.HandOverResult, error)
	takeOver func(cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error)
}

func (l *leased) do(what string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, what)
	f()
}

func (l *leased) SeeFailover(_ context.Context, in fleet.FailoverLook) (fleet.FailoverSeen, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.Reason != "" {
		l.notes = append(l.notes, in.Reason)
	}
	out := l.seen
	out.At = l.now()
	return out, nil
}

func (l *leased) EndFailover(_ context.Context, e fleet.FailoverEnd) error {
	l.do("end "+string(e.State), func() { l.end, l.seen = append(l.end, e), fleet.FailoverSeen{} })
	return nil
}

func (l *leased) Aim(_ context.Context, _ fleet.SiteName, to fleet.NodeName) error {
	l.do("aim "+string(to), func() { l.seen.Target = to })
	return nil
}

func (l *leased) HandOver(context.Context, fleet.HandOverCommand) (fleet.HandOverResult, error) {
	l.do("hand over", func() {})
	return l.handOver()
}

func (l *leased) TakeOver(_ context.Context, cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
	what := "take over"
	if cmd.Forced {
		what += " by force"
	}
	l.do(what, func() {})
	return l.takeOver(cmd)
}

// holds is the answer of a node that was granted the lease.
func (l *leased) holds(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.Holder, l.seen.Epoch, l.seen.Released, l.seen.Target = "b", 7, false, ""
	return fleet.TakeOverResult{Epoch: 7}, nil
}

func newLeased(t *testing.T) (*testsuite.TestWorkflowEnvironment, *leased) {
	t.Helper()
	env := emptyEnv()
	l := &leased{now: env.Now, seen: fleet.FailoverSeen{
		Operation: "op", To: "b", Holder: "a", Epoch: 6, Deadline: env.Now().Add(time.Minute), Voters: []fleet.NodeName{"a", "b"},
	}}
	l.handOver = func() (fleet.HandOverResult, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen.Released = true
		return fleet.HandOverResult{Released: true, Epoch: 6}, nil
	}
	l.takeOver = l.holds
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Failovers{Store: l, Votes: l, Signer: silent{}, Doors: silent{}})
	env.RegisterActivity(&activities.Instances{Log: slog.New(slog.DiscardHandler)})
	env.RegisterActivity(&activities.Doors{
		Requests: fakeRequests{subject: "site.plant-1", first: fleet.OperationRunning, last: fleet.OperationSucceeded},
		Entities: silent{}, Starts: silent{},
	})
	node := &activities.Node{Leases: l}
	env.RegisterActivityWithOptions(node.HandOver, activity.RegisterOptions{Name: "HandOver"})
	env.RegisterActivityWithOptions(node.TakeOver, activity.RegisterOptions{Name: "TakeOver"})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "site.plant-1", TaskQueue: workflows.QueueServers})
	return env, l
}

var serving = workflows.SiteInput{Site: "plant-1"}

// N60, X8, X21
func TestFailoverSite(t *testing.T) {
	t.Parallel()
	away := func() (fleet.HandOverResult, error) {
		return fleet.HandOverResult{}, fleet.Errorf(fleet.Communication, "cut")
	}
	for _, c := range []struct {
		name  string
		edit  func(*leased)
		did   []string
		state fleet.OperationState
	}{
		{"asks the holder to stop and the target to stand", func(*leased) {}, []string{"hand over", "take over", "end succeeded"}, fleet.OperationSucceeded},
		{"is done when it is so already", func(l *leased) { l.seen.Holder = "b" }, []string{"end succeeded"}, fleet.OperationSucceeded},
		{"has the votes wait for a holder that is away", func(l *leased) { l.handOver = away }, []string{"hand over", "aim b", "take over by force", "end succeeded"}, fleet.OperationSucceeded},
		{"does not ask the holder when forced", func(l *leased) { l.seen.Force = true }, []string{"aim b", "take over by force", "end succeeded"}, fleet.OperationSucceeded},
		{"ends when the holder would not", func(l *leased) {
			l.handOver = func() (fleet.HandOverResult, error) { return fleet.HandOverResult{Reason: "still stopping"}, nil }
		}, []string{"hand over", "end failed"}, fleet.OperationFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env, l := newLeased(t)
			c.edit(l)
			env.ExecuteWorkflow(workflows.TypeSite, serving)
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, c.did, l.did)
			var res workflows.DoorResult
			require.NoError(t, env.GetWorkflowResult(&res))
			require.Equal(t, c.state, res.State)
		})
	}

	t.Run("asks a target again that the votes refused, until its deadline", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.takeOver = func(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
			return fleet.TakeOverResult{Reason: "held"}, nil
		}
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Greater(t, len(l.did), 4)
		require.Equal(t, "deadline", l.end[0].Reason)
		require.Contains(t, l.end[0].Message, "node b did not: held")
		require.Contains(t, l.notes, "votes_decide", "who waits says why")
	})

	t.Run("stops nothing for a target that is away", func(t *testing.T) { // X5, X6
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Away = true
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"end failed"}, l.did)
		require.Equal(t, "target_not_there", l.end[0].Reason)
		require.Contains(t, l.notes, "target_not_there", "who waits says why")
	})

	t.Run("goes on when a target that was away comes", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Away = true
		env.RegisterDelayedCallback(func() { l.do("the target comes", func() { l.seen.Away = false }) }, 20*time.Second)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"the target comes", "hand over", "take over", "end succeeded"}, l.did)
	})

	const ttl = 15 * time.Second
	// renews has the region hear the holder until then.
	renews := func(env *testsuite.TestWorkflowEnvironment, l *leased, from, until time.Duration) {
		for at := from; at < until; at += 5 * time.Second {
			env.RegisterDelayedCallback(func() { l.mu.Lock(); l.seen.Counter++; l.mu.Unlock() }, at)
		}
	}
	t.Run("asks a holder again that renews: the region was away, not the holder", func(t *testing.T) { // X5, X6
		t.Parallel()
		env, l := newLeased(t)
		l.seen.TTL, l.seen.There = ttl, env.Now().Add(-time.Hour)
		released, asked := l.handOver, 0
		l.handOver = func() (fleet.HandOverResult, error) {
			if asked++; asked == 1 {
				return away()
			}
			return released()
		}
		renews(env, l, 3*time.Second, time.Minute)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"hand over", "hand over", "take over", "end succeeded"}, l.did)
		require.Contains(t, l.notes, "holder_not_reached", "who waits says why")
	})

	t.Run("has the votes wait for a holder that stopped to renew", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.TTL, l.seen.There, l.handOver = ttl, env.Now().Add(-time.Hour), away
		began := env.Now()
		l.takeOver = func(cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
			require.Less(t, env.Now().Sub(began), ttl+5*time.Second)
			return l.holds(cmd)
		}
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"hand over", "aim b", "take over by force", "end succeeded"}, l.did)
	})

	t.Run("ends by its deadline when a holder that renews is never reached", func(t *testing.T) { // X6
		t.Parallel()
		env, l := newLeased(t)
		l.seen.TTL, l.seen.There, l.handOver = ttl, env.Now().Add(-time.Hour), away
		renews(env, l, 0, 2*time.Minute)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.NotContains(t, l.did, "aim b")
		require.Equal(t, "deadline", l.end[0].Reason)
		require.Contains(t, l.end[0].Message, "may be running: --force does not ask it")
	})

	t.Run("asks a holder when it is back on the link of a region that was away", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.TTL, l.seen.There, l.seen.HolderAway = ttl, env.Now().Add(20*time.Second), true
		env.RegisterDelayedCallback(func() { l.do("the holder comes", func() { l.seen.HolderAway = false }) }, 10*time.Second)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"the holder comes", "hand over", "take over", "end succeeded"}, l.did)
		require.Contains(t, l.notes, "holder_not_there", "who waits says why")
	})

	t.Run("is cancelled while a node is asked, and withdraws its aim", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Force = true
		l.takeOver = func(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
			l.mu.Lock()
			l.seen.Cancelled = true
			l.mu.Unlock()
			env.SignalWorkflow(workflows.SignalWake, nil)
			return fleet.TakeOverResult{Reason: "withheld"}, nil
		}
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"aim b", "take over by force", "aim ", "end cancelled"}, l.did)
	})

	off := func(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
		return fleet.TakeOverResult{}, fleet.Errorf(fleet.Communication, "it is switched off")
	}
	t.Run("aims once: a dead target does not keep the vote", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Force, l.takeOver = true, off
		env.RegisterDelayedCallback(func() { l.do("the aim ends by itself", func() { l.seen.Target = "" }) }, 20*time.Second)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		aims := slices.DeleteFunc(slices.Clone(l.did), func(s string) bool { return s == "take over by force" })
		require.Equal(t, []string{"aim b", "the aim ends by itself", "end failed"}, aims)
		require.Greater(t, len(l.did), len(aims)+2, "it is asked again all the same")
	})

	t.Run("withdraws its aim when it fails", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Force, l.takeOver = true, off
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"aim ", "end failed"}, l.did[len(l.did)-2:])
	})

	t.Run("that corrects a forced one gives the holder its vote back", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.seen.Force = true
		l.takeOver = func(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
			l.mu.Lock()
			l.seen.Operation, l.seen.To, l.seen.Force = "op-2", "a", false
			l.mu.Unlock()
			env.SignalWorkflow(workflows.SignalWake, nil)
			return fleet.TakeOverResult{Reason: "withheld"}, nil
		}
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"aim b", "take over by force", "aim ", "end succeeded"}, l.did)
		require.Equal(t, fleet.NodeName("a"), l.end[0].To)
	})

	t.Run("says what it waits for", func(t *testing.T) {
		t.Parallel()
		env, l := newLeased(t)
		l.takeOver = func(fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
			return fleet.TakeOverResult{Reason: "held"}, nil
		}
		env.RegisterDelayedCallback(func() {
			got, err := env.QueryWorkflow(workflows.QueryStatus)
			require.NoError(t, err)
			var s workflows.FailoverStatus
			require.NoError(t, got.Get(&s))
			require.Equal(t, fleet.NodeName("b"), s.Seen.To)
			require.NotEmpty(t, s.Next.Rule)
		}, 5*time.Second)
		env.ExecuteWorkflow(workflows.TypeSite, serving)
		require.NoError(t, env.GetWorkflowError())
	})
}

// X20: the door waits for the entity, and asks no node itself.
func TestFailoverSiteAsDoor(t *testing.T) {
	t.Parallel()
	env, l := newLeased(t)
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "anything", TaskQueue: workflows.QueueServers})
	env.ExecuteWorkflow(workflows.TypeFailoverSite, workflows.FailoverSiteInput{Site: "plant-1", To: "plant-1-b"})
	require.NoError(t, env.GetWorkflowError())
	require.Empty(t, l.did)
}
