package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// F63: the revision that a rollback restores where none is named, and the rule that says so.
func TestRollback(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen decide.RollbackSeen
		want int64
		rule string
	}{
		"nothing was released":               {decide.RollbackSeen{Idle: true}, 0, "deployed_before"},
		"the first runs":                     {decide.RollbackSeen{Own: 1, Newest: 1, Stable: 1}, 0, "deployed_before"},
		"the first never ran":                {decide.RollbackSeen{Own: 1, Newest: 1}, 0, "deployed_before"},
		"another is rolled out":              {decide.RollbackSeen{Own: 1, Newest: 2, Stable: 1, RollsOut: true}, 1, "rolling_out"},
		"it starts what did not run":         {decide.RollbackSeen{Own: 1, Newest: 2, Stable: 1, RollsOut: true, Idle: true}, 1, "rolling_out"},
		"it is rolled out over an edit":      {decide.RollbackSeen{Own: 3, Newest: 4, Stable: 1, RollsOut: true}, 3, "rolling_out"},
		"it was rolled out":                  {decide.RollbackSeen{Own: 2, Newest: 2, Stable: 2, Before: 1}, 1, "deployed_before"},
		"it was edited in place since":       {decide.RollbackSeen{Own: 5, Newest: 5, Stable: 5, Before: 2}, 2, "deployed_before"},
		"another failed":                     {decide.RollbackSeen{Own: 2, Newest: 3, Stable: 2, Before: 1}, 0, decide.RollbackNeedsRevision},
		"another was cancelled, nothing ran": {decide.RollbackSeen{Own: 1, Newest: 2, Stable: 1, Idle: true}, 0, decide.RollbackNeedsRevision},
		"what is newer waits for a restart":  {decide.RollbackSeen{Own: 2, Newest: 3, Stable: 2, Before: 1, Waits: true}, 2, "pending_restart"},
		"that restart is under way":          {decide.RollbackSeen{Own: 2, Newest: 3, Stable: 2, Before: 1, RollsOut: true, Waits: true}, 2, "rolling_out"},
		"it was stopped":                     {decide.RollbackSeen{Own: 2, Newest: 2, Stable: 1, Idle: true}, 1, "unproven"},
		"released with a target of 0":        {decide.RollbackSeen{Own: 3, Newest: 3, Stable: 2, Before: 2, Idle: true}, 2, "unproven"},
		"scaled to 0, and proven before":     {decide.RollbackSeen{Own: 3, Newest: 3, Stable: 3, Before: 2, Idle: true}, 2, "deployed_before"},
		"an edit that was not visited yet":   {decide.RollbackSeen{Own: 3, Newest: 3, Stable: 2, Before: 1}, 1, "deployed_before"},
	} {
		to, rule := decide.Rollback(c.seen)
		require.Equal(t, []any{c.want, c.rule}, []any{to, rule}, name)
	}
}
