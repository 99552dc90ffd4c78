package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X6: a deadline has room for each replica that is replaced, and an end.
func TestOperationLimit(t *testing.T) {
	t.Parallel()
	of := func(kind fleet.OperationKind, replace int, startup time.Duration) time.Duration {
		return decide.OperationLimit(fleet.OperationTerms{
			Kind: kind, Replace: replace, Startup: startup, Check: 15 * time.Second, Stop: 10 * time.Second,
		})
	}
	const room = 35 * time.Minute
	for name, c := range map[string]struct{ got, want time.Duration }{
		"the first replicas start together": {of(fleet.OperationConverge, 0, time.Minute), room + 85*time.Second},
		"seven slow starters":               {of(fleet.OperationRestart, 7, 5*time.Minute), room + 8*(5*time.Minute+25*time.Second)},
		"a hundred quick ones":              {of(fleet.OperationConverge, 100, time.Minute), room + 101*85*time.Second},
		"all end together":                  {of(fleet.OperationDestroy, 100, time.Hour), room + 10*time.Second},
		"nobody waits for ever":             {of(fleet.OperationRestart, 10_000, 24*time.Hour), 72 * time.Hour},
	} {
		require.Equal(t, c.want, c.got, name)
	}
}
