package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// UnlistedNamed is the rule of a replica that the set already lists to end.
const UnlistedNamed = "named"

var unlistedRules = []struct {
	name string
	when func(s fleet.UnlistedSeen, room bool) bool
	do   fleet.AbsenceDo
}{
	{UnlistedNamed, func(s fleet.UnlistedSeen, _ bool) bool { return s.Named }, fleet.AbsenceKeep},
	{fleet.OrphanNeverKnown, func(s fleet.UnlistedSeen, _ bool) bool { return !s.Ended }, fleet.AbsenceWait},
	{"over", func(s fleet.UnlistedSeen, _ bool) bool { return s.Over }, fleet.AbsenceDrop},
	{fleet.OrphanOverCap, func(s fleet.UnlistedSeen, room bool) bool { return s.Listed || !room }, fleet.AbsenceWait},
	{"tombstone", func(fleet.UnlistedSeen, bool) bool { return true }, fleet.AbsenceDrop},
}

// UnlistedReplica decides about a replica that a node has and its set does not list (X3, X28). Only what the region
// itself ended is ended again, by its tombstone, up to DropCap running ones per pass (room). What the region never
// knew keeps running and waits for an operator: a region restored from a backup knows nothing of what started
// since.
func UnlistedReplica(s fleet.UnlistedSeen, room bool) (fleet.AbsenceDo, string) { //nolint:revive // room is an observation
	for _, r := range unlistedRules {
		if r.when(s, room) {
			return r.do, r.name
		}
	}
	return fleet.AbsenceKeep, "unmatched"
}
