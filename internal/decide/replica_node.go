package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ReplicaProcess is how far a node is with a replica.
type ReplicaProcess string

// Nothing of it runs before it is started and once it is over.
const (
	ProcessNone      ReplicaProcess = ""          // nothing done yet
	ProcessPreparing ReplicaProcess = "preparing" // its definition is downloaded, its image pulled
	ProcessPreStart  ReplicaProcess = "pre_start" // its preStart commands run
	ProcessPrepared  ReplicaProcess = "prepared"
	ProcessRunning   ReplicaProcess = "running"
	ProcessStopping  ReplicaProcess = "stopping" // a graceful stop is under way
	ProcessKilled    ReplicaProcess = "killed"   // it is being killed
	ProcessOver      ReplicaProcess = "over"     // it ended
	ProcessBroken    ReplicaProcess = "broken"   // it could not be prepared or started
)

// ReplicaDo is what a node does next with a replica.
type ReplicaDo string

// The steps of a node. GiveUp and Forget are final: GiveUp for a replica that should run, Forget for one that
// should not.
const (
	DoPrepare ReplicaDo = "prepare"
	DoStart   ReplicaDo = "start"
	DoStop    ReplicaDo = "stop"
	DoKill    ReplicaDo = "kill"
	DoGiveUp  ReplicaDo = "give_up" // it failed here; the region replaces it
	DoForget  ReplicaDo = "forget"  // only its report is left
	DoRest    ReplicaDo = "rest"
)

// ReplicaAction is a step, and the rule that chose it. Until is when to check again without an event, 0 for never;
// Restart marks a start after the first one, or a stop that a start follows.
type ReplicaAction struct {
	Rule    string        `json:"rule"`
	Do      ReplicaDo     `json:"do"`
	Reason  string        `json:"reason,omitempty"`
	Restart bool          `json:"restart,omitempty"`
	Until   time.Duration `json:"until,omitempty"`
	// Anew resets the counted restarts.
	Anew bool `json:"anew,omitempty"`
}

// ReplicaHere is a replica as its node sees it. Times are from a monotonic clock that counts suspend.
type ReplicaHere struct {
	// Run is false if it must end or is no longer in the node's set.
	Run     bool           `json:"run"`
	Process ReplicaProcess `json:"process"`
	// Since is when Process last changed.
	Since time.Duration `json:"since"`
	Probe ProbeState    `json:"probe"`
	// Reason is why Process is over or broken.
	Reason string `json:"reason,omitempty"`
	// Again marks a stop for a restart: its probes failed, or its first success was late.
	Again bool `json:"again,omitempty"`
	// Restarts counts restarts after failed probes, limited by Terms.Restarts; Alone those after exits while the
	// region was unreachable.
	Restarts int `json:"restarts,omitempty"`
	Alone    int `json:"alone,omitempty"`
	// GaveUp is set once it was given up: it ends and stays ended.
	GaveUp bool           `json:"gaveUp,omitempty"`
	Terms  fleet.Recovery `json:"terms"`
	// Stop is the time between the graceful and the forced stop of this revision.
	Stop time.Duration `json:"stop"`
	// Refused is when its driver last rejected a stop, 0 once one was accepted: no stop is under way then.
	Refused time.Duration `json:"refused,omitempty"`
	// Away is since when the node has no stream to the region, 0 while it has one.
	Away time.Duration `json:"away,omitempty"`
}

const (
	// AloneAfter is how long after an exit the region may be unreachable before the node restarts by itself.
	AloneAfter            = 2 * time.Second
	aloneLeast, aloneMost = time.Second, 30 * time.Second
	stopAgain             = time.Second
	killAgain             = 5 * time.Second
	// PrepareLimit is how long a node may take to download the definition of a replica and to pull its image.
	PrepareLimit = 30 * time.Minute
	// ReasonPrepareLimit is the reason of a replica that was not prepared in that time.
	ReasonPrepareLimit = "not_prepared"
)

type hereCase struct {
	ReplicaHere
	now time.Duration
}

// replicaRules apply in order: first what must end, then what failed.
var replicaRules = []struct {
	name string
	when func(c hereCase) bool
	then func(c hereCase) ReplicaAction
}{
	{"ended", func(c hereCase) bool { return !c.Run && !c.lives() }, step(DoForget)},
	{"stop_time_over", func(c hereCase) bool { return c.Process == ProcessStopping && c.past(c.Stop) }, step(DoKill)},
	{"stop_again", func(c hereCase) bool {
		return c.Process == ProcessStopping && c.Refused > 0 && c.now >= c.Refused+stopAgain
	}, step(DoStop)},
	{"stopping", is(ProcessStopping), stopping},
	{"kill_again", func(c hereCase) bool { return c.Process == ProcessKilled && c.past(killAgain) }, step(DoKill)},
	{"killed", is(ProcessKilled), func(c hereCase) ReplicaAction { return restUntil(c.Since + killAgain) }},
	{"told_to_end", func(c hereCase) bool { return !c.Run }, step(DoStop)},
	{"given_up_ends", func(c hereCase) bool { return c.GaveUp && c.lives() }, step(DoStop)},
	{"given_up", func(c hereCase) bool { return c.GaveUp }, step(DoRest)},
	{"prepare", is(ProcessNone), step(DoPrepare)},
	{fleet.ReasonStartupDeadline, func(c hereCase) bool { return c.preStartLate() && (c.Away == 0 || c.spent()) }, giveUp(fleet.ReasonStartupDeadline)},
	{"started_late", hereCase.preStartLate, stopForRestart(fleet.ReasonStartupDeadline)},
	{"pre_start", is(ProcessPreStart), func(c hereCase) ReplicaAction { return restUntil(c.Probe.Deadline) }},
	{"preparing_too_long", func(c hereCase) bool { return c.Process == ProcessPreparing && c.past(PrepareLimit) && c.Away == 0 }, giveUp(ReasonPrepareLimit)},
	{"prepare_again", func(c hereCase) bool { return c.Process == ProcessPreparing && c.past(PrepareLimit) }, step(DoPrepare)},
	{"preparing", is(ProcessPreparing), func(c hereCase) ReplicaAction { return restUntil(c.Since + PrepareLimit) }},
	{"start", is(ProcessPrepared), step(DoStart)},
	{"broken", is(ProcessBroken), func(c hereCase) ReplicaAction { return ReplicaAction{Do: DoGiveUp, Reason: c.Reason} }},
	{"restart", func(c hereCase) bool { return c.Process == ProcessOver && c.Again }, func(hereCase) ReplicaAction {
		return ReplicaAction{Do: DoStart, Restart: true}
	}},
	{"exited_alone", func(c hereCase) bool { return c.Process == ProcessOver && c.Away > 0 }, startAlone},
	{fleet.ReasonExited, is(ProcessOver), step(DoRest)},
	{fleet.ReasonStartupDeadline, func(c hereCase) bool { return c.late() && (c.Away == 0 || c.spent()) }, giveUp(fleet.ReasonStartupDeadline)},
	{"started_late", hereCase.late, stopForRestart(fleet.ReasonStartupDeadline)},
	{fleet.ReasonRestartsUsedUp, func(c hereCase) bool { return c.unwell() && c.spent() }, giveUp(fleet.ReasonRestartsUsedUp)},
	{fleet.ReasonProbesFailed, hereCase.unwell, stopForRestart(fleet.ReasonProbesFailed)},
	{"well_again", func(c hereCase) bool { return c.unsettled() && c.now >= c.settles() }, func(hereCase) ReplicaAction {
		return ReplicaAction{Do: DoRest, Anew: true}
	}},
	{"running", func(hereCase) bool { return true }, watch},
}

// Replica decides what a node does next with a replica. Every end starts with a graceful stop; one that was given
// up ends before its node reports the failure (S48, S49, S52, S54, S106). The region replaces what is not healthy
// in time, also after a restart that did not help. The node restarts it itself only while the region is
// unreachable.
func Replica(here ReplicaHere, now time.Duration) ReplicaAction {
	here.Terms = here.Terms.WithDefaults()
	c := hereCase{here, now}
	for _, r := range replicaRules {
		if r.when(c) {
			a := r.then(c)
			a.Rule = r.name
			return a
		}
	}
	return ReplicaAction{Do: DoRest}
}

func is(p ReplicaProcess) func(hereCase) bool {
	return func(c hereCase) bool { return c.Process == p }
}

func step(do ReplicaDo) func(hereCase) ReplicaAction {
	return func(hereCase) ReplicaAction { return ReplicaAction{Do: do} }
}

func restUntil(until time.Duration) ReplicaAction { return ReplicaAction{Do: DoRest, Until: until} }

func giveUp(reason string) func(hereCase) ReplicaAction {
	return func(hereCase) ReplicaAction { return ReplicaAction{Do: DoGiveUp, Reason: reason} }
}

func stopForRestart(reason string) func(hereCase) ReplicaAction {
	return func(hereCase) ReplicaAction { return ReplicaAction{Do: DoStop, Restart: true, Reason: reason} }
}

// stopping gives a stop its time, but soon retries one that the driver rejected.
func stopping(c hereCase) ReplicaAction {
	until := c.Since + c.Stop
	if c.Refused > 0 {
		until = min(until, c.Refused+stopAgain)
	}
	return restUntil(until)
}

// lives reports whether any of it runs or is about to.
func (c hereCase) lives() bool {
	switch c.Process {
	case ProcessPreparing, ProcessPreStart, ProcessRunning, ProcessStopping, ProcessKilled:
		return true
	case ProcessNone, ProcessPrepared, ProcessOver, ProcessBroken:
	}
	return false
}

func (c hereCase) past(limit time.Duration) bool { return c.now >= c.Since+limit }
func (c hereCase) late() bool                    { return c.Probe.Late() }
func (c hereCase) preStartLate() bool            { return c.Process == ProcessPreStart && c.Probe.PreStartLate() }
func (c hereCase) unwell() bool                  { return c.Probe.Health == fleet.HealthUnhealthy }
func (c hereCase) spent() bool                   { return c.Restarts >= c.Terms.Restarts }

// unsettled reports whether restarts still count; they no longer do once it was healthy for long enough.
func (c hereCase) unsettled() bool {
	return c.Restarts+c.Alone > 0 && c.Probe.Health == fleet.HealthHealthy
}

func (c hereCase) settles() time.Duration {
	return c.Probe.Since + time.Duration(c.Terms.ResetSeconds)*time.Second
}

// startAlone waits briefly for the region, and longer after each restart.
func startAlone(c hereCase) ReplicaAction {
	pause := AloneAfter
	if c.Alone > 0 {
		pause = max(pause, min(aloneLeast<<min(c.Alone, 10), aloneMost))
	}
	due := max(c.Away+AloneAfter, c.Since+pause)
	if c.now < due {
		return restUntil(due)
	}
	return ReplicaAction{Do: DoStart, Restart: true}
}

// watch checks again when earlier restarts stop counting. The prober schedules probes, and with them decides what
// is late.
func watch(c hereCase) ReplicaAction {
	if c.unsettled() {
		return restUntil(c.settles())
	}
	return ReplicaAction{Do: DoRest}
}
