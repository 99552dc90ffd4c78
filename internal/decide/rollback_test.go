package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// F63: the revision that a rollback restores where none is named.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen decide.RollbackSeen
		want int64
	}{
		"nothing was released":        {decide.RollbackSeen{}, 0},
		"the first runs":              {decide.RollbackSeen{Stable: 1, Newest: 1}, 0},
		"another is rolled out":       {decide.RollbackSeen{Stable: 1, Newest: 2}, 1},
		"the first never ran":         {decide.RollbackSeen{Newest: 1}, 0},
		"it was rolled out":           {decide.RollbackSeen{Stable: 2, Newest: 2, Before: 1}, 1},
		"another after it failed":     {decide.RollbackSeen{Stable: 2, Newest: 3, Before: 1}, 2},
		"it has been edited in place": {decide.RollbackSeen{Stable: 5, Newest: 5, Before: 2}, 2},
	} {
		require.Equal(t, c.want, decide.Rollback(c.seen), name)
	}
}
