package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// tellHow says how far it is.
func (r *rollout) tellHow() string {
	of := r.tally()
	switch r.state { //nolint:exhaustive // the last return is for the others
	case fleet.RolloutCanceling:
		if r.restarts() {
			return fmt.Sprintf("the restart of revision %d is taken back, because of %s: %s", r.To.Revision, r.why(), of)
		}
		return fmt.Sprintf("it returns from revision %d to revision %d, because of %s: %s", r.To.Revision, r.seen.Revision, r.why(), of)
	case fleet.RolloutPaused:
		return fmt.Sprintf("the rollout of revision %d is paused, until %s at most%s: %s", r.To.Revision, r.resumedBy().UTC().Format(time.RFC3339), r.at(), of)
	case fleet.RolloutDeployed:
		if r.plan.Reason == ReasonUnproven {
			return fmt.Sprintf("revision %d is not proven, as the target is 0: its next start is a rollout", r.To.Revision)
		}
		return fmt.Sprintf("revision %d runs everywhere", r.To.Revision)
	case fleet.RolloutCanceled, fleet.RolloutFailed:
		if r.restarts() {
			return fmt.Sprintf("the restart of revision %d was taken back: %s", r.To.Revision, r.why())
		}
		return fmt.Sprintf("revision %d was rolled back to revision %d: %s", r.To.Revision, r.seen.Revision, r.why())
	}
	switch why := whyNone(r.next.good); {
	case r.plan.Failure != "":
		of += "; " + r.plan.Failure
	case why != "":
		of += "; " + why
	}
	of += clockTexts[r.plan.Clock]
	if r.recreates() && r.Step < recreateStart {
		of = "its replicas end before the first new one starts"
	}
	if r.restarts() {
		return fmt.Sprintf("revision %d is restarted: %s", r.To.Revision, of)
	}
	if r.starts() {
		return fmt.Sprintf("revision %d starts%s: %s", r.To.Revision, r.at(), of)
	}
	return fmt.Sprintf("revision %d replaces revision %d%s: %s", r.To.Revision, r.seen.Revision, r.at(), of)
}

// tally says how many replicas are proven of the revision that is to run, and how many are healthy of all.
func (r *rollout) tally() string {
	healthy := len(heard(r.stable.good)) + len(heard(r.stable.stale)) + len(heard(r.next.good)) + len(heard(r.next.stale))
	return fmt.Sprintf("%d of %d replicas are proven, %d are healthy", len(r.proven()), r.seen.Target, healthy)
}

// at says at which step of a canary it is.
func (r *rollout) at() string {
	if !r.stepping() {
		return ""
	}
	x := r.steps()[r.Step]
	s := fmt.Sprintf(", step %d of %d with %d %% of the replicas", r.Step+1, len(r.steps())+1, x.Weight)
	switch {
	case r.StepAt.IsZero() || len(r.proven()) < r.limit():
	case r.state == fleet.RolloutPaused:
		s += ", reached; resume or promote it"
	default:
		s += fmt.Sprintf(", reached; the next is in %s", r.StepAt.Add(x.Wait()).Sub(r.seen.At).Round(time.Second))
	}
	return s
}

// why is the reason of its return, with the newest failure of the new revision.
func (r *rollout) why() string {
	if r.plan.Failure != "" && r.plan.Reason != ReasonCancelled {
		return r.plan.Reason + "; " + r.plan.Failure
	}
	return r.plan.Reason
}

// restarts: it brings the stable revision itself, as new processes.
func (r *rollout) restarts() bool { return r.To.Revision == r.seen.Revision }

// RolloutPhase is what a rollout is at, of whose new replicas some are proven; "" when it has ended (S126).
func RolloutPhase(r fleet.RolloutSeen, proven int) fleet.RolloutPhase {
	steps := len(r.Strategy.Plan())
	recreates := r.Strategy.Type == fleet.StrategyRecreate
	switch {
	case !r.State.Active():
		return ""
	case r.State == fleet.RolloutCanceling:
		return fleet.PhaseRollingBack
	case recreates && r.Step == recreateStop:
		return fleet.PhaseDraining
	case r.Want == 0:
		return fleet.PhaseInitializing
	case proven < r.Want && steps > 0 && r.Step >= steps:
		return fleet.PhasePromoting
	case proven < r.Want:
		return fleet.PhaseProvisioning
	case r.Step < steps:
		return fleet.PhaseProvisioned
	}
	return fleet.PhaseDraining
}

// clockTexts say what stopped or moved the time without progress, where the rest of a message does not show it.
var clockTexts = map[fleet.RolloutClock]string{
	fleet.ClockPreparing:    "; the progress deadline does not run while a replica downloads its definition or pulls its image",
	fleet.ClockNotConnected: "; the progress deadline does not run while the node of a new replica is not connected",
	fleet.ClockReconnected:  "; the progress deadline counts from when the node of a new replica reconnected",
	fleet.ClockRegionBack:   "; the progress deadline counts from when the region was back",
	fleet.ClockScaled:       "; the progress deadline counts from the change of the target",
	fleet.ClockJoined:       "; the progress deadline counts from the release that joined the rollout",
}
