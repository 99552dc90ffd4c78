package decide

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ConditionSynced is the type of the condition whether what is declared is what runs.
const ConditionSynced = "synced"

// The reasons of the condition synced, of every kind that has it; a kind may have others beside them. They are a stable API.
const (
	SyncedDeleting       = "deleting"
	SyncedNotReleased    = "not_released"
	SyncedGivenUp        = "given_up"
	SyncedPaused         = "paused"
	SyncedRollingOut     = "rolling_out"
	SyncedPendingRestart = "pending_restart"
	SyncedCancelled      = "cancelled"
	SyncedRolledBack     = "rolled_back"
	SyncedAsDeclared     = "as_declared"
)

// SyncedSeen is what a read finds of a declared deployment. Times are zero, and revisions and generations 0, for none.
type SyncedSeen struct {
	Name fleet.DeploymentName
	// Generation is that of the declaration, Written when it was written last, Deleting since when it is being deleted.
	Generation        int64
	Written, Deleting time.Time
	// Newest was released last, Own is the deployment's own revision: the stable one during a rollout.
	Newest, Own SyncedRevision
	// Earlier is set if Own, and what runs, is of an earlier declaration of the name that has to end first.
	Earlier bool
	// State and Message are of the last visit.
	State   fleet.DeploymentState
	Since   time.Time
	Message string
	// Stopped is set if Own is declared stopped. Present are the replicas that have not ended.
	Stopped bool
	Present int
	// Waits is set if Newest waits for a restart. Replacing is since when replicas of Own are replaced without a rollout.
	Waits     bool
	Replacing time.Time
	// Rollout is the newest, nil without one.
	Rollout *SyncedRollout
}

// SyncedRevision is a revision of a deployment.
type SyncedRevision struct {
	Revision, Generation int64
	At                   time.Time
}

// SyncedRollout is a rollout that is under way, or has ended.
type SyncedRollout struct {
	State           fleet.RolloutState
	Reason, Message string
	To              int64
	Began, Since    time.Time
}

// Synced decides whether what is declared of a deployment is what runs, by the first rule that matches. Whether that is healthy is
// for the other conditions to say.
func Synced(seen SyncedSeen) fleet.Condition {
	for _, r := range syncedRules {
		if r.when(seen) {
			c := r.then(seen)
			c.Type, c.Status, c.Reason = ConditionSynced, fleet.ConditionFalse, r.name
			return c
		}
	}
	return fleet.Condition{Type: ConditionSynced, Status: fleet.ConditionTrue, Reason: SyncedAsDeclared, Revision: seen.Own.Revision, Since: seen.settledSince()}
}

var syncedRules = []struct {
	name string
	when func(SyncedSeen) bool
	then func(SyncedSeen) fleet.Condition
}{
	{SyncedDeleting, func(s SyncedSeen) bool { return !s.Deleting.IsZero() }, SyncedSeen.sayDeleting},
	{SyncedNotReleased, func(s SyncedSeen) bool { return s.Generation != s.Newest.Generation }, SyncedSeen.sayNotReleased},
	{SyncedRollingOut, func(s SyncedSeen) bool { return s.Earlier }, SyncedSeen.sayWaits},
	{SyncedGivenUp, func(s SyncedSeen) bool { return s.State == fleet.DeploymentError }, SyncedSeen.sayGivenUp},
	{SyncedPaused, func(s SyncedSeen) bool { return s.rollout().State == fleet.RolloutPaused }, SyncedSeen.sayPaused},
	{SyncedRollingOut, func(s SyncedSeen) bool { return s.rollout().State.Going() }, SyncedSeen.sayRollingOut},
	{SyncedRollingOut, SyncedSeen.begins, SyncedSeen.sayBegins},
	{SyncedPendingRestart, func(s SyncedSeen) bool { return s.Waits }, SyncedSeen.sayPending},
	{SyncedCancelled, func(s SyncedSeen) bool { return s.differs() && s.rollout().Reason == ReasonCancelled }, SyncedSeen.sayReturned},
	{SyncedRolledBack, SyncedSeen.differs, SyncedSeen.sayReturned},
}

func (s SyncedSeen) rollout() SyncedRollout {
	if s.Rollout == nil {
		return SyncedRollout{}
	}
	return *s.Rollout
}

// begins: without a rollout, the first replicas are on their way, all are replaced, or those of a stopped deployment have to end.
func (s SyncedSeen) begins() bool {
	switch {
	case s.rollout().State.Active() || s.differs() && !s.Waits:
		return false
	case s.Stopped:
		return s.Present > 0
	}
	return s.State != fleet.DeploymentRunning || !s.Replacing.IsZero()
}

// differs: a rollout returns, or the newest release is not what runs.
func (s SyncedSeen) differs() bool {
	return s.returns() || s.Newest.Revision != s.Own.Revision || s.Own.Generation != s.Generation
}

func (s SyncedSeen) returns() bool { return s.rollout().State == fleet.RolloutCanceling }

// settledSince is the latest of what made it as it is declared.
func (s SyncedSeen) settledSince() time.Time {
	return later(later(s.Since, s.Own.At), s.rollout().Since)
}

func (s SyncedSeen) sayDeleting() fleet.Condition {
	return fleet.Condition{Revision: s.Own.Revision, Since: s.Deleting, Message: s.Message, Hint: s.explain()}
}

func (s SyncedSeen) sayNotReleased() fleet.Condition {
	message := fmt.Sprintf("generation %d was written without being released", s.Generation)
	if s.Newest.Revision > 0 {
		message += fmt.Sprintf("; revision %d is of generation %d", s.Newest.Revision, s.Newest.Generation)
	}
	return fleet.Condition{Revision: s.Newest.Revision, Since: s.Written, Message: message, Hint: "holdfast deploy deployment/" + string(s.Name)}
}

func (s SyncedSeen) sayWaits() fleet.Condition {
	return fleet.Condition{Revision: s.Newest.Revision, Since: s.Newest.At, Message: "it begins when the deployment that had its name before has ended", Hint: s.explain()}
}

func (s SyncedSeen) sayGivenUp() fleet.Condition {
	return fleet.Condition{Revision: s.Own.Revision, Since: s.Since, Message: s.Message, Hint: s.explain()}
}

func (s SyncedSeen) sayPaused() fleet.Condition {
	return fleet.Condition{Revision: s.Rollout.To, Since: s.Rollout.Since, Message: s.Rollout.Message, Hint: "holdfast rollout resume " + string(s.Name)}
}

func (s SyncedSeen) sayRollingOut() fleet.Condition {
	return fleet.Condition{Revision: s.Rollout.To, Since: s.Rollout.Began, Message: s.Rollout.Message, Hint: s.follow()}
}

func (s SyncedSeen) sayBegins() fleet.Condition {
	since := s.Since
	if s.State == fleet.DeploymentRunning {
		since = cmp.Or(s.Replacing, s.Own.At)
	}
	return fleet.Condition{Revision: s.Own.Revision, Since: since, Message: s.Message, Hint: s.explain()}
}

func (s SyncedSeen) sayPending() fleet.Condition {
	message := fmt.Sprintf("revision %d waits for a restart", s.Newest.Revision)
	if r := s.rollout(); r.To == s.Newest.Revision && !r.State.Active() {
		message += "; its last rollout: " + r.Message
	}
	return fleet.Condition{Revision: s.Newest.Revision, Since: s.Newest.At, Message: message, Hint: "holdfast restart deployment " + string(s.Name)}
}

func (s SyncedSeen) sayReturned() fleet.Condition {
	r := s.rollout()
	c := fleet.Condition{Revision: s.Newest.Revision, Since: r.Since, Message: r.Message, Hint: "holdfast rollout retry " + string(s.Name)}
	switch {
	case s.returns():
		c.Revision, c.Hint = r.To, s.follow()
	case r.To != c.Revision:
		c.Since, c.Message = s.Newest.At, fmt.Sprintf("revision %d was released, and revision %d runs", s.Newest.Revision, s.Own.Revision)
	}
	return c
}

func (s SyncedSeen) explain() string { return "holdfast explain deployment " + string(s.Name) }
func (s SyncedSeen) follow() string {
	return "holdfast rollout status " + string(s.Name) + " --watch"
}
