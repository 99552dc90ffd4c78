package provider

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// C62: a stream is cut for a send that takes too long, not for one that returns soon after the
// program closes: the region is to hear that first.
func TestSendLimit(t *testing.T) {
	t.Parallel()
	stuck := errors.New("the stream was cut")
	for name, c := range map[string]struct {
		timeout, closes, takes time.Duration // closes after, 0 for never; a send that takes 0 hangs
		want, cause            error
		after                  time.Duration
	}{
		"in time":                            {timeout: time.Minute, takes: time.Second, after: time.Second},
		"too late":                           {timeout: time.Minute, want: &silenceError{what: "x", wait: time.Minute}, cause: &silenceError{what: "x", wait: time.Minute}, after: time.Minute},
		"in time, while the program closes":  {timeout: time.Minute, closes: time.Second, takes: time.Second + lastSend/2, after: time.Second + lastSend/2},
		"too late, while the program closes": {timeout: time.Minute, closes: time.Second, want: stuck, cause: errClosed, after: time.Second + lastSend},
		"too late soon after it closes":      {timeout: lastSend / 2, closes: lastSend / 4, want: &silenceError{what: "x", wait: lastSend / 2}, cause: &silenceError{what: "x", wait: lastSend / 2}, after: lastSend / 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if c.closes > 0 {
					closing := time.AfterFunc(c.closes, end)
					defer closing.Stop()
				}
				cut := make(chan error, 10)
				broken := make(chan struct{})
				s := &session{terms: terms{timeout: c.timeout}, cut: func(err error) { cut <- err; close(broken) }}
				began := time.Now()
				err := s.send(ctx, "x", func() error {
					var done <-chan time.Time
					if c.takes > 0 {
						done = time.After(c.takes)
					}
					select {
					case <-done:
						return nil
					case <-broken:
						return stuck
					}
				})
				require.Equal(t, c.want, err)
				require.Equal(t, c.after, time.Since(began))
				end()
				<-time.After(2 * time.Minute) // nothing follows
				close(cut)
				require.Equal(t, c.cause, <-cut)
				require.Empty(t, cut)
			})
		})
	}
}

// C62
func TestSendLimitIsOver(t *testing.T) {
	t.Parallel()
	l := newSendLimit(time.Hour, func(err error) { require.Fail(t, "it was cut after it had returned", "%v", err) }, errStreamEnded)
	require.NoError(t, l.end())
	l.hurry() // as a context that ended just before
	l.reach()
	require.NoError(t, l.end())
	require.False(t, l.timer.Stop(), "no timer is left")
}
