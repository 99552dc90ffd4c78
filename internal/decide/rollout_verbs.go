package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Turn decides what a request makes of a rollout: its state and its step. The request may name the step that it means, counted
// from 1, 0 for whichever. Turn reports whether anything changes: what is so already, was asked before or means another step is not
// an error. A rollout that returns is illegal_state.
//
// A rollout that resumes goes to the next step if it has reached one, also in an interval, and on to the one under way otherwise.
// Promoted, it goes past all steps.
func Turn(r fleet.RolloutSeen, on fleet.RolloutEvent, step int) (fleet.RolloutSeen, bool, error) {
	last, reached := len(r.Strategy.Plan()), !r.StepAt.IsZero()
	switch {
	case step != 0 && step != r.Step+1,
		on == fleet.RolloutPause && r.State == fleet.RolloutPaused,
		on == fleet.RolloutResume && r.State.Going() && !reached,
		on == fleet.RolloutPromote && r.State.Going() && r.Step >= last:
		return r, false, nil
	case on == fleet.RolloutResume && r.State == fleet.RolloutDeploying: // the interval is over
	default:
		to, err := r.State.Next(on)
		if err != nil {
			return r, false, err
		}
		r.State = to
	}
	switch {
	case on == fleet.RolloutResume && reached:
		r.Step, r.StepAt = r.Step+1, time.Time{}
	case on == fleet.RolloutPromote && r.Step < last:
		r.Step, r.StepAt = last, time.Time{}
	}
	return r, true, nil
}
