package tenure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/poke"
)

// desire is the desired state now.
type desire struct {
	idle      bool // a member without a vote: its guardians have no deadline
	holding   bool
	releasing bool
	unbounded bool
	patient   bool // it removes the deadline when it is isolated
	epoch     int64
	until     lease.Instant
	resets    int64 // the last reset: epochs that were adopted before it do not count
	lapses    int64 // how often the right ended: what ran before the end stops
	lapsed    bool  // the last end was by the deadline, and the voters must learn when nothing runs
	elsewhere elsewhere
}

// hand makes guardians and agent follow the desired state. It gets states, not steps, so a slow hand misses
// only outdated ones.
type hand struct {
	k    *Keeper
	wake chan struct{}

	mu     sync.Mutex
	wanted desire

	// The fields below belong to the goroutine of run.
	began    bool // the guardians have the lease in said
	active   bool
	lapses   int64
	epoch    int64 // adopted as the active
	standby  int64 // adopted as the standby
	resets   int64
	said     guardian.Lease
	stopping *stopping
	ending   *stopping // after a lease expired
}

func newHand(k *Keeper) *hand { return &hand{k: k, wake: make(chan struct{}, 1)} }

// want sets the desired state.
func (h *hand) want(d desire) {
	h.mu.Lock()
	changed := h.wanted != d
	h.wanted = d
	h.mu.Unlock()
	if changed {
		poke.Once(h.wake)
	}
}

func (h *hand) latest() desire {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted
}

// resume applies the state at the node's start: a tenure that is still valid continues without a question to
// the region and without a start.
func (h *hand) resume(ctx context.Context) error {
	d := h.latest()
	h.lapses, h.resets = d.lapses, d.resets
	if !d.holding {
		return h.end(ctx, d)
	}
	h.active = true
	return h.hold(ctx, d)
}

// run follows the desired state until the context ends, and retries after errors.
func (h *hand) run(ctx context.Context) {
	defer func() { callOff(&h.stopping); callOff(&h.ending) }()
	pause := h.k.opt.Interval / ticksPerInterval
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		case <-again:
		}
		again = nil
		if err := h.follow(ctx, h.latest()); err != nil && ctx.Err() == nil {
			h.k.opt.Log.Error("apply the lease to what runs, retrying", "err", err)
			again = time.After(pause)
		}
	}
}

func (h *hand) follow(ctx context.Context, d desire) error {
	if d.resets != h.resets {
		h.epoch, h.standby, h.resets = 0, 0, d.resets
	}
	if d.lapses != h.lapses { // what ran under the former right ends, whatever came since
		if err := h.end(ctx, d); err != nil {
			return err
		}
		h.lapses = d.lapses
	}
	switch {
	case !d.holding:
		if err := h.end(ctx, d); err != nil {
			return err
		}
		if err := h.other(ctx, d); err != nil {
			return err
		}
		return h.ended(ctx, d)
	case d.releasing:
		return h.release(ctx, d)
	}
	callOff(&h.ending)
	if h.stopping != nil { // the hand-over was cancelled
		callOff(&h.stopping)
		h.active = true
		defer h.k.opt.Tenant.Settle()
	}
	if !h.active {
		return h.take(ctx, d)
	}
	return h.hold(ctx, d)
}

// end ends the right to run: guardians kill what is left.
func (h *hand) end(ctx context.Context, d desire) error {
	callOff(&h.stopping)
	h.k.held.Store(nil)
	l := guardian.Lease{TTL: h.k.opt.TTL}
	if d.idle {
		l = guardian.NoDeadline()
	}
	was := h.active
	h.active = false
	if err := h.say(ctx, l); err != nil {
		return err
	}
	if was {
		h.k.opt.Tenant.Settle()
	}
	return nil
}

// other records that another node is active.
func (h *hand) other(ctx context.Context, d desire) error {
	if d.elsewhere.epoch <= max(h.standby, h.epoch) {
		return nil
	}
	if err := h.adopt(ctx, d, fleet.RoleStandby, d.elsewhere); err != nil {
		return err
	}
	h.standby = d.elsewhere.epoch
	return nil
}

// take makes this node active. Nothing runs before the request for owed deletes and disables.
func (h *hand) take(ctx context.Context, d desire) error {
	if err := h.say(ctx, h.leaseOf(d)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, h.k.opt.OwedLimit)
	err := h.k.opt.Tenant.Owed(limited)
	cancel()
	if err != nil && ctx.Err() == nil {
		h.k.opt.Log.Warn("ask the region for owed deletes and disables before instances start", "err", err)
	}
	d = h.latest() // the request took a while
	if !d.holding || d.releasing || d.lapses != h.lapses {
		poke.Once(h.wake)
		return nil
	}
	h.active = true
	if err := h.hold(ctx, d); err != nil {
		return err
	}
	h.k.opt.Tenant.Settle()
	return nil
}

// hold moves the deadline, the guardians' first, and raises the epoch.
func (h *hand) hold(ctx context.Context, d desire) error {
	late := h.late()
	if err := h.say(ctx, h.leaseOf(d)); err != nil {
		return err
	}
	if late && h.active {
		defer h.k.opt.Tenant.Settle() // start what was refused in the last quarter of the TTL
	}
	h.k.held.Store(&right{until: d.until, unbounded: d.unbounded})
	if d.epoch <= h.epoch {
		return nil
	}
	if err := h.adopt(ctx, d, fleet.RoleActive, elsewhere{h.k.opt.Node, d.epoch}); err != nil {
		return err
	}
	h.epoch = d.epoch
	return nil
}

// adopt stores an epoch, unless the epochs were reset since: then a new desired state follows.
func (h *hand) adopt(ctx context.Context, d desire, role fleet.Role, to elsewhere) error {
	h.k.epochs.Lock()
	defer h.k.epochs.Unlock()
	if d.resets != h.k.resets.Load() {
		return nil
	}
	return h.k.opt.Tenant.Adopt(ctx, role, to.epoch, to.holder)
}

// late tells whether the guardians' deadline is so near that they start nothing any more: the stop of an
// instance begins at most a quarter of the TTL before it.
func (h *hand) late() bool {
	now, err := h.k.opt.Clock()
	return err == nil && h.began && time.Duration(now) > h.said.Deadline-h.said.TTL/4
}

func (h *hand) leaseOf(d desire) guardian.Lease {
	if d.unbounded {
		return guardian.Lease{Deadline: decide.NoDeadline, TTL: h.k.opt.TTL}
	}
	return guardian.Lease{Deadline: time.Duration(d.until), TTL: h.k.opt.TTL, Patient: d.patient}
}

// say sends a changed lease to the guardians.
func (h *hand) say(ctx context.Context, l guardian.Lease) error {
	if h.began && l == h.said {
		return nil
	}
	h.began = false
	if err := h.k.opt.Tenant.Lease(ctx, l); err != nil {
		return errors.Join(errSay, err)
	}
	h.began, h.said = true, l
	return nil
}

var errSay = errors.New("send the deadline to the guardians")
