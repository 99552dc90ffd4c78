package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// UnlistedNamed is the rule of a replica that its node is told to end by name already.
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

// UnlistedReplica decides about a replica that a node has and that its set does not list (X3, X28): only
// what the region ended itself is ended again, by its tombstone, so many that run in one pass as DropCap
// says (room). What it never knew runs on, and waits for an operator: a region that was restored from a
// backup knows nothing of what was begun since.
func UnlistedReplica(s fleet.UnlistedSeen, room bool) (fleet.AbsenceDo, string) { //nolint:revive // room is an observation
	for _, r := range unlistedRules {
		if r.when(s, room) {
			return r.do, r.name
		}
	}
	return fleet.AbsenceKeep, "unmatched"
}
