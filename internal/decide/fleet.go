package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FleetDo is what a fleet change's entity does next.
type FleetDo string

// The steps of a fleet change's entity.
const (
	FleetDeliver FleetDo = "deliver" // start at more sites
	FleetAdvance FleetDo = "advance" // to the next wave
	FleetStop    FleetDo = "stop"
	FleetFinish  FleetDo = "finish"
	FleetCancel  FleetDo = "cancel"
	FleetWait    FleetDo = "wait"    // for a site, a person or a time
	FleetNothing FleetDo = "nothing" // the entity ends
)

// SiteMode is what to do at a site: deliver and switch; only fetch, while its window is closed; or switch to what
// was fetched, once the window opens (N100).
type SiteMode string

// The modes.
const (
	SiteDeliver SiteMode = "deliver"
	SiteStage   SiteMode = "stage"
	SiteSwitch  SiteMode = "switch"
)

// SiteBegin is a site to start at.
type SiteBegin struct {
	Site fleet.SiteName `json:"site"`
	Mode SiteMode       `json:"mode"`
}

// FleetAction is a step, and the rule that chose it.
type FleetAction struct {
	Rule    string
	Do      FleetDo
	Sites   []SiteBegin
	Until   time.Time // end of the wait, also after starting sites; zero waits for a wake
	Reason  string
	Message string
}

// FleetRun is what the entity's run remembers: the sites under way, ordered by name, and the last error of a site
// that used up its attempts.
type FleetRun struct {
	InFlight []fleet.SiteName
	Broken   string
}

// fleetPoll is how often to check while other batches of the same instances are under way.
const fleetPoll = 5 * time.Second

type fleetCase struct {
	seen fleet.FleetSeen
	run  FleetRun
}

var fleetRules = []struct {
	name string
	when func(c fleetCase) bool
	then func(c fleetCase) FleetAction
}{
	{"ended", fleetEnded, afterSites(fleetEnds)},
	{"cancelled", fleetCancelled, afterSites(cancelFleet)},
	{"error_threshold", tooManyFailed, afterSites(stopAtErrors)},
	{"site_failed", siteBroken, afterSites(stopBroken)},
	{"deadline", fleetOverdue, afterSites(stopOverdue)},
	{"paused", fleetPaused, waitDeadline},
	{"deliver", siteReady, deliverSites},
	{"under_way", sitesBusy, waitWindow},
	{"window", outsideWindows, waitWindow},
	{"other_batches", waveOpen, waitPoll},
	{"proving", waveProving, waitProven},
	{"retried", othersLeft, stopRetried},
	{"success_threshold", tooFewGood, stopAtSuccess},
	{"last_wave", lastWave, finishFleet},
	{"retried", lastOfRetry, stopRetried},
	{"next_wave", fleetAlways, advanceWave},
}

// Fleet decides the next step of a fleet change (N99, N100).
func Fleet(seen fleet.FleetSeen, run FleetRun) FleetAction {
	c := fleetCase{seen, run}
	for _, r := range fleetRules {
		if r.when(c) {
			a := r.then(c)
			a.Rule = r.name
			return a
		}
	}
	return FleetAction{Rule: "next_wave", Do: FleetWait}
}

func fleetAlways(fleetCase) bool      { return true }
func fleetEnded(c fleetCase) bool     { return c.seen.Run == 0 || !c.seen.State.Live() }
func fleetCancelled(c fleetCase) bool { return c.seen.Cancel }
func fleetPaused(c fleetCase) bool    { return c.seen.State == fleet.FleetPaused }
func fleetOverdue(c fleetCase) bool   { return !c.seen.At.Before(c.seen.Deadline) }
func siteBroken(c fleetCase) bool     { return c.run.Broken != "" }
func siteReady(c fleetCase) bool      { return len(readySites(c)) > 0 }
func sitesBusy(c fleetCase) bool      { return len(c.run.InFlight) > 0 }
func waveOpen(c fleetCase) bool       { return !c.seen.Counts.Over() }
func waveProving(c fleetCase) bool    { return c.seen.Proving > 0 }
func lastWave(c fleetCase) bool       { return c.seen.Wave >= c.seen.Waves }
func othersLeft(c fleetCase) bool     { return untried(c) > 0 }
func lastOfRetry(c fleetCase) bool    { return c.seen.Wave >= c.seen.Until }

// tooManyFailed measures against the whole wave, so that a change stops as soon as it cannot stay within the
// threshold.
func tooManyFailed(c fleetCase) bool {
	return float64(c.seen.Counts.Failed)*100 > c.seen.ErrorThreshold*float64(c.seen.Counts.Total)
}

// FleetGoesOn decides whether the next batch of a wave may start: a change also stops in the middle of a site.
func FleetGoesOn(state fleet.FleetState, cancelled bool, wave fleet.FleetCounts, errorThreshold float64) bool {
	seen := fleet.FleetSeen{State: state, Counts: wave, ErrorThreshold: errorThreshold}
	return state == fleet.FleetRunning && !cancelled && !tooManyFailed(fleetCase{seen: seen})
}

// untried counts the members of a finished wave that a retry leaves to a resume. They count for no threshold.
func untried(c fleetCase) int {
	n := c.seen.Counts
	return n.Total - n.Good() - n.Failed
}

func tooFewGood(c fleetCase) bool {
	return float64(c.seen.Counts.Good())*100 < c.seen.SuccessThreshold*float64(c.seen.Counts.Total)
}

// outsideWindows: everything left has been fetched and its window is closed.
func outsideWindows(c fleetCase) bool {
	return c.seen.Counts.Staged > 0 && c.seen.Counts.Waiting == 0 && c.seen.Counts.Delivering == 0
}

// readySites are the sites to start at now, up to the limit of concurrent sites.
func readySites(c fleetCase) []SiteBegin {
	var out []SiteBegin
	for _, s := range c.seen.Sites {
		if len(c.run.InFlight)+len(out) >= c.seen.SitesAtOnce {
			break
		}
		if slices.Contains(c.run.InFlight, s.Site) {
			continue
		}
		switch {
		case s.Waiting > 0 && s.Closed:
			out = append(out, SiteBegin{s.Site, SiteStage})
		case s.Waiting > 0:
			out = append(out, SiteBegin{s.Site, SiteDeliver})
		case s.Staged > 0 && !s.Closed:
			out = append(out, SiteBegin{s.Site, SiteSwitch})
		}
	}
	return out
}

// afterSites first lets the sites finish their current batch; they start no other.
func afterSites(then func(c fleetCase) FleetAction) func(c fleetCase) FleetAction {
	return func(c fleetCase) FleetAction {
		if len(c.run.InFlight) > 0 {
			return FleetAction{Do: FleetWait}
		}
		return then(c)
	}
}

func fleetEnds(fleetCase) FleetAction { return FleetAction{Do: FleetNothing} }

func cancelFleet(c fleetCase) FleetAction {
	return FleetAction{Do: FleetCancel, Reason: "cancelled", Message: fmt.Sprintf(
		"cancelled in wave %d of %d; what it changed stays changed", c.seen.Wave, c.seen.Waves)}
}

func stopAtErrors(c fleetCase) FleetAction {
	return FleetAction{Do: FleetStop, Reason: "error_threshold", Message: fmt.Sprintf(
		"%d of %d instances failed in wave %d of %d; the limit is %g percent",
		c.seen.Counts.Failed, c.seen.Counts.Total, c.seen.Wave, c.seen.Waves, c.seen.ErrorThreshold)}
}

func stopAtSuccess(c fleetCase) FleetAction {
	return FleetAction{Do: FleetStop, Reason: "success_threshold", Message: fmt.Sprintf(
		"%d of %d instances succeeded in wave %d of %d; %g percent are required",
		c.seen.Counts.Good(), c.seen.Counts.Total, c.seen.Wave, c.seen.Waves, c.seen.SuccessThreshold)}
}

func stopBroken(c fleetCase) FleetAction {
	return FleetAction{Do: FleetStop, Reason: "site_failed", Message: c.run.Broken}
}

func stopOverdue(c fleetCase) FleetAction {
	return FleetAction{Do: FleetStop, Reason: "deadline", Message: fmt.Sprintf(
		"its deadline passed in wave %d of %d", c.seen.Wave, c.seen.Waves)}
}

func stopRetried(c fleetCase) FleetAction {
	if n := untried(c); n > 0 {
		return FleetAction{Do: FleetStop, Reason: fleet.FleetRetried, Message: fmt.Sprintf(
			"the failed instances were retried; %d instances wait for a resume", n)}
	}
	return FleetAction{Do: FleetStop, Reason: fleet.FleetRetried, Message: fmt.Sprintf(
		"the failed instances were retried; resume continues with wave %d of %d", c.seen.Wave+1, c.seen.Waves)}
}

func finishFleet(fleetCase) FleetAction { return FleetAction{Do: FleetFinish} }
func advanceWave(fleetCase) FleetAction { return FleetAction{Do: FleetAdvance} }

func deliverSites(c fleetCase) FleetAction {
	return FleetAction{Do: FleetDeliver, Sites: readySites(c), Until: waitWindow(c).Until}
}

func waitDeadline(c fleetCase) FleetAction { return FleetAction{Do: FleetWait, Until: c.seen.Deadline} }

func waitPoll(c fleetCase) FleetAction {
	return FleetAction{Do: FleetWait, Until: c.seen.At.Add(fleetPoll)}
}

// waitProven looks again when the next command may have run for long enough, and often enough that one that exits stops
// the run early.
func waitProven(c fleetCase) FleetAction {
	a := FleetAction{Do: FleetWait, Until: c.seen.At.Add(fleetPoll)}
	if c.seen.ProvenAt.After(c.seen.At) && c.seen.ProvenAt.Before(a.Until) {
		a.Until = c.seen.ProvenAt
	}
	return a
}

// waitWindow waits for the first window to open, also while other sites are under way.
func waitWindow(c fleetCase) FleetAction {
	a := waitDeadline(c)
	for _, s := range c.seen.Sites {
		if s.Staged > 0 && s.Closed && !s.Opens.IsZero() && s.Opens.Before(a.Until) {
			a.Until = s.Opens
		}
	}
	return a
}
