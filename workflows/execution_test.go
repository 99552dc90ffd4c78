package workflows_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// moduleWorld is a store of one execution, and an executor that answers in turn.
type moduleWorld struct {
	mu       sync.Mutex
	answers  []error // of the module, one a try; nil is an output, and the last goes on
	tries    int
	ids      map[string]bool
	notes    []string
	ends     []fleet.ExecutionEnd
	ended    bool
	left     time.Duration
	requests []activities.DoorRequest
}

func (m *moduleWorld) ServeExecution(context.Context, activities.BeginExecution, string) (time.Duration, error) {
	if m.ended {
		return 0, fleet.Errorf(fleet.IllegalState, "it has ended")
	}
	return m.left, nil
}

func (m *moduleWorld) ExecutionInput(_ context.Context, id fleet.OperationID) (fleet.Execution, error) {
	return fleet.Execution{ID: string(id), Module: fleet.ModuleRef{Namespace: "acme", Name: "Detect"}, Input: []byte(`"s3cret"`)}, nil
}

func (m *moduleWorld) NoteExecution(_ context.Context, _ fleet.OperationID, reason, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes = append(m.notes, reason)
	return nil
}

func (m *moduleWorld) EndExecution(_ context.Context, e fleet.ExecutionEnd) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ends = append(m.ends, e)
	return nil
}

func (m *moduleWorld) Execute(_ context.Context, e fleet.Execution) (fleet.ExecutionAnswer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ids[e.ID] = true
	err := m.answers[min(m.tries, len(m.answers)-1)]
	m.tries++
	if err != nil {
		return fleet.ExecutionAnswer{}, err
	}
	return fleet.ExecutionAnswer{Output: []byte(`"s3cret"`), Connection: "c"}, nil
}

func (m *moduleWorld) Request(_ context.Context, in activities.DoorRequest, by string) (activities.OperationView, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, in)
	return activities.OperationView{
		OperationEnd: fleet.OperationEnd{Operation: "op", State: fleet.OperationRunning, Reason: by}, Subject: "execution.op", SecondsLeft: 60,
	}, nil
}

func (m *moduleWorld) Operation(context.Context, fleet.OperationID) (activities.OperationView, error) {
	return activities.OperationView{OperationEnd: fleet.OperationEnd{Operation: "op", State: fleet.OperationSucceeded}, SecondsLeft: 60}, nil
}

const executed fleet.OperationID = "0123456789abcdef0123456789abcdef"

// runModule runs the door or the entity of an execution, under an id.
func runModule(t *testing.T, m *moduleWorld, id, name string, in any) (workflows.DoorResult, error) {
	t.Helper()
	m.ids = map[string]bool{}
	if m.left == 0 {
		m.left = 10 * time.Minute
	}
	env := emptyEnv()
	env.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: id})
	for name, f := range workers.Workflows() {
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
	}
	env.RegisterActivity(&activities.Modules{Store: m, Executor: m, Doors: silent{}})
	env.RegisterActivity(&activities.Doors{Requests: m, Entities: silent{}, Starts: silent{}})
	env.ExecuteWorkflow(name, in)
	require.True(t, env.IsWorkflowCompleted())
	var out workflows.DoorResult
	err := env.GetWorkflowError()
	if err == nil {
		require.NoError(t, env.GetWorkflowResult(&out))
	}
	return out, err
}

// X4, X6, X8, X13: how a durable execution ends, whatever comes of its tries.
func TestExecuteModule(t *testing.T) {
	t.Parallel()
	busy := fleet.Errorf(fleet.Unavailable, "nobody is there")
	cut := fleet.Errorf(fleet.Communication, "it broke off")
	said := fleet.Errorf(fleet.ApplyFailed, "failed").WithHint("the module says: s3cret")
	for name, row := range map[string]struct {
		answers []error
		state   fleet.OperationState
		reason  string
		tries   int
	}{
		"answers at once":              {[]error{nil}, fleet.OperationSucceeded, "", 1},
		"waits for somebody":           {[]error{busy, busy, busy, busy, nil}, fleet.OperationSucceeded, "", 5},
		"nobody comes":                 {[]error{busy}, fleet.OperationFailed, "deadline", 0},
		"is asked again after a cut":   {[]error{cut, busy, cut, nil}, fleet.OperationSucceeded, "", 4},
		"is not asked for ever":        {[]error{cut}, fleet.OperationUnknown, "no_answer", 3},
		"may have run before":          {[]error{cut, busy}, fleet.OperationUnknown, "no_answer", 0},
		"fails by itself":              {[]error{busy, said}, fleet.OperationFailed, "apply_failed", 2},
		"is not offered by anybody":    {[]error{fleet.Errorf(fleet.NotFound, "nobody")}, fleet.OperationFailed, "not_found", 1},
		"has an input of no use":       {[]error{fleet.Errorf(fleet.Invalid, "no")}, fleet.OperationFailed, "invalid", 1},
		"an error that nobody expects": {[]error{errors.New("s3cret")}, fleet.OperationFailed, "internal", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &moduleWorld{answers: row.answers}
			out, err := runModule(t, m, fleet.ExecutionSubject(executed), workflows.TypeExecution, workflows.ExecutionInput{Operation: executed})
			require.NoError(t, err)
			require.Len(t, m.ends, 1, "it ends once")
			require.Equal(t, row.state, m.ends[0].State)
			require.Equal(t, row.reason, m.ends[0].Reason)
			require.Equal(t, row.state, out.State)
			if row.tries > 0 {
				require.Equal(t, row.tries, m.tries)
			}
			require.Len(t, m.ids, 1, "each try has the same id")
			require.NotContains(t, out.Message+m.ends[0].Message, "s3cret", "X10")
			if row.state == fleet.OperationSucceeded {
				require.Equal(t, `"s3cret"`, string(m.ends[0].Output))
			}
		})
	}
}

// X23: what has ended is not done again, and nobody takes it under another id.
func TestExecuteModuleTwice(t *testing.T) {
	t.Parallel()
	m := &moduleWorld{answers: []error{nil}, ended: true}
	_, err := runModule(t, m, fleet.ExecutionSubject(executed), workflows.TypeExecution, workflows.ExecutionInput{Operation: executed})
	require.NoError(t, err)
	require.Zero(t, m.tries)
	m.ended = false
	_, err = runModule(t, m, "another", workflows.TypeExecution, workflows.ExecutionInput{Operation: executed})
	var refused *temporal.ApplicationError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, string(fleet.Invalid), refused.Type())
	require.Zero(t, m.tries)
}

// X9, X20: the door, under any id and with a small readable input.
func TestExecuteModuleDoor(t *testing.T) {
	t.Parallel()
	m := &moduleWorld{answers: []error{nil}}
	out, err := runModule(t, m, "whatever", workflows.TypeExecuteModule, workflows.ExecuteModuleInput{Module: "acme.vision.Detect", Input: []byte(`{"a":1}`), TimeoutSeconds: 7})
	require.NoError(t, err)
	require.Equal(t, fleet.OperationSucceeded, out.State)
	require.Len(t, m.requests, 1)
	require.Equal(t, workflows.ExecuteModuleInput{Module: "acme.vision.Detect", Input: []byte(`{"a":1}`), TimeoutSeconds: 7}, m.requests[0].Input)
	for kind, in := range map[fleet.Kind]workflows.ExecuteModuleInput{
		fleet.Invalid:  {Module: "nothing"},
		fleet.TooLarge: {Module: "acme.Detect", Input: []byte(`"` + strings.Repeat("x", fleet.MaxDurableInput) + `"`)},
	} {
		_, err := runModule(t, m, "whatever", workflows.TypeExecuteModule, in)
		var refused *temporal.ApplicationError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, string(kind), refused.Type())
	}
	require.Len(t, m.requests, 1)
}
