package provider

import (
	"context"
	"errors"
	"sync"
)

// errDrainDeadline is why the work of a drained connection is cancelled.
var errDrainDeadline = errors.New("the drain's deadline has passed")

// lane is the work of one InstanceConnection: which connection id may bring more, and how much
// there is.
type lane struct {
	extra func() int // work beside the Executor's; may be nil

	mu     sync.Mutex
	id     string // of the live connection, "" while there is none
	closed bool   // drained: what there is goes on, nothing more begins
	work   int
	ctx    context.Context // of the work, that of earlier connections included; a drain cancels it
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

// close ends the connection; its work goes on and counts.
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

// enter counts one more piece of work, with a context that a drain's deadline cancels too.
// It fails when the connection has ended or drains.
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
