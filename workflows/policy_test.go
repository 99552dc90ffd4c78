package workflows_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// governed is a toy store of one policy holder with so many pages of objects.
type governed struct {
	mu     sync.Mutex
	pages  int64
	at     int64
	away   int // how many pages the database does not answer
	visits []fleet.PolicyVisit
	page   func(at int64) // what happens beside a page
}

func (g *governed) ApplyPolicyPage(_ context.Context, v fleet.PolicyVisit) (fleet.PolicyTurn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.away > 0 {
		g.away--
		return fleet.PolicyTurn{}, fleet.Errorf(fleet.Unavailable, "the database is away")
	}
	g.visits = append(g.visits, v)
	if g.at < g.pages {
		g.at++
	}
	if g.page != nil {
		g.page(g.at)
	}
	return fleet.PolicyTurn{Generation: 3, Visited: 500 * g.at, Refreshed: g.at, Done: g.at == g.pages}, nil
}

func policyEnv(g *governed) *testsuite.TestWorkflowEnvironment {
	env := emptyEnv()
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Policies{Store: g, Doors: silent{}, Build: "b1", Now: env.Now})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: fleet.PolicySubject(fleet.ProjectKey("p1"))})
	return env
}

// M36, X8, X13: the entity goes on until all pages are done, whatever fails meanwhile, and says how far it is.
func TestPolicy(t *testing.T) {
	t.Parallel()
	g := &governed{pages: 45, away: 2}
	env := policyEnv(g)
	env.ExecuteWorkflow(workflows.TypePolicy, workflows.PolicyInput{Kind: fleet.KindProject, Name: "p1"})
	require.NoError(t, env.GetWorkflowError())
	var out workflows.DoorResult
	require.NoError(t, env.GetWorkflowResult(&out))
	require.Equal(t, []any{fleet.OperationSucceeded, "applied"}, []any{out.State, out.Reason})
	require.Equal(t, "generation 3 of project/p1: 22500 objects visited, the syncing of 45 changed", out.Message)
	require.Len(t, g.visits, 45)
	require.Equal(t, []any{fleet.ProjectKey("p1"), "b1"}, []any{g.visits[0].Holder(), g.visits[0].Build})
	require.NotEmpty(t, g.visits[0].Run)
	value, err := env.QueryWorkflow(workflows.QueryStatus)
	require.NoError(t, err)
	var status workflows.PolicyStatus
	require.NoError(t, value.Get(&status))
	require.Equal(t, workflows.PolicyStatus{Holder: "project/p1", Turn: fleet.PolicyTurn{Generation: 3, Visited: 22500, Refreshed: 45, Done: true}}, status)
}

// M37: a wake during the last page has the entity look once more.
func TestPolicyIsWokenAtItsEnd(t *testing.T) {
	t.Parallel()
	g := &governed{pages: 1}
	env := policyEnv(g)
	once := sync.Once{}
	g.page = func(int64) {
		once.Do(func() { env.SignalWorkflow(workflows.SignalWake, nil) })
	}
	env.ExecuteWorkflow(workflows.TypePolicy, workflows.PolicyInput{Kind: fleet.KindProject, Name: "p1"})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, g.visits, 2)
}

// X19: the door refuses what cannot carry a policy.
func TestApplyRegionPolicyInput(t *testing.T) {
	t.Parallel()
	require.NoError(t, workflows.ApplyRegionPolicyInput{Holder: "project/p1"}.Validate())
	err := workflows.ApplyRegionPolicyInput{Holder: "site/a"}.Validate()
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	require.ErrorContains(t, err, "/holder")
}
