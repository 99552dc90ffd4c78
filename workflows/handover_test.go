package workflows_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// handed is a toy holder that another region has not claimed.
type handed struct {
	mu        sync.Mutex
	looks     int
	until     int  // the claim comes with this look
	cancelled bool // the operator wants it back
	away      int  // how many calls the other region does not answer
	claimed   bool // the other region has claimed it
	calls     int
	taken     bool // back
}

func (h *handed) ApplyPolicyPage(context.Context, fleet.PolicyVisit) (fleet.PolicyTurn, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.looks++; h.looks >= h.until || h.taken {
		return fleet.PolicyTurn{Generation: 1, Done: true}, nil
	}
	return fleet.PolicyTurn{Generation: 1, Waits: true, HandOver: &fleet.HandOver{
		To: "us", Epoch: 2, Waits: "waiting for region us to claim it", Cancel: h.cancelled,
	}}, nil
}

func (h *handed) RenounceOf(context.Context, fleet.ObjectKey) (fleet.RegionName, *fleet.Renounce, error) {
	return "us", &fleet.Renounce{Region: "eu", Kind: fleet.KindProject, Name: "p1", Epoch: 2}, nil
}

func (h *handed) TakeBack(_ context.Context, r fleet.Renounce) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = r.Epoch == 2
	return nil
}

func (h *handed) Renounce(_ context.Context, to fleet.RegionName, _ fleet.Renounce) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	switch {
	case to != "us":
		return fleet.Errorf(fleet.Internal, "another region was asked")
	case h.away > 0:
		h.away--
		return fleet.Errorf(fleet.Unavailable, "reach region us")
	case h.claimed:
		return fleet.Errorf(fleet.IllegalState, "region us has claimed it")
	}
	return nil
}

func (h *handed) env() *testsuite.TestWorkflowEnvironment {
	env := emptyEnv()
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Policies{Store: h, HandOvers: h, Peers: h, Doors: silent{}, Build: "b1", Now: env.Now})
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: fleet.PolicySubject(fleet.ProjectKey("p1"))})
	return env
}

func (h *handed) run(t *testing.T, env *testsuite.TestWorkflowEnvironment) time.Duration {
	t.Helper()
	began := env.Now()
	env.ExecuteWorkflow(workflows.TypePolicy, workflows.PolicyInput{Kind: fleet.KindProject, Name: "p1"})
	require.NoError(t, env.GetWorkflowError())
	return env.Now().Sub(began)
}

// M34, X8, X13: the entity of a holder that is handed over waits for the other region, ever longer, says for what, and cancels on request.
func TestPolicyAwaitsHandOver(t *testing.T) {
	t.Parallel()

	t.Run("until the claim", func(t *testing.T) {
		t.Parallel()
		h := &handed{until: 8}
		env := h.env()
		require.InDelta(t, (1+2+4+8+15+15+15)*time.Second, h.run(t, env), float64(time.Second))
		require.Zero(t, h.calls, "nobody wants it back")
	})

	t.Run("a wake has it look at once", func(t *testing.T) {
		t.Parallel()
		h := &handed{until: 2}
		env := h.env()
		env.RegisterDelayedCallback(func() { env.SignalWorkflow(workflows.SignalWake, nil) }, 100*time.Millisecond)
		require.Less(t, h.run(t, env), time.Second)
	})

	t.Run("a cancel takes it back when the other region answers", func(t *testing.T) {
		t.Parallel()
		h := &handed{until: 100, cancelled: true, away: 2}
		h.run(t, h.env())
		require.True(t, h.taken)
		require.Equal(t, 3, h.calls)
	})

	t.Run("a cancel after the claim is too late", func(t *testing.T) {
		t.Parallel()
		h := &handed{until: 3, cancelled: true, claimed: true}
		h.run(t, h.env())
		require.False(t, h.taken)
	})
}

// X19: the door refuses what cannot carry a policy, and what names no region.
func TestHandOverRegionInput(t *testing.T) {
	t.Parallel()
	require.NoError(t, workflows.HandOverRegionInput{Holder: "project/p1", To: "us"}.Validate())
	for in, field := range map[workflows.HandOverRegionInput]string{
		{Holder: "site/a", To: "us"}:                  "/holder",
		{Holder: "project/p1"}:                        "/to",
		{Holder: "project/p1", To: "-"}:               "/to",
		{Holder: "project/p1", To: "us", Region: "-"}: "/region",
	} {
		err := in.Validate()
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
		require.ErrorContains(t, err, field)
	}
}
