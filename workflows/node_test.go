package workflows_test

import (
	"context"
	"fmt"
	"log/slog"
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

// compared is a store and a node that write down what happens, in order.
type compared struct {
	mu      sync.Mutex
	did     []string
	ids     map[string]bool
	files   []bool // of each comparison: whether the node hashes its files
	ended   []fleet.ReconcileEnd
	why     string
	answers []error // of the node, one a try
	report  fleet.ReconcileReport
	owed    int
}

func (c *compared) say(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.did = append(c.did, what)
}

func (c *compared) BeginReconcile(_ context.Context, in fleet.ReconcileStart) (fleet.ReconcileBegun, error) {
	c.say("begin " + in.Reason)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[in.ID] = true
	c.files = append(c.files, in.Files)
	if c.why != "" {
		return fleet.ReconcileBegun{Why: c.why, By: time.Unix(100, 0)}, nil
	}
	return fleet.ReconcileBegun{Command: &fleet.ReconcileCommand{ID: in.ID, Site: "plant-1"}, By: time.Unix(100, 0)}, nil
}

func (c *compared) EndReconcile(_ context.Context, e fleet.ReconcileEnd) error {
	c.say("end")
	c.ended = append(c.ended, e)
	return nil
}

func (c *compared) Reconcile(context.Context, fleet.ReconcileCommand) (fleet.ReconcileReport, error) {
	c.say("compare")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) > 0 {
		err := c.answers[0]
		c.answers = c.answers[1:]
		return fleet.ReconcileReport{}, err
	}
	return c.report, nil
}

func (c *compared) ComparePage(context.Context, fleet.NodeName, string, int32) ([]fleet.Comparison, string, error) {
	c.say("page")
	return nil, "", nil
}

func (c *compared) Owe(context.Context, fleet.NodeName, fleet.InstanceName, fleet.Version) (string, error) {
	return "", nil
}

func (c *compared) ReleaseAgain(context.Context, fleet.NodeName, fleet.InstanceName, fleet.Version) (string, error) {
	return "", nil
}

func (c *compared) SettleAgain(context.Context, fleet.NodeName, fleet.InstanceName, fleet.Version) (string, error) {
	return "", nil
}

func (c *compared) ServeOwed(_ context.Context, _ fleet.NodeName, _ time.Time, limit int32) ([]string, error) {
	c.say("serve")
	n := min(c.owed, int(limit))
	c.owed -= n
	subjects := make([]string, n)
	for i := range subjects {
		subjects[i] = fmt.Sprintf("instance.plant-1.n%d", i)
	}
	return subjects, nil
}

func newComparison(t *testing.T) (*testsuite.TestWorkflowEnvironment, *compared) {
	t.Helper()
	env := emptyEnv()
	c := &compared{ids: map[string]bool{}, report: fleet.ReconcileReport{Expected: 3, Equal: 2, Fetched: 1}}
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Reconciles{Store: c, Passes: c, Entities: silent{}, Doors: silent{}, Tokens: silent{}, Signer: silent{}})
	env.RegisterActivity(&activities.Instances{Log: slog.New(slog.DiscardHandler)})
	env.RegisterActivity(&activities.Doors{
		Requests: fakeRequests{subject: "node.plant-1-b", first: fleet.OperationRunning, last: fleet.OperationSucceeded},
		Entities: silent{}, Starts: silent{},
	})
	node := &activities.Node{Reconciler: c}
	env.RegisterActivityWithOptions(node.Reconcile, activity.RegisterOptions{Name: "Reconcile"})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "node.plant-1-b", TaskQueue: workflows.QueueServers})
	return env, c
}

var scheduled = workflows.NodeInput{Node: "plant-1-b", Reason: fleet.ReconcileSchedule}

// N54, N101, X6
func TestReconcileNode(t *testing.T) {
	t.Parallel()

	t.Run("has the node compare itself, mends, and then starts what is owed", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		c.owed = 100
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, []string{"begin schedule", "compare", "page", "serve", "serve", "end"}, c.did)
		require.Len(t, c.ended, 1)
		require.Equal(t, fleet.OperationSucceeded, c.ended[0].State)
		require.Equal(t, "3 expected, 2 equal, 1 fetched, 0 dropped, 100 handed to their own delivery", c.ended[0].Message)
		require.Equal(t, time.Unix(100, 0).UTC(), c.ended[0].By.UTC())
	})

	t.Run("tries a node that is cut off again, each time with another token", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		c.answers = []error{fleet.Errorf(fleet.Communication, "cut"), fleet.Errorf(fleet.Communication, "cut")}
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, c.ids, 3)
		require.Equal(t, fleet.OperationSucceeded, c.ended[0].State)
	})

	t.Run("ends when the node stays cut off, and serves what is owed all the same", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		for range 5 {
			c.answers = append(c.answers, fleet.Errorf(fleet.Communication, "cut"))
		}
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, c.ids, 3)
		require.Equal(t, fleet.OperationFailed, c.ended[0].State)
		require.Equal(t, string(fleet.Communication), c.ended[0].Reason)
		require.Contains(t, c.did, "serve")
	})

	t.Run("does not try what another try cannot mend", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		c.answers = []error{fleet.Errorf(fleet.Unauthenticated, "another key")}
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, c.ids, 1)
		require.Equal(t, string(fleet.Unauthenticated), c.ended[0].Reason)
	})

	t.Run("says why a node is not compared", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		c.why = "node_not_enrolled"
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.NotContains(t, c.did, "compare")
		require.Equal(t, "node_not_enrolled", c.ended[0].Reason)
		require.Empty(t, c.ended[0].ID)
	})

	t.Run("looks again when it is woken meanwhile", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		c.answers = []error{fleet.Errorf(fleet.Communication, "cut")}
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalWake, nil) }, time.Second)
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, c.ended, 2)
		require.Len(t, c.ids, 3)
		require.Equal(t, []bool{false, false, true}, c.files, "the request is served by the second pass")
	})

	t.Run("has the node hash its files on request, also by a pass that began for another reason", func(t *testing.T) {
		t.Parallel()
		env, c := newComparison(t)
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.Equal(t, []bool{false}, c.files)
		env, c = newComparison(t)
		c.report.Restored = 2
		env.ExecuteWorkflow(workflows.TypeNode, workflows.NodeInput{Node: "plant-1-b", Reason: fleet.ReconcileRequest})
		require.Equal(t, []bool{true}, c.files)
		require.Equal(t, []any{2, "files_restored"}, []any{c.ended[0].Restored, c.ended[0].Reason})
		env, c = newComparison(t)
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalWake, nil) }, 0)
		env.ExecuteWorkflow(workflows.TypeNode, scheduled)
		require.Equal(t, true, c.files[len(c.files)-1])
	})
}

// X20: the door waits for the entity, and compares nothing itself; the entity compares.
func TestReconcileNodeAsDoor(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]any{
		workflows.TypeReconcileNode: workflows.ReconcileNodeInput{Node: "plant-1-b"}, workflows.TypeNode: workflows.NodeInput{Node: "plant-1-b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, c := newComparison(t)
			env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: "anything", TaskQueue: workflows.QueueServers})
			env.ExecuteWorkflow(name, in)
			require.NoError(t, env.GetWorkflowError())
			var res workflows.DoorResult
			require.NoError(t, env.GetWorkflowResult(&res))
			require.Equal(t, fleet.OperationSucceeded, res.State)
			require.Equal(t, name == workflows.TypeNode, len(c.ended) == 1)
		})
	}
}
