// Package idle is the node's side of idling: a gate in front of its worker's polls. The worker keeps running and is
// unaware of it. While the node is idle its polls wait here, so neither the link nor Temporal has any of them.
// docs/idle.md has a diagram.
package idle

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// Gate holds back polls while a node is idle. All its methods may be called at any time.
type Gate struct {
	now     func() time.Time
	working func() bool

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced by whatever may open the gate
	idle      time.Duration
	stirred   time.Time // when the node was last woken, or had a task
	connected bool
	draining  bool
	lost      time.Time // since when it is not connected
	closed    bool
	asking    int
}

// New makes a gate for a node that has just started to connect; working reports whether it has tasks under way.
func New(now func() time.Time, working func() bool) *Gate {
	return &Gate{now: now, working: working, changed: make(chan struct{}), lost: now()}
}

// Wake makes the node poll for tasks: there are some, or soon will be.
func (g *Gate) Wake() { g.change(func() { g.stirred = g.now() }) }

// Connected means that the node's stream is up, and sets the idle time.
func (g *Gate) Connected(idle time.Duration) {
	g.change(func() { g.connected, g.draining, g.idle = true, false, idle })
}

// Draining means that the region drains the node's connection: no poll is let through until its stream ends. One
// that already waits at the region may still bring a task, which is done as usual.
func (g *Gate) Draining() { g.change(func() { g.draining = true }) }

// Lost means that the stream is down, so the region cannot wake the node.
func (g *Gate) Lost() {
	g.change(func() {
		if g.connected {
			g.connected, g.lost = false, g.now()
		}
	})
}

// Close lets all polls through: the worker stops, and waits for them.
func (g *Gate) Close() { g.change(func() { g.closed = true }) }

// Asking is how many polls may pass now.
func (g *Gate) Asking() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asking
}

func (g *Gate) change(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

const (
	// askLeast keeps polls longer than the minimum that Temporal complains about.
	askLeast = 9 * time.Second
	// askRoom is what the link and Temporal deduct from a poll's deadline before they answer an empty one, plus
	// time for the answer's way back: no task is lost because a poll was about to end.
	askRoom = 8 * time.Second
)

// A poll that finds no region is repeated here, after pauses that double: a worker whose polls fail pauses for up to 10 s, also when the
// region is back.
const (
	againFirst = 200 * time.Millisecond
	againLast  = 2 * time.Second
)

// Unary is the gate, as an interceptor of the worker's connection.
func (g *Gate) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error { //nolint:revive // the shape of grpc.UnaryClientInterceptor
	if method != workflowservice.WorkflowService_PollActivityTaskQueue_FullMethodName {
		return call(ctx, method, req, reply, cc, opts...)
	}
	for again := againFirst; ; again = min(2*again, againLast) {
		p, err := g.await(ctx)
		if err != nil || !p.Ask {
			return err
		}
		err = g.ask(ctx, p, reply, func(ctx context.Context) error { return call(ctx, method, req, reply, cc, opts...) })
		if status.Code(err) != codes.Unavailable {
			return err
		}
		if err := wait(ctx, nil, again/2+rand.N(again)); err != nil { //nolint:gosec // jitter is no secret
			return over(err)
		}
	}
}

// ask polls once.
func (g *Gate) ask(ctx context.Context, p decide.Poll, reply any, call func(context.Context) error) error {
	defer g.asked()
	limited := ctx
	if p.For > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, max(p.For, askLeast)+askRoom)
		defer cancel()
	}
	err := call(limited)
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		err = nil // the region is slow; do not poll longer because of that
	}
	g.answered(p, reply, err)
	return err
}

// await returns when the node should poll; otherwise the poll ends empty and the worker retries.
func (g *Gate) await(ctx context.Context) (decide.Poll, error) {
	for {
		p, changed := g.decide()
		if p.Ask {
			return p, nil
		}
		if err := wait(ctx, changed, p.For); err != nil {
			return p, over(err)
		}
	}
}

// over ends a poll with its context: with an empty answer at its deadline, as any long poll.
func over(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return status.FromContextError(err).Err()
}

func (g *Gate) decide() (decide.Poll, <-chan struct{}) {
	working := g.working()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	p := decide.Poll{Rule: "closed", Ask: true}
	if !g.closed {
		p = decide.NodePoll(decide.PollSeen{
			Idle: g.idle, Quiet: now.Sub(g.stirred), Working: working, Connected: g.connected, Draining: g.draining, Lost: now.Sub(g.lost),
		})
	}
	if p.Ask {
		g.asking++
	}
	return p, g.changed
}

func (g *Gate) asked() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asking--
}

// answered: a task keeps the node awake. So does a failed poll after a wake, until one is answered.
func (g *Gate) answered(p decide.Poll, reply any, err error) {
	out, _ := reply.(*workflowservice.PollActivityTaskQueueResponse)
	if err == nil && len(out.GetTaskToken()) == 0 || err != nil && p.Rule != decide.PollWoken {
		return
	}
	g.Wake()
}

// wait ends with a change, at its time, or with the context.
func wait(ctx context.Context, changed <-chan struct{}, limit time.Duration) error {
	var over <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-over:
	}
	return nil
}
