package fleet

import (
	"cmp"
	"time"
)

// Defaults of a deployment (S21, S45, S75, S106, S107).
const (
	DefaultStopSeconds = 10
	// DefaultStartup is the deadline of a replica's first success, in seconds.
	DefaultStartup = 60

	DefaultHealthPath         = "/health"
	DefaultHealthMethod       = "GET"
	DefaultHealthInterval     = 10
	DefaultHealthTimeout      = 5
	DefaultUnhealthyThreshold = 3
	DefaultHealthyThreshold   = 2
)

// DefaultRecovery are the default terms of recovery.
func DefaultRecovery() Recovery {
	return Recovery{
		Restarts: 3, ResetSeconds: 600, Attempts: 3, AttemptSeconds: 10,
		Crashes: 3, CrashSeconds: 30, CrashMaxSeconds: 960, GiveUp: 200, LostSeconds: 30,
	}
}

// WithDefaults fills in omitted values.
func (r Recovery) WithDefaults() Recovery {
	d := DefaultRecovery()
	return Recovery{
		Restarts: cmp.Or(r.Restarts, d.Restarts), ResetSeconds: cmp.Or(r.ResetSeconds, d.ResetSeconds),
		Attempts: cmp.Or(r.Attempts, d.Attempts), AttemptSeconds: cmp.Or(r.AttemptSeconds, d.AttemptSeconds),
		Crashes: cmp.Or(r.Crashes, d.Crashes), CrashSeconds: cmp.Or(r.CrashSeconds, d.CrashSeconds),
		CrashMaxSeconds: cmp.Or(r.CrashMaxSeconds, max(d.CrashMaxSeconds, r.AttemptSeconds, r.CrashSeconds)), GiveUp: cmp.Or(r.GiveUp, d.GiveUp),
		LostSeconds: cmp.Or(r.LostSeconds, d.LostSeconds),
	}
}

// WithDefaults fills in omitted values. A check of type none stays without numbers.
func (h HealthCheck) WithDefaults() HealthCheck {
	h.Type = cmp.Or(h.Type, HealthHTTP)
	if h.Type == HealthNone {
		return HealthCheck{Type: HealthNone}
	}
	if h.Type == HealthHTTP {
		h.Path, h.Method = cmp.Or(h.Path, DefaultHealthPath), cmp.Or(h.Method, DefaultHealthMethod)
	}
	h.Interval = cmp.Or(h.Interval, DefaultHealthInterval)
	h.Timeout = cmp.Or(h.Timeout, min(DefaultHealthTimeout, h.Interval/2))
	h.UnhealthyThreshold = cmp.Or(h.UnhealthyThreshold, DefaultUnhealthyThreshold)
	h.HealthyThreshold = cmp.Or(h.HealthyThreshold, DefaultHealthyThreshold)
	return h
}

// SettleTime is how long it may take from the first success until healthy or unhealthy: twice what the slowest run
// of equal results takes. A probe that takes longer than the interval delays the next one.
func (h HealthCheck) SettleTime() time.Duration {
	h = h.WithDefaults()
	looks := 2 * (h.HealthyThreshold + h.UnhealthyThreshold)
	return time.Duration(float64(looks) * max(h.Interval, h.Timeout) * float64(time.Second))
}
