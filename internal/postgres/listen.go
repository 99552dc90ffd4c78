package postgres

import (
	"context"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Ends spreads the word that operations ended, from one listening connection to all who
// wait in this process. It is a hurry only: waiters also look by themselves.
type Ends struct {
	store   *Store
	mu      sync.Mutex
	waiting map[fleet.OperationID]chan struct{}
}

// NewEnds makes the waiting room of one server.
func NewEnds(s *Store) *Ends { return &Ends{store: s, waiting: map[fleet.OperationID]chan struct{}{}} }

// Of gives a channel that closes when the operation may have ended.
func (e *Ends) Of(id fleet.OperationID) <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.waiting[id]
	if !ok {
		c = make(chan struct{})
		e.waiting[id] = c
	}
	return c
}

// Listen works until ctx ends or the connection breaks.
func (e *Ends) Listen(ctx context.Context) error {
	return e.store.Listen(ctx, "holdfast_operation", func() {}, func(id string) { e.ended(fleet.OperationID(id)) })
}

// Listen calls heard with the notifications of a channel, until ctx ends or the connection breaks.
// Began is called once nothing is missed any more.
func (s *Store) Listen(ctx context.Context, channel string, began func(), heard func(payload string)) error {
	conn, err := s.Pool.Acquire(ctx)
	if err != nil {
		return failed("listen on "+channel, err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return failed("listen on "+channel, err)
	}
	began()
	for {
		n, err := conn.Conn().WaitForNotification(ctx)
		if err != nil {
			conn.Conn().Close(context.WithoutCancel(ctx)) //nolint:errcheck // it is broken or in mid-wait: not for the pool
			return failed("listen on "+channel, err)
		}
		heard(n.Payload)
	}
}

func (e *Ends) ended(id fleet.OperationID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.waiting[id]; ok {
		close(c)
		delete(e.waiting, id)
	}
}
