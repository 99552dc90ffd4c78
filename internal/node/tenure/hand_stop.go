package tenure

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// stopping is a stop under way: the graceful one of a hand-over, or the check that all that ran under an
// expired lease has ended.
type stopping struct {
	cancel context.CancelFunc
	done   chan error
}

// release stops what runs while the deadline still moves, and then notifies the loop.
func (h *hand) release(ctx context.Context, d desire) error {
	h.k.held.Store(nil)
	if h.stopping == nil {
		h.stopping = h.stop(ctx)
	}
	var stopped error
	select {
	case stopped = <-h.stopping.done:
	default:
		return h.say(ctx, h.leaseOf(d))
	}
	h.stopping.cancel()
	h.stopping = nil
	if stopped != nil {
		return stopped // and start again
	}
	// A start under way ends too: from here on the guardians start nothing.
	if err := h.say(ctx, guardian.Lease{TTL: h.k.opt.TTL}); err != nil {
		return err
	}
	if err := h.k.opt.Tenant.Stop(ctx); err != nil {
		return err
	}
	h.active = false
	return h.k.post(ctx, func(now lease.Instant) {
		c, acts := h.k.candidate.Stopped(now)
		h.k.carry(c, acts, now)
		poke.Once(h.wake) // in case it could not be written
	})
}

// ended notifies the loop when nothing runs any more of an expired tenure: the guardians had the deadline and
// killed what ran; this checks that.
func (h *hand) ended(ctx context.Context, d desire) error {
	if !d.lapsed {
		callOff(&h.ending)
		return nil
	}
	if h.ending == nil {
		h.ending = h.stop(ctx)
	}
	var stopped error
	select {
	case stopped = <-h.ending.done:
	default:
		return nil
	}
	h.ending.cancel()
	h.ending = nil
	if stopped != nil {
		return stopped // and check again
	}
	return h.k.post(ctx, func(now lease.Instant) {
		if h.k.lapses != d.lapses {
			return // it has held the lease again since
		}
		c, acts := h.k.candidate.Ended(now)
		h.k.carry(c, acts, now)
	})
}

func (h *hand) stop(ctx context.Context) *stopping {
	ctx, cancel := context.WithCancel(ctx)
	s := &stopping{cancel: cancel, done: make(chan error, 1)}
	go func() {
		s.done <- h.k.opt.Tenant.Stop(ctx)
		poke.Once(h.wake)
	}()
	return s
}

// callOff cancels a stop under way, and waits for it.
func callOff(s **stopping) {
	if *s == nil {
		return
	}
	(*s).cancel()
	<-(*s).done //nolint:errcheck // its result does not count any more
	*s = nil
}
