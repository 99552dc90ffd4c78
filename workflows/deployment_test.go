package workflows_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// visits are a toy store of deployments: each visit answers what is next in line, the last one for
// ever.
type visits struct {
	mu               sync.Mutex
	now              func() time.Time
	line             []fleet.DeploymentVisited
	wait             []time.Duration // from each visit to Next, 0 for none
	runs             []string
	times            []time.Duration // of the visits, since the first
	first            time.Time
	away             int // how many visits the database does not answer
	due              []fleet.DeploymentName
	shards, compared []int
	woken            []string
	told             []string
	during           func(n int) // what happens while visit n is made
}

func (v *visits) Visit(_ context.Context, in fleet.DeploymentVisit) (fleet.DeploymentVisited, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away > 0 {
		v.away--
		return fleet.DeploymentVisited{}, fleet.Errorf(fleet.Unavailable, "the database is away")
	}
	at := v.now()
	if len(v.runs) == 0 {
		v.first = at
	}
	n := min(len(v.runs), len(v.line)-1)
	v.runs, v.times = append(v.runs, in.Run), append(v.times, at.Sub(v.first))
	if v.during != nil {
		v.during(len(v.runs))
	}
	out := v.line[n]
	out.At = at
	if n < len(v.wait) && v.wait[n] != 0 {
		out.Next = at.Add(v.wait[n])
	}
	return out, nil
}

func (v *visits) Due(_ context.Context, shard, shards int, after string, limit int32) ([]fleet.DeploymentName, error) {
	v.shards = append(v.shards, shard, shards)
	var page []fleet.DeploymentName
	for _, name := range v.due {
		if string(name) > after && len(page) < int(limit) {
			page = append(page, name)
		}
	}
	return page, nil
}

func (v *visits) Compare(_ context.Context, shard, shards int) error {
	v.compared = append(v.compared, shard, shards)
	return nil
}

func (v *visits) Wake(_ context.Context, subject string) error {
	v.woken = append(v.woken, subject)
	return nil
}

func (v *visits) TellDoors(_ context.Context, subject string) error {
	v.told = append(v.told, subject)
	return nil
}

func newDeployment(t *testing.T, v *visits) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	env := emptyEnv()
	v.now = env.Now
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Deployments{Store: v, Doors: v, Entities: v, Log: slog.New(slog.DiscardHandler)})
	return env
}

var (
	visitMore    = fleet.DeploymentVisited{State: fleet.DeploymentPending, Rule: "begin", More: true}
	visitWaits   = fleet.DeploymentVisited{State: fleet.DeploymentProvisioning, Rule: "provisioning", Replicas: 2, Awaited: "its replicas"}
	visitDone    = fleet.DeploymentVisited{State: fleet.DeploymentRunning, Rule: "converged", Replicas: 2, Healthy: 2, Done: true, Untold: 1}
	deploymentIn = workflows.DeploymentInput{Deployment: "web"}
)

func TestDeployment(t *testing.T) {
	t.Parallel()

	t.Run("looks again at once, waits to be woken, and ends", func(t *testing.T) { // S19, X6, X8
		t.Parallel()
		v := &visits{line: []fleet.DeploymentVisited{visitMore, visitWaits, visitDone}, away: 2}
		env := newDeployment(t, v)
		env.RegisterDelayedCallback(func() {
			out, err := env.QueryWorkflow(workflows.QueryStatus)
			require.NoError(t, err)
			var s workflows.DeploymentStatus
			require.NoError(t, out.Get(&s))
			require.Equal(t, []any{"provisioning", "its replicas", 2}, []any{s.Rule, s.Awaited, s.Visits})
			env.SignalWorkflow(workflows.SignalWake, nil)
		}, time.Hour)
		env.ExecuteWorkflow(workflows.TypeDeployment, deploymentIn)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, v.runs, 3)
		require.Less(t, v.times[1], time.Minute)
		require.GreaterOrEqual(t, v.times[2], 50*time.Minute)
		require.Equal(t, []string{"deployment.web"}, v.told)
	})

	t.Run("sleeps no longer than the plan says", func(t *testing.T) {
		t.Parallel()
		v := &visits{line: []fleet.DeploymentVisited{visitWaits, visitDone}, wait: []time.Duration{16 * time.Minute}}
		env := newDeployment(t, v)
		env.ExecuteWorkflow(workflows.TypeDeployment, deploymentIn)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, v.times, 2)
		require.GreaterOrEqual(t, v.times[1], 16*time.Minute)
		require.Less(t, v.times[1], 17*time.Minute)
	})

	t.Run("goes on when it is woken while it would end", func(t *testing.T) { // X1
		t.Parallel()
		v := &visits{line: []fleet.DeploymentVisited{visitDone, visitDone}}
		env := newDeployment(t, v)
		v.during = func(n int) {
			if n == 1 {
				env.SignalWorkflow(workflows.SignalWake, nil)
			}
		}
		env.ExecuteWorkflow(workflows.TypeDeployment, deploymentIn)
		require.NoError(t, env.GetWorkflowError())
		require.Len(t, v.runs, 2)
	})

	t.Run("ends with what no repetition mends", func(t *testing.T) { // X19
		t.Parallel()
		env := newDeployment(t, &visits{line: []fleet.DeploymentVisited{visitDone}})
		env.ExecuteWorkflow(workflows.TypeDeployment, workflows.DeploymentInput{Deployment: "Web 1"})
		var refused *temporal.ApplicationError
		require.ErrorAs(t, env.GetWorkflowError(), &refused)
		require.Equal(t, string(fleet.Invalid), refused.Type())
	})
}

// S2, S3, S4, S19, X12: a shard is looked at in pages, and what has something to do is woken.
func TestSyncRuntime(t *testing.T) {
	t.Parallel()
	v := &visits{}
	for i := range 150 {
		v.due = append(v.due, fleet.DeploymentName("web-"+string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	env := newDeployment(t, v)
	env.ExecuteWorkflow(workflows.TypeSyncRuntime, workflows.SyncRuntimeInput{Shard: 1, Shards: 3})
	require.NoError(t, env.GetWorkflowError())
	var res workflows.SyncRuntimeResult
	require.NoError(t, env.GetWorkflowResult(&res))
	require.Equal(t, 150, res.Woken)
	require.Equal(t, []int{1, 3, 1, 3}, v.shards)
	require.Equal(t, []int{1, 3}, v.compared, "its nodes are compared, once (F24)")
	require.Len(t, v.woken, 150)
	require.Equal(t, "deployment.web-aa", v.woken[0])
}

// X5, X11: the four doors.
func TestDeploymentDoors(t *testing.T) {
	t.Parallel()
	three := 3
	for name, in := range map[string]any{
		workflows.TypeConvergeDeployment: workflows.DeploymentDoorInput{Deployment: "web"},
		workflows.TypeRestartDeployment:  workflows.DeploymentDoorInput{Deployment: "web"},
		workflows.TypeDestroyDeployment:  workflows.DeploymentDoorInput{Deployment: "web"},
		workflows.TypeScaleDeployment:    workflows.ScaleDeploymentInput{Deployment: "web", Replicas: &three},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newEnv(t, nodeApplier{}, fakeRequests{subject: "deployment.web", first: fleet.OperationRunning, last: fleet.OperationSucceeded})
			b.ExecuteWorkflow(name, in)
			var res workflows.DoorResult
			require.NoError(t, b.GetWorkflowResult(&res))
			require.Equal(t, fleet.OperationSucceeded, res.State)
		})
	}
	for what, in := range map[string]workflows.ScaleDeploymentInput{
		"no name": {Deployment: "Web 1", Replicas: &three}, "no number": {Deployment: "web"},
	} {
		b := newEnv(t, nodeApplier{}, fakeRequests{})
		b.ExecuteWorkflow(workflows.TypeScaleDeployment, in)
		var refused *temporal.ApplicationError
		require.ErrorAs(t, b.GetWorkflowError(), &refused, what)
		require.Equal(t, string(fleet.Invalid), refused.Type(), what)
	}
}
