package provider

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// State is the state of an InstanceConnection.
type State string

// An InstanceConnection starts Connecting, and ends Closed.
const (
	Connecting   State = "Connecting"   // it registers and opens its stream
	Active       State = "Active"       // the region answers its heartbeats
	Draining     State = "Draining"     // it finishes its current work
	Disconnected State = "Disconnected" // it waits for the next attempt
	Closed       State = "Closed"       // Run has ended, or was never called
)

// Status is passed to OnState and returned by InstanceConnection.Status.
type Status struct {
	State State
	Since time.Time
	// ConnectionID is the region's id of the current connection, if any.
	ConnectionID string
	// Rejected are the modules that the region did not accept.
	Rejected []Rejection
	// IdleAfter is for nodes: how long a node keeps polling for tasks after the last one, or after a wake; 0 if
	// the region sends no wakes.
	IdleAfter time.Duration
	// Failures counts the failed attempts in a row, Err is the error of the last one.
	Failures int
	Err      error
}

// Rejection is why the region did not accept a module.
type Rejection struct{ Module, Reason, Message string }

// InstanceConnection keeps a provider connected to one server instance.
type InstanceConnection struct {
	opt  Options
	lane *lane
	wait func(context.Context, time.Duration) // between attempts

	mu     sync.Mutex
	status Status
	busy   bool
}

// New checks the options; it connects only in Run.
func New(opt Options) (*InstanceConnection, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	return &InstanceConnection{
		opt: opt, lane: &lane{extra: opt.InFlight}, status: Status{State: Closed},
		wait: func(ctx context.Context, d time.Duration) { _ = pause.For(ctx, d) }, // the next step looks at the context
	}, nil
}

// Status gives the current state of the connection.
func (c *InstanceConnection) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Run connects and stays connected. When the context ends it deregisters and returns nil; executions under way
// continue, so end the Executor afterwards. It returns an error when a retry is useless: a DrainedError, a
// RefusedError, ErrReplaced or ErrUnreachable. It may be called again, but only one call at a time.
func (c *InstanceConnection) Run(ctx context.Context) error {
	if !c.begin() {
		return errors.New("provider: Run is already running")
	}
	notes := newNotices(c.opt)
	defer notes.close()
	detach := c.opt.Executor.attach(c.lane)
	defer detach()
	err := c.keep(ctx, notes)
	c.set(notes, Status{State: Closed, Err: err})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	return err
}

func (c *InstanceConnection) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		return false
	}
	c.busy = true
	return true
}

// keep makes one attempt after the other until next decides to stop.
func (c *InstanceConnection) keep(ctx context.Context, notes *notices) error {
	failures := 0
	var unheard time.Time // when an attempt last had an unanswered registration; zero once its effect was seen
	for ctx.Err() == nil {
		c.set(notes, Status{State: Connecting, Failures: failures})
		s := &session{opt: c.opt, lane: c.lane, notes: notes, report: func(st Status) { c.set(notes, st) }}
		end := s.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if end.unheard {
			unheard = time.Now()
		} else if errors.Is(end.err, ErrReplaced) {
			end.late, unheard = time.Since(unheard) < lateRegister, time.Time{}
		}
		after := c.opt.next(end, failures, rand.Float64()) //nolint:gosec // jitter is no secret
		if after.stop {
			return after.done
		}
		failures = after.failures
		c.opt.Logger.Warn("the connection to the region ended, retrying",
			"address", c.opt.Address, "after", after.pause, "failures", failures, "err", end.err)
		c.set(notes, Status{State: Disconnected, Failures: failures, Err: end.err})
		c.wait(ctx, after.pause)
	}
	return nil
}

func (c *InstanceConnection) set(notes *notices, st Status) {
	st.Since = time.Now()
	c.mu.Lock()
	c.status = st
	c.mu.Unlock()
	notes.state(st)
}
