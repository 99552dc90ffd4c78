package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// machineText prints every state by every event, and the diagram of what is an arrow.
func machineText[S, E ~string](t *testing.T, states []S, events []E, next func(S, E) (S, error)) (matrix, diagram string) {
	t.Helper()
	var m, d strings.Builder
	width := 0
	for _, s := range states {
		width = max(width, len(s)+1)
	}
	_, _ = fmt.Fprintf(&m, "%-16s", "")
	for _, from := range states {
		_, _ = fmt.Fprintf(&m, "%-*s", width, from)
	}
	_, _ = fmt.Fprintf(&d, "stateDiagram-v2\n  [*] --> %s\n", states[0])
	for _, on := range events {
		_, _ = fmt.Fprintf(&m, "\n%-16s", on)
		for _, from := range states {
			to, err := next(from, on)
			if err != nil {
				require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
				require.Equal(t, from, to)
				_, _ = fmt.Fprintf(&m, "%-*s", width, "-")
				continue
			}
			_, _ = fmt.Fprintf(&m, "%-*s", width, to)
			_, _ = fmt.Fprintf(&d, "  %s --> %s: %s\n", from, to, on)
		}
	}
	lines := strings.Split(m.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n") + "\n", d.String()
}

// S33 to S45: every state by every event. What is not in the table is illegal_state (S42).
func TestDeploymentMachine(t *testing.T) {
	t.Parallel()
	matrix, diagram := machineText(t, fleet.DeploymentStates(), fleet.DeploymentEvents(), fleet.DeploymentState.Next)
	golden(t, "testdata/deployment_machine.golden", "", "", matrix)
	golden(t, "../../docs/deployment-states.md", "```mermaid\n", "```\n", diagram)
	for _, s := range fleet.DeploymentStates() {
		if s == fleet.DeploymentDestroying || s == fleet.DeploymentTerminated {
			continue
		}
		to, err := s.Next(fleet.DeploymentDeleted)
		require.NoError(t, err, "S43: a delete is accepted in every state")
		require.Equal(t, fleet.DeploymentDestroying, to)
	}
}

// F67, F73: every state by every event; nothing leaves the end of a rollout.
func TestRolloutMachine(t *testing.T) {
	t.Parallel()
	matrix, diagram := machineText(t, fleet.RolloutStates(), fleet.RolloutEvents(), fleet.RolloutState.Next)
	golden(t, "testdata/rollout_machine.golden", "", "", matrix)
	golden(t, "../../docs/rollouts.md", "```mermaid\nstate", "```\n", strings.TrimPrefix(diagram, "state"))
	for _, s := range fleet.RolloutStates() {
		_, err := s.Next(fleet.RolloutSupersede)
		require.Equal(t, s.Active(), err == nil, "F61: whatever is under way can be superseded")
	}
}

// S46 to S56: every state by every event; nothing leaves TERMINATED.
func TestReplicaMachine(t *testing.T) {
	t.Parallel()
	matrix, diagram := machineText(t, fleet.ReplicaStates(), fleet.ReplicaEvents(), fleet.ReplicaState.Next)
	golden(t, "testdata/replica_machine.golden", "", "", matrix)
	golden(t, "../../docs/replica-states.md", "```mermaid\n", "```\n", diagram)
	for _, s := range fleet.ReplicaStates() {
		_, err := s.Next(fleet.ReplicaTerminate)
		require.Equal(t, s.Live(), err == nil, "S56: whatever lives can be ended")
	}
}
