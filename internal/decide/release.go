package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// ReleaseSeen is what a release of a deployment finds.
type ReleaseSeen struct {
	// Waits is set if another declaration of the name has to end first.
	Waits bool
	State fleet.DeploymentState
	// Target is what there is to be now, NextTarget what there is to be of what is released.
	Target, NextTarget int
	// Released is set if something was released before. WasStopped and Stopped say whether that, and what is released
	// now, is declared stopped.
	Released, WasStopped, Stopped bool
	// Rolling is set during a rollout, Returning if it returns or has been asked to.
	Rolling, Returning bool
	// SameAsOwn and SameAsNext say whether replicas of the deployment's own revision, and of the one that is rolled out,
	// need no new process.
	SameAsOwn, SameAsNext bool
	// Stable is set if a revision has run as it was to, SameAsStable if its replicas need no new process.
	Stable, SameAsStable bool
	// NeedsRestart is set if it waits for a restart where anything runs of what is applied.
	NeedsRestart bool
}

// Applied is what a release finds that only amends what is applied: the revision that is rolled out, or the
// deployment's own.
func (s ReleaseSeen) Applied() ReleaseSeen {
	s.SameAsNext = s.Rolling && !s.Returning
	s.SameAsOwn, s.NeedsRestart, s.Stable = !s.SameAsNext, false, false
	return s
}

// joins: it is of the content that is rolled out.
func (s ReleaseSeen) joins() bool { return s.Rolling && !s.Returning && s.SameAsNext }

// Idle reports whether nothing is to run until this release, or the deployment does not run.
func (s ReleaseSeen) Idle() bool {
	return s.WasStopped || s.Target == 0 || s.State != fleet.DeploymentRunning && !s.NeedsRestart
}

// BeganIn is the state of the deployment in which its rollout begins: PENDING also where a RUNNING one is to run nothing.
func (s ReleaseSeen) BeganIn() fleet.DeploymentState {
	switch {
	case !s.Idle():
		return fleet.DeploymentRunning
	case s.State == fleet.DeploymentRunning:
		return fleet.DeploymentPending
	}
	return s.State
}

// starts: nothing runs, and there is a revision to return to if what is released fails.
func (s ReleaseSeen) starts() bool {
	return s.Idle() && s.Stable && !s.SameAsStable && !s.Waits && !s.Stopped && s.NextTarget > 0 && !s.joins()
}

// ReleaseWay is how a release reaches what runs.
type ReleaseWay string

// It keeps what runs, joins the rollout of the same content, waits for a restart while what is applied runs on, starts a
// rollout beside the stable revision, or is the deployment's own revision at once, because nothing runs to which it could return.
const (
	ReleaseKeeps    ReleaseWay = "keeps"
	ReleaseJoins    ReleaseWay = "joins"
	ReleasePends    ReleaseWay = "pends"
	ReleaseRollsOut ReleaseWay = "rolls_out"
	ReleaseAtOnce   ReleaseWay = "at_once"
)

// Beside reports whether the deployment's own revision stays.
func (w ReleaseWay) Beside() bool { return w == ReleaseJoins || w == ReleaseRollsOut }

// Release decides how a release reaches what runs, by the first rule that matches.
func Release(seen ReleaseSeen) ReleaseWay {
	for _, r := range releaseRules {
		if r.when(seen) {
			return r.way
		}
	}
	return ReleaseAtOnce
}

var releaseRules = []struct {
	way  ReleaseWay
	when func(ReleaseSeen) bool
}{
	{ReleaseRollsOut, ReleaseSeen.starts},
	{ReleaseKeeps, func(s ReleaseSeen) bool { return s.SameAsOwn }},
	{ReleaseAtOnce, func(s ReleaseSeen) bool { return s.Waits || !s.Released || s.Stopped || s.WasStopped }},
	{ReleaseJoins, ReleaseSeen.joins},
	{ReleasePends, func(s ReleaseSeen) bool { return s.NeedsRestart && s.Target > 0 }},
	{ReleaseRollsOut, func(s ReleaseSeen) bool { return s.State == fleet.DeploymentRunning && s.Target > 0 }},
}
