package tenure

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/lease"
)

// Stats are an operator's view of a node's lease.
type Stats struct {
	Holds bool
	Epoch int64 // of the current or the last tenure
	// Left is the time to the deadline, zero without one.
	Left time.Duration
	// Refused counts renewals that a voter did not grant, Lapses the tenures that ended.
	Refused, Lapses int64
	// Resets is the number of the last reset that the node followed, ResetFrom its highest epoch before.
	Resets, ResetFrom int64
}

// Stats gives the current values.
func (k *Keeper) Stats() Stats {
	var out Stats
	if s := k.stats.Load(); s != nil {
		out = *s
	}
	now, err := k.opt.Clock()
	if r := k.held.Load(); err == nil && r != nil {
		out.Holds = r.unbounded || now < r.until
		if !r.unbounded {
			out.Left = max(0, r.until.Sub(now))
		}
	}
	return out
}

// publish stores the loop's part of Stats.
func (k *Keeper) publish() {
	s := Stats{Refused: k.refused, Lapses: k.expired, Resets: k.resets.Load(), ResetFrom: max(k.resetFrom, k.follows.from)}
	if k.seated {
		s.Epoch = k.candidate.Claim().Epoch
	}
	k.stats.Store(&s)
}

// countRefused counts an answer that does not renew the lease.
func (k *Keeper) countRefused(s lease.Send, a lease.Answer) {
	if s.Call == lease.Grant && !a.Granted && k.candidate.Role() == lease.Holding && s.Request.Epoch == k.candidate.Claim().Epoch {
		k.refused++
	}
}
