package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X8, X18: whether a copy is what its owner declares, else why not, since when, and where to look.
func TestSyncedCopy(t *testing.T) {
	t.Parallel()
	seen := func(change ...func(*decide.SyncedCopySeen)) decide.SyncedCopySeen {
		s := decide.SyncedCopySeen{Now: noon, Owner: "eu", Written: before(20), Lag: 5 * time.Second}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	aside := func(s *decide.SyncedCopySeen) { s.Aside, s.AsideFor = before(3), "not_shared" }
	waits := func(s *decide.SyncedCopySeen) { s.Waits = before(2) }
	problem := func(s *decide.SyncedCopySeen) { s.Problem = "generation 4 of eu/base is missing" }
	lag := func(of time.Duration) func(*decide.SyncedCopySeen) {
		return func(s *decide.SyncedCopySeen) { s.Lag = of }
	}
	const composed = "a newer state waits for the template generations and bodies that it names"
	for name, c := range map[string]struct {
		seen    decide.SyncedCopySeen
		reason  string
		since   int // minutes before noon
		message string
		hint    string
	}{
		"at rest":            {seen(), "as_declared", 20, "", ""},
		"nearly at rest":     {seen(lag(30 * time.Second)), "as_declared", 20, "", ""},
		"far behind":         {seen(lag(5 * time.Minute)), "behind", 5, "this region had all of region eu 5m0s ago", "holdfast sync status"},
		"never there":        {seen(lag(-1)), "behind", 20, "this region has not had all of region eu yet", "holdfast sync status"},
		"it waits":           {seen(waits), "behind", 2, composed, "holdfast sync status"},
		"it waits, and why":  {seen(waits, problem, lag(-1)), "behind", 2, composed + ": generation 4 of eu/base is missing", "holdfast sync status"},
		"it was not taken":   {seen(aside), "set_aside", 3, "a newer state was not taken: not_shared", "holdfast sync quarantine eu"},
		"nor is the rest in": {seen(aside, waits, lag(-1)), "set_aside", 3, "a newer state was not taken: not_shared", "holdfast sync quarantine eu"},
	} {
		status := fleet.ConditionFalse
		if c.reason == decide.SyncedAsDeclared {
			status = fleet.ConditionTrue
		}
		require.Equal(t, fleet.Condition{
			Type: "synced", Status: status, Reason: c.reason, Message: c.message, Hint: c.hint, Since: before(c.since),
		}, decide.SyncedCopy(c.seen), name)
	}
}
