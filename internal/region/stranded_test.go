package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// X25: who waits for a door that is ended reads what became of what it asked for.
func TestLastWord(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		asked *postgres.Operation
		want  string
	}{
		"nothing was asked for": {nil, ""},
		"it goes on":            {&postgres.Operation{ID: "o1", State: fleet.OperationRunning}, "; its operation goes on: holdfast get operation o1"},
		"it succeeded":          {&postgres.Operation{ID: "o1", State: fleet.OperationSucceeded}, "; its operation o1 ended: succeeded"},
		"it failed":             {&postgres.Operation{ID: "o1", State: fleet.OperationFailed, Reason: "deadline"}, "; its operation o1 ended: failed, deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, lastWord(c.asked))
		})
	}
}
