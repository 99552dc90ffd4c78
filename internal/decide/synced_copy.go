package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The reasons of the condition synced that only copies have.
const (
	SyncedSetAside = "set_aside"
	SyncedBehind   = "behind"
)

const syncStatus = "holdfast sync status"

// copyLag is how far a region may be behind a peer at rest: the peer says every 5 s that it has nothing new.
const copyLag = 30 * time.Second

// SyncedCopySeen is what a read finds of a copy of what another region owns.
type SyncedCopySeen struct {
	Now   time.Time
	Owner fleet.RegionName
	// Written is when the state that is here was written at its owner.
	Written time.Time
	// Aside is since when a newer state of the object is set aside, and AsideFor the rule; zero if none is.
	Aside    time.Time
	AsideFor string
	// Waits is since when a newer state waits for what it is composed of, and Problem what failed last; zero if none does.
	Waits   time.Time
	Problem string
	// Lag is how far the copies of the owner are behind, negative if they never were up to date.
	Lag time.Duration
}

// SyncedCopy decides whether a copy is what its owner declares, by the first rule that matches.
func SyncedCopy(seen SyncedCopySeen) fleet.Condition {
	for _, r := range syncedCopyRules {
		if r.when(seen) {
			c := r.then(seen)
			c.Type, c.Status, c.Reason = ConditionSynced, fleet.ConditionFalse, r.name
			return c
		}
	}
	return fleet.Condition{Type: ConditionSynced, Status: fleet.ConditionTrue, Reason: SyncedAsDeclared, Since: seen.Written}
}

var syncedCopyRules = []struct {
	name string
	when func(SyncedCopySeen) bool
	then func(SyncedCopySeen) fleet.Condition
}{
	{SyncedSetAside, func(s SyncedCopySeen) bool { return !s.Aside.IsZero() }, func(s SyncedCopySeen) fleet.Condition {
		return fleet.Condition{
			Since: s.Aside, Message: fmt.Sprintf("a newer state was not taken: %s", s.AsideFor), Hint: "holdfast sync quarantine " + string(s.Owner),
		}
	}},
	{SyncedBehind, func(s SyncedCopySeen) bool { return !s.Waits.IsZero() }, func(s SyncedCopySeen) fleet.Condition {
		message := "a newer state waits for the template generations and bodies that it names"
		if s.Problem != "" {
			message += ": " + s.Problem
		}
		return fleet.Condition{Since: s.Waits, Message: message, Hint: syncStatus}
	}},
	{SyncedBehind, func(s SyncedCopySeen) bool { return s.Lag < 0 }, func(s SyncedCopySeen) fleet.Condition {
		return fleet.Condition{Since: s.Written, Message: fmt.Sprintf("this region has not had all of region %s yet", s.Owner), Hint: syncStatus}
	}},
	{SyncedBehind, func(s SyncedCopySeen) bool { return s.Lag > copyLag }, func(s SyncedCopySeen) fleet.Condition {
		return fleet.Condition{
			Since: s.Now.Add(-s.Lag), Message: fmt.Sprintf("this region had all of region %s %s ago", s.Owner, s.Lag.Round(time.Second)), Hint: syncStatus,
		}
	}},
}
