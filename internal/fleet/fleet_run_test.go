package fleet_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

var update = flag.Bool("update", false, "rewrite the golden files, and the diagrams in docs")

// golden compares a text with a file, or with the part of a page between two marks.
func golden(t *testing.T, file, begin, end, text string) {
	t.Helper()
	old, err := os.ReadFile(file)
	if err != nil && !*update {
		require.NoError(t, err)
	}
	page := text
	if begin != "" {
		before, rest, found := strings.Cut(string(old), begin)
		require.True(t, found, "%s has no %q", file, begin)
		_, after, found := strings.Cut(rest, end)
		require.True(t, found, "%s has no %q", file, end)
		page = before + begin + text + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o600))
		return
	}
	require.Equal(t, string(old), page, "go test ./internal/fleet -update")
}

// N99, X7: every state by every event. What is not in the table is illegal_state.
func TestFleetMachine(t *testing.T) {
	t.Parallel()
	var matrix, diagram strings.Builder
	_, _ = fmt.Fprintf(&matrix, "%-11s", "")
	for _, on := range fleet.FleetEvents() {
		_, _ = fmt.Fprintf(&matrix, "%-11s", on)
	}
	diagram.WriteString("stateDiagram-v2\n  [*] --> running\n")
	for _, from := range fleet.FleetStates() {
		_, _ = fmt.Fprintf(&matrix, "\n%-11s", from)
		for _, on := range fleet.FleetEvents() {
			to, err := from.Next(on)
			if err != nil {
				require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
				require.Equal(t, from, to)
				_, _ = fmt.Fprintf(&matrix, "%-11s", "-")
				continue
			}
			_, _ = fmt.Fprintf(&matrix, "%-11s", to)
			_, _ = fmt.Fprintf(&diagram, "  %s --> %s: %s\n", from, to, on)
		}
	}
	lines := strings.Split(matrix.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	golden(t, "testdata/fleet_machine.golden", "", "", strings.Join(lines, "\n")+"\n")
	golden(t, "../../docs/fleet-states.md", "```mermaid\n", "```\n", diagram.String())
}

// X19: what is refused says what can be asked for instead.
func TestFleetMachineSaysWhatItCan(t *testing.T) {
	t.Parallel()
	for from, want := range map[fleet.FleetState]string{
		fleet.FleetRunning:    "it can pause or cancel",
		fleet.FleetPaused:     "it can resume or cancel",
		fleet.FleetStopped:    "it can resume, retry, cancel or rollback",
		fleet.FleetSucceeded:  "it can retry or rollback",
		fleet.FleetCancelled:  "it can rollback",
		fleet.FleetSuperseded: "",
	} {
		for _, on := range []fleet.FleetEvent{fleet.FleetPause, fleet.FleetFinish} {
			_, err := from.Next(on)
			if err == nil {
				continue
			}
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, want, e.Hint)
			require.Contains(t, e.Message, string(from))
		}
	}
}

func TestFleetCounts(t *testing.T) {
	t.Parallel()
	var c fleet.FleetCounts
	for i, state := range fleet.FleetTargetStates() {
		c.Add(state, 1<<i)
	}
	require.Equal(t, fleet.FleetCounts{
		Total: 127, Waiting: 1, Delivering: 2, Staged: 4, Succeeded: 8, Unchanged: 16, Superseded: 32, Failed: 64,
	}, c)
	require.Equal(t, 56, c.Good())
	require.False(t, c.Over())
	require.True(t, fleet.FleetCounts{Failed: 1, Total: 1}.Over())
}

// N99
func TestFleetOperation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		on     fleet.FleetEvent
		reason string
		failed int
		want   fleet.OperationState
	}{
		{fleet.FleetStop, "error_threshold", 0, fleet.OperationFailed},
		{fleet.FleetStop, fleet.FleetRetried, 0, fleet.OperationSucceeded},
		{fleet.FleetStop, fleet.FleetRetried, 1, fleet.OperationFailed},
		{fleet.FleetFinish, "", 0, fleet.OperationSucceeded},
		{fleet.FleetFinish, "", 1, fleet.OperationSucceeded},
		{fleet.FleetCancel, "cancelled", 0, fleet.OperationCancelled},
	} {
		t.Run(fmt.Sprint(c.on, " ", c.reason, " ", c.failed), func(t *testing.T) {
			t.Parallel()
			require.True(t, c.on.Ends())
			require.Equal(t, c.want, c.on.Operation(c.reason, fleet.FleetCounts{Failed: c.failed}))
		})
	}
	require.False(t, fleet.FleetPause.Ends() || fleet.FleetResume.Ends() || fleet.FleetRetry.Ends())
}
