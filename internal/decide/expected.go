package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The reasons why a node ignores an expected set; they are a stable API.
const (
	SetTruncated = "set_truncated" // not as many lines as the region counted, or a duplicate
	SetOlder     = "set_older"     // than one that the node already has
	SetEmpty     = "set_empty"     // while the node holds something
)

// RefuseSet is the reason not to act on a set, "" to act on it (N86, X3). A set that is truncated, or comes from a
// restored region, must not remove anything.
func RefuseSet(set fleet.ExpectedSet, seen fleet.SetVersion, holds int) string {
	names := make(map[fleet.InstanceName]bool, len(set.Instances))
	for _, e := range set.Instances {
		names[e.Instance] = true
	}
	switch {
	case len(names) != set.Count || len(set.Instances) != set.Count:
		return SetTruncated
	case seen.Newer(set.Version):
		return SetOlder
	case set.Count == 0 && holds > 0:
		return SetEmpty
	}
	return ""
}

// SetGap is how one name compares with the expected set.
type SetGap string

// The results of a comparison: as expected; to be fetched; left alone while in flight; ahead of the region; or
// extra, which is held but not expected.
const (
	SetEqual SetGap = "equal"
	SetFetch SetGap = "fetch"
	SetLeave SetGap = "in_flight"
	SetAhead SetGap = "ahead"
	SetExtra SetGap = "extra"
)

// CompareSet compares one expected instance with what the node holds under its name. Hashes show whether two are
// the same, never which is newer (N85, X1).
func CompareSet(e fleet.ExpectedInstance, held fleet.Held) SetGap {
	same := held.Known && held.Content.Hash == e.RevisionHash && held.RunHash == e.RunHash && held.Enabled == e.Enabled
	switch {
	case held.Known && held.Version == e.Version() && same:
		return SetEqual
	case e.InFlight:
		return SetLeave
	case held.Known && !e.Version().Newer(held.Version), held.HighWater.Newer(e.Version()):
		return SetAhead // also one number with two contents: the region assigns a new one
	}
	return SetFetch
}

// ExtraHeld reports whether a name that the set does not list exists on the node. A tombstone does not, nor what
// was tried and never applied. What runs without a row does.
func ExtraHeld(held fleet.Held) bool {
	return held.Known && !held.Version.IsZero() && held.Action != fleet.ActionDelete || !held.Known && held.Running
}

var absenceRules = []struct {
	name string
	when func(s fleet.AbsenceSeen, room bool) bool
	do   fleet.AbsenceDo
}{
	{"under_way", func(s fleet.AbsenceSeen, _ bool) bool { return s.UnderWay }, fleet.AbsenceKeep},
	{"owed", func(s fleet.AbsenceSeen, _ bool) bool { return s.Owed }, fleet.AbsenceKeep},
	{"expected", func(s fleet.AbsenceSeen, _ bool) bool {
		return !s.Deployed.IsZero() && s.Deployed.Action != fleet.ActionDelete
	}, fleet.AbsenceKeep},
	{"not_recorded", func(s fleet.AbsenceSeen, _ bool) bool { return s.Known && s.Deployed.IsZero() }, fleet.AbsenceKeep},
	{"ahead", func(s fleet.AbsenceSeen, _ bool) bool {
		return !s.Deployed.IsZero() && !s.Deployed.Version.Newer(s.Held)
	}, fleet.AbsenceKeep},
	{"approved", func(s fleet.AbsenceSeen, _ bool) bool { return s.Approved }, fleet.AbsenceDrop},
	{fleet.OrphanNeverKnown, func(s fleet.AbsenceSeen, _ bool) bool { return !s.Known }, fleet.AbsenceWait},
	{fleet.OrphanOverCap, func(s fleet.AbsenceSeen, room bool) bool { return s.Listed || !room }, fleet.AbsenceWait},
	{"tombstone", func(fleet.AbsenceSeen, bool) bool { return true }, fleet.AbsenceDrop},
}

// Absent decides about one name that a node holds and its site's expected set does not list (X3, X28). Room is
// whether this pass may drop one more.
func Absent(s fleet.AbsenceSeen, room bool) (fleet.AbsenceDo, string) { //nolint:revive // room is an observation
	for _, r := range absenceRules {
		if r.when(s, room) {
			return r.do, r.name
		}
	}
	return fleet.AbsenceKeep, "unmatched"
}

// DropCap is how many orphans one pass over a node may drop without an operator (N86): 5% of what its site expects,
// but at least ten, so that a small site heals itself.
func DropCap(expected int) int { return max(dropFloor, expected/dropShare) }

const (
	dropFloor = 10
	dropShare = 20
)

// ReconcilePass is the result so far of comparing a node.
type ReconcilePass struct {
	Report fleet.ReconcileReport
	// Failure is why the node's own comparison failed, "" if it did not; Message explains it to people. Tries is
	// how often the node was asked.
	Failure, Message string
	Tries            int
	// Woken counts the instances handed to their own deliveries.
	Woken int
}

const (
	// compareTries limits how often one pass asks a node that cannot reach the region.
	compareTries = 3
	compareGap   = 2 * time.Second
)

// CompareAgain decides whether to ask the node once more, and after which pause. It retries only what may pass by
// itself, after 4 s and 8 s. If the node's lease is moving, its role or epoch has changed by then.
func CompareAgain(p ReconcilePass) (wait time.Duration, again bool) {
	passes := p.Failure == string(fleet.Communication) || p.Failure == string(fleet.Stale)
	return compareGap << p.Tries, passes && p.Tries < compareTries
}

// RegionMends reports whether the region has something to repair. It does not if the node matched its expected set,
// unless the region's own records require the comparison.
func RegionMends(p ReconcilePass, recordsDrifted bool) bool {
	return recordsDrifted || p.Failure != "" || !p.Report.Clean()
}

// ReconcileOutcome decides how a comparison ended.
func ReconcileOutcome(p ReconcilePass) (state fleet.OperationState, reason, message string) {
	r := p.Report
	switch {
	case p.Failure == string(fleet.Unavailable):
		return fleet.OperationFailed, p.Failure, p.Message + "; it is compared again when it starts, and by the schedule"
	case p.Failure != "":
		return fleet.OperationFailed, p.Failure, p.Message
	case r.Refused != "":
		return fleet.OperationFailed, r.Refused, "the node refused the expected set: " + r.Refused
	case r.Unchanged && r.Restored == 0 && r.Failed == 0:
		return fleet.OperationSucceeded, "unchanged", "nothing has changed since the node last matched the expected set"
	}
	message = fmt.Sprintf("%d expected, %d equal, %d fetched, %d dropped", r.Expected, r.Equal, r.Fetched, r.Dropped)
	if r.Unchanged {
		message = "the set is unchanged"
	}
	for _, more := range []struct {
		n    int
		what string
	}{
		{r.Left, "left alone"},
		{r.Ahead, "ahead of the region"},
		{r.Failed, "failed"},
		{r.Waiting, "wait for an operator"},
		{r.Restored, "files restored"},
		{p.Woken, "handed to their own delivery"},
	} {
		if more.n > 0 {
			message += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	switch {
	case r.Failed > 0:
		return fleet.OperationFailed, "not_all_fetched", message
	case r.Waiting > 0:
		return fleet.OperationSucceeded, "orphans_wait", message
	case r.Restored > 0:
		return fleet.OperationSucceeded, "files_restored", message
	}
	return fleet.OperationSucceeded, "reconciled", message
}
