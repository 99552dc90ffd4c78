package guardian

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Health is the state of the guardian of a name.
type Health string

// A live guardian answers; a hung one holds the lock and does not answer; a dead one ended without stopping its
// instance, of which something may still run until the next Start or Stop.
const (
	Live Health = "live"
	Hung Health = "hung"
	Dead Health = "dead"
	// Ended is a guardian that stopped its instance, or was killed with it, because the lease ended, or one whose
	// only command ended (Spec.Once): nothing of it runs, and the name waits to be started or stopped.
	Ended Health = "ended"
)

// Status is a guardian's status of its instance. For a hung or dead guardian it is the last one written, with
// Running checked against the process table (hung) or false (dead).
type Status struct {
	Instance fleet.InstanceName `json:"instance"`
	Labels   Labels             `json:"labels"`
	// Running is set while the command's process lives; false between a crash and its restart.
	Running bool `json:"running"`
	PID     int  `json:"pid,omitempty"`
	// Restarts counts the starts after the first one. LastExit is how the last process ended ("exit code 3",
	// "signal SIGKILL", "not started: …"), "" if none did.
	Restarts int    `json:"restarts"`
	LastExit string `json:"lastExit,omitempty"`
	// Reason is ReasonLeaseEnded once a stop for the lease begins, ReasonExited once the command of a Spec with
	// Once ended by itself, else "".
	Reason string `json:"reason,omitempty"`
	// Starting is set until the first process has lived for Run.StartSeconds.
	Starting bool `json:"starting,omitempty"`
	// Preparing is set while a command of Spec.PreStart runs.
	Preparing bool `json:"preparing,omitempty"`
	// UID is the user of the command, 0 for the guardian's.
	UID int `json:"uid,omitempty"`
	// Since is when Running last changed.
	Since       time.Time `json:"since"`
	Guardian    Health    `json:"guardian"`
	GuardianPID int       `json:"guardianPid"`
}

// Exits counts how often the command has ended by itself since its guardian started it.
func (s Status) Exits() int {
	if s.Running || s.LastExit == "" {
		return s.Restarts
	}
	return s.Restarts + 1
}
