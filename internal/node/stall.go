package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stall cuts a connection that gives nothing for too long, headers included. It guards one
// attempt; the timer runs from the start and again from each read that brought something.
type stall struct {
	after  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
	cause  func() error
}

var errStalled = errors.New("the connection stalled")

func newStall(ctx context.Context, after time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stall{after: after, cancel: cancel, cause: func() error { return context.Cause(ctx) }}
	s.timer = time.AfterFunc(after, func() { cancel(fmt.Errorf("%w for %s", errStalled, after)) })
	return ctx, s
}

func (s *stall) stop() {
	s.timer.Stop()
	s.cancel(nil)
}

// explain prefers the reason for the cut over the "context canceled" that it shows as.
func (s *stall) explain(err error) error {
	if cause := s.cause(); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// watch gives a reader that winds the timer up, and calls each for every read that brought
// something.
func (s *stall) watch(r io.Reader, each func()) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if n > 0 {
			s.timer.Reset(s.after)
			each()
		}
		return n, err
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
