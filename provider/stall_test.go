package provider

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv has the address of the region to which this test binary connects as a process of
// its own, childTimeout its heartbeat timeout.
const (
	childEnv     = "PROVIDER_TEST_REGION"
	childTimeout = "PROVIDER_TEST_TIMEOUT"
)

// runChild is a provider that prints its connection ids, and ends with its standard input.
func runChild(address string) int {
	timeout, err := time.ParseDuration(os.Getenv(childTimeout)) //nolint:forbidigo // how a test starts itself as another process
	if err != nil {
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := New(Options{
		Address: address, Name: "child", Insecure: true, HeartbeatInterval: beats, HeartbeatTimeout: timeout,
		Token:   func(context.Context) (string, error) { return "secret", nil },
		Backoff: Backoff{Initial: time.Millisecond}, MaxReconnectAttempts: -1,
		OnState: func(s Status) { fmt.Println(s.State, s.ConnectionID) },
	})
	if err != nil {
		return 2
	}
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	if c.Run(ctx) != nil {
		return 1
	}
	return 0
}

// child starts the provider as a process.
func child(t *testing.T, address string, timeout time.Duration) *os.Process {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+address, childTimeout+"="+timeout.String())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = in.Close()
		require.NoError(t, cmd.Wait())
	})
	return cmd.Process
}

// C32
func TestStall(t *testing.T) {
	t.Parallel()
	const pause = 500 * time.Millisecond
	stall := func(t *testing.T, p *os.Process, length time.Duration) {
		require.NoError(t, p.Signal(syscall.SIGSTOP))
		<-time.After(length)
		require.NoError(t, p.Signal(syscall.SIGCONT))
	}
	t.Run("shorter than the timeout is lived through", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		p := child(t, r.address, patience)
		eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > 5 })
		stall(t, p, pause)
		before := r.heartbeats(1)
		eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > before+10 })
		require.Equal(t, 1, r.registrations())
	})
	t.Run("longer than the timeout, with answers that wait to be read, is lived through", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t).start()
		p := child(t, r.address, 4*pause)
		for range 2 {
			before := r.heartbeats(1)
			eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > before+5 })
			stall(t, p, 7*pause)
		}
		before := r.heartbeats(1)
		eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > before+10 })
		require.Equal(t, 1, r.registrations())
	})
	for what, end := range map[string]func(s *stream) error{
		"has forgotten it":      func(s *stream) error { return s.again("unknown") },
		"is silent afterwards":  func(*stream) error { return nil },
		"has closed the stream": func(s *stream) error { return context.Canceled },
	} {
		t.Run("longer than the region's timeout, which "+what+", leads to a new connection", func(t *testing.T) {
			t.Parallel()
			var stalled atomic.Bool
			r := newRegion(t)
			r.onStream = func(n int, s *stream) error {
				for n > 1 || !stalled.Load() {
					if err := s.ack(); err != nil {
						return err
					}
					if _, err := s.next(); err != nil {
						return orNil(err)
					}
				}
				if err := end(s); err != nil {
					return err
				}
				return s.listen()
			}
			r.start()
			p := child(t, r.address, 2*pause)
			eventually(t, "heartbeats", func() bool { return r.heartbeats(1) > 5 })
			stalled.Store(true)
			stall(t, p, 5*pause)
			eventually(t, "a new connection", func() bool { return r.heartbeats(r.registrations()) > 5 && r.registrations() > 1 })
		})
	}
}
