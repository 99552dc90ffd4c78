package fleet

import (
	"fmt"
	"strings"
	"time"
)

// CheckFailure is why a check of a replica fails: the last failure, and how often a probe failed for that. It has neither
// bodies nor headers nor the query of the request.
type CheckFailure struct {
	Check string `json:"check" doc:"what the node did, for example GET /health on 127.0.0.1:8000"`
	Cause string `json:"cause" doc:"why the last probe failed, for example connection refused"`
	// Listens is set where nothing listens on the port of the check.
	Listens string    `json:"listens,omitempty" doc:"where the replica listens, if not on the port of the check"`
	Times   int       `json:"times" doc:"how many probes failed for that since then"`
	Since   time.Time `json:"since"`
}

// String is a sentence about the check, without a full stop.
func (f CheckFailure) String() string {
	times := fmt.Sprintf("%d times since", f.Times)
	if f.Times == 1 {
		times = "at"
	}
	s := fmt.Sprintf("%s: %s, %s %s", f.Check, f.Cause, times, f.Since.UTC().Format(time.RFC3339))
	if f.Listens != "" {
		s += "; " + f.Listens
	}
	return s
}

// ReportedFailure is a failure in a node's report. Its first probe failed Age before the report; Since is unset.
type ReportedFailure struct {
	CheckFailure
	Age time.Duration `json:"age"`
}

func (f *ReportedFailure) at(now time.Time) *CheckFailure {
	if f == nil {
		return nil
	}
	out := f.CheckFailure
	out.Since = now.Add(-f.Age)
	return &out
}

// FailedChecks are the checks of a replica that fail, nil for one that does not.
type FailedChecks struct {
	Health    *CheckFailure `json:"health,omitempty"`
	Readiness *CheckFailure `json:"readiness,omitempty"`
}

// String describes the checks that fail, "" for none.
func (f FailedChecks) String() string {
	var all []string
	if f.Health != nil {
		all = append(all, f.Health.String())
	}
	if f.Readiness != nil {
		all = append(all, "readiness: "+f.Readiness.String())
	}
	return strings.Join(all, "; ")
}

// ByHealth reports whether a replica failed because of its health check.
func ByHealth(reason string) bool {
	return reason == ReasonStartupDeadline || reason == ReasonProbesFailed || reason == ReasonRestartsUsedUp
}

// Explained is the message of a replica that failed for a reason, with what its checks came to if that is why it failed, unless
// it says so already.
func Explained(reason, message, checks string) string {
	check, _, _ := strings.Cut(checks, ", ")
	if checks == "" || !ByHealth(reason) || strings.Contains(message, check) {
		return message
	}
	return strings.TrimPrefix(message+": ", ": ") + checks
}

// The limits of a failure in a report.
const (
	MaxCheck       = 300
	MaxCheckCause  = 200
	maxCheckTimes  = 1<<31 - 1
	maxCheckListen = 300
)

func (f *ReportedFailure) validate(field string) error {
	switch {
	case f == nil:
		return nil
	case f.Age < 0 || f.Age > maxReplicaAge:
		return Errorf(Invalid, "the age of the failure of a check is out of bounds").At(field)
	case strings.Contains(f.Check+f.Cause+f.Listens, "\x00"):
		return Errorf(Invalid, "the failure of a check contains a NUL byte").At(field)
	case len(f.Check) > MaxCheck || len(f.Cause) > MaxCheckCause || len(f.Listens) > maxCheckListen:
		return Errorf(TooLarge, "the failure of a check is too long: %d bytes", len(f.Check)+len(f.Cause)+len(f.Listens)).At(field)
	case f.Check == "" || f.Cause == "" || f.Times < 1 || f.Times > maxCheckTimes:
		return Errorf(Invalid, "the failure of a check is incomplete").At(field)
	}
	return nil
}
