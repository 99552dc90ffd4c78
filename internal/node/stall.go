package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// stall cuts a connection that is silent for too long, also before its headers. It guards one attempt; the
// timer restarts with each read that returned data.
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

// explain replaces the "context canceled" of a cut by its reason.
func (s *stall) explain(err error) error {
	if cause := s.cause(); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// watch gives a reader that restarts the timer and calls each for every read that returned data.
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
