package decide

import (
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// FleetStartDo is what becomes of an instance that a wave delivered to.
type FleetStartDo string

// The verdicts: its command has run for long enough, or has not, or it is too early to tell.
const (
	FleetStartProven FleetStartDo = "proven"
	FleetStartFailed FleetStartDo = "failed"
	FleetStartWait   FleetStartDo = "wait"
)

// FleetStart is a verdict, and the rule that chose it. A failed one has a reason and a message, one that waits the
// time from which on it can be proven.
type FleetStart struct {
	Rule    string
	Do      FleetStartDo
	Reason  string
	Message string
	Until   time.Time
}

// fleetUnseenLimit is how much longer than required a node may take to report that a command runs.
const fleetUnseenLimit = 2 * time.Minute

type fleetStartCase struct {
	fleet.FleetStartSeen
	minRun time.Duration
	now    time.Time
}

func (c fleetStartCase) until() time.Time { return c.Since.Add(c.minRun) }

var fleetStartRules = []struct {
	name string
	when func(c fleetStartCase) bool
	then func(c fleetStartCase) FleetStart
}{
	{"runs_nothing", func(c fleetStartCase) bool { return !c.Runs || c.minRun <= 0 }, fleetStartProven},
	{"replaced", func(c fleetStartCase) bool { return c.Replaced }, fleetStartProven},
	{"exited", func(c fleetStartCase) bool { return c.Current && c.Exits > c.ExitsBefore }, fleetStartExited},
	{"too_early", func(c fleetStartCase) bool { return c.now.Before(c.until()) }, fleetStartWaits},
	{"proven", fleetStartSeenRunning, fleetStartProven},
	{"not_seen", func(c fleetStartCase) bool { return !c.now.Before(c.until().Add(fleetUnseenLimit)) }, fleetStartNotRunning},
	{"not_seen_yet", func(fleetStartCase) bool { return true }, fleetStartWaits},
}

// JudgeFleetStart decides whether the command that a wave started has run for as long as its fleet change requires
// (N99). One that exits has failed, also if it is running again.
func JudgeFleetStart(seen fleet.FleetStartSeen, minRun time.Duration, now time.Time) FleetStart {
	c := fleetStartCase{seen, minRun, now}
	for _, r := range fleetStartRules {
		if r.when(c) {
			v := r.then(c)
			v.Rule = r.name
			return v
		}
	}
	return FleetStart{Rule: "not_seen_yet", Do: FleetStartWait}
}

// fleetStartSeenRunning: the node's last look came after the required time, and the command has not exited up to then.
func fleetStartSeenRunning(c fleetStartCase) bool {
	return c.Current && c.Running && !c.Looked.Before(c.until())
}

func fleetStartProven(fleetStartCase) FleetStart { return FleetStart{Do: FleetStartProven} }

func fleetStartWaits(c fleetStartCase) FleetStart {
	return FleetStart{Do: FleetStartWait, Until: c.until()}
}

func fleetStartExited(c fleetStartCase) FleetStart {
	return FleetStart{Do: FleetStartFailed, Reason: fleet.FleetExited, Message: fmt.Sprintf(
		"its command ended before it had run for %s: %s", c.minRun, c.LastExit)}
}

func fleetStartNotRunning(c fleetStartCase) FleetStart {
	if c.Node == "" {
		return FleetStart{Do: FleetStartFailed, Reason: fleet.FleetNotRunning, Message: "its site has no active node"}
	}
	return FleetStart{Do: FleetStartFailed, Reason: fleet.FleetNotRunning, Message: fmt.Sprintf(
		"node %s did not report that its command ran for %s", c.Node, c.minRun)}
}
