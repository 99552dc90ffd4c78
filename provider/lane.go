package provider

import (
	"context"
	"errors"
	"sync"
)

// errDrainDeadline is why the work of a drained connection is cancelled.
var errDrainDeadline = errors.New("the drain's deadline has passed")

// lane is the work of one InstanceConnection: which connection id may start more, and how much is running.
type lane struct {
	extra func() int // work besides the Executor's; may be nil

	mu     sync.Mutex
	id     string // of the live connection, "" without one
	closed bool   // drained: current work continues, nothing new starts
	work   int
	ctx    context.Context // of the work, also of earlier connections; a drain cancels it
	stop   context.CancelCauseFunc
}

func (l *lane) open(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.closed = id, false
	if l.ctx == nil || l.ctx.Err() != nil {
		l.ctx, l.stop = context.WithCancelCause(context.Background())
	}
}

// close ends the connection; its work continues and counts.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id = ""
}

func (l *lane) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

func (l *lane) cancel() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop(errDrainDeadline)
}

func (l *lane) inFlight() int {
	extra := 0
	if l.extra != nil {
		extra = max(0, l.extra())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.work + extra
}

// enter adds one piece of work, with a context that a drain's deadline cancels too. It fails when the
// connection has ended or drains.
func (l *lane) enter(ctx context.Context, id string) (context.Context, func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id == "" || l.id != id || l.closed {
		return nil, nil, false
	}
	l.work++
	ctx, cancel := context.WithCancelCause(ctx)
	drained := l.ctx
	stop := context.AfterFunc(drained, func() { cancel(context.Cause(drained)) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.work--
	}, true
}
