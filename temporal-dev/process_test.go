package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// shellSpec runs a line of shell; stop ends it with SIGTERM and little patience.
func shellSpec(t *testing.T, name, line string) spec {
	t.Helper()
	return spec{
		name: name, log: filepath.Join(t.TempDir(), name+".log"), rank: rankNode, onParentDeath: syscall.SIGKILL,
		end:     []stopSignal{{syscall.SIGTERM, 200 * time.Millisecond}},
		command: func(context.Context) (*exec.Cmd, error) { return exec.Command("/bin/sh", "-c", line), nil },
	}
}

const sleeper = "exec sleep 600"

func newTestSupervisor(t *testing.T) (*supervisor, *transcript) {
	t.Helper()
	said := &transcript{}
	s := newSupervisor(said)
	t.Cleanup(func() { s.close(nil) })
	return s, said
}

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("that dies alone is reported and started again after a second", func(t *testing.T) {
		t.Parallel()
		s, said := newTestSupervisor(t)
		p := s.add(shellSpec(t, "a", sleeper))
		require.NoError(t, p.start(t.Context()))
		first, died := p.snapshot(), time.Now()
		kill9(t, first.PID)
		require.NoError(t, p.await(t.Context(), func(v processView) bool { return v.Running && v.Starts == 2 }))
		require.GreaterOrEqual(t, time.Since(died), restartDelay)
		require.NotEqual(t, first.PID, p.snapshot().PID)
		require.Contains(t, said.String(), "! a ended on its own (signal: killed); starting it again in 1s")
	})
	t.Run("that is stopped stays stopped until it is started", func(t *testing.T) {
		t.Parallel()
		s, said := newTestSupervisor(t)
		sp := shellSpec(t, "a", sleeper)
		sp.end[0].wait = testPatience
		p := s.add(sp)
		require.NoError(t, s.start(t.Context(), "a"))
		pid := p.snapshot().PID
		require.NoError(t, s.stop(t.Context(), "a"))
		require.False(t, alive(pid))
		stopped, cancel := context.WithTimeout(t.Context(), restartDelay+500*time.Millisecond)
		defer cancel()
		require.Error(t, p.await(stopped, func(v processView) bool { return v.Running }))
		require.NoError(t, s.stop(t.Context(), "a"))
		require.NoError(t, s.start(t.Context(), "a"))
		require.NoError(t, s.start(t.Context(), "a"))
		require.Equal(t, 2, p.snapshot().Starts)
		require.Empty(t, said.String())
	})
	t.Run("that ignores its signal is killed when the patience is over", func(t *testing.T) {
		t.Parallel()
		s, said := newTestSupervisor(t)
		sp := shellSpec(t, "a", "trap '' TERM; echo deaf; while :; do read x || :; done < /dev/zero")
		p := s.add(sp)
		require.NoError(t, p.start(t.Context()))
		eventually(t, "the trap is set", func() bool { log, _ := os.ReadFile(sp.log); return strings.Contains(string(log), "deaf") })
		require.NoError(t, p.stop(t.Context()))
		require.Zero(t, p.snapshot().PID)
		require.Contains(t, said.String(), "a did not end within 200ms")
	})
	t.Run("can be stopped while it waits for its next start", func(t *testing.T) {
		t.Parallel()
		s, said := newTestSupervisor(t)
		p := s.add(shellSpec(t, "a", "exit 3"))
		require.NoError(t, p.start(t.Context()))
		eventually(t, "it ended", func() bool { return strings.Contains(said.String(), "exit status 3") })
		require.NoError(t, p.stop(t.Context()))
		require.False(t, p.snapshot().Wanted)
	})
	t.Run("ends last when others need it", func(t *testing.T) {
		t.Parallel()
		s, _ := newTestSupervisor(t)
		order := filepath.Join(t.TempDir(), "order")
		for name, r := range map[string]rank{"db": rankPostgres, "server": rankServer, "node": rankNode} {
			sp := shellSpec(t, name, "trap 'echo "+name+" >> "+order+"; exit' TERM; echo up; while :; do sleep 0.01; done")
			sp.rank = r
			sp.end[0].wait = testPatience
			require.NoError(t, s.add(sp).start(t.Context()))
			eventually(t, "the trap is set", func() bool { log, _ := os.ReadFile(sp.log); return len(log) > 0 })
		}
		s.close(nil)
		text, err := os.ReadFile(order)
		require.NoError(t, err)
		require.Equal(t, "node\nserver\ndb\n", string(text))
		require.Error(t, s.start(t.Context(), "db"))
	})
	t.Run("is closed at once, also while somebody waits for its start", func(t *testing.T) {
		t.Parallel()
		s, _ := newTestSupervisor(t)
		sp, asked := shellSpec(t, "a", sleeper), make(chan struct{}, 1)
		sp.command = func(ctx context.Context) (*exec.Cmd, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		p := s.add(sp)
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		defer cancel()
		started := make(chan error, 1)
		go func() { started <- p.start(ctx) }()
		<-asked
		go s.close(nil)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(<-started))
		<-p.ended
	})
	t.Run("is not started again while its close waits for its end", func(t *testing.T) {
		t.Parallel()
		s, _ := newTestSupervisor(t)
		may := filepath.Join(t.TempDir(), "may-end")
		sp := shellSpec(t, "a", "trap 'echo ending; while [ ! -e "+may+" ]; do sleep 0.01; done; exit' TERM; echo up; while :; do sleep 0.01; done")
		sp.end[0].wait = testPatience
		says := func(what string) {
			eventually(t, what, func() bool { log, _ := os.ReadFile(sp.log); return strings.Contains(string(log), what) })
		}
		p := s.add(sp)
		require.NoError(t, p.start(t.Context()))
		says("up")
		go s.close(nil)
		says("ending")
		require.True(t, p.snapshot().closed, "no order that waits for this one is carried out")
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		defer cancel()
		started := make(chan error, 1)
		go func() { started <- p.start(ctx) }()
		require.NoError(t, os.WriteFile(may, nil, 0o600))
		require.Equal(t, fleet.IllegalState, fleet.KindOf(<-started))
		<-p.ended
		require.Equal(t, 1, p.snapshot().Starts)
	})
	t.Run("that never gets ready is given up with the end of its log", func(t *testing.T) {
		t.Parallel()
		s, _ := newTestSupervisor(t)
		p := s.add(shellSpec(t, "a", "echo no disk left; exit 1"))
		err := startAndWait(t.Context(), p, func(context.Context) error { return errNotYet })
		require.ErrorContains(t, err, "a ended 3 times before it was ready")
		require.ErrorContains(t, err, "no disk left")
	})
}

// The start of a region waits for no node that was stopped by hand meanwhile.
func TestWantedNodes(t *testing.T) {
	t.Parallel()
	s, _ := newTestSupervisor(t)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, s.add(shellSpec(t, name, sleeper)).start(t.Context()))
	}
	l := &laptop{supervisor: s}
	require.Equal(t, []fleet.NodeName{"a", "b"}, l.wanted([]fleet.NodeName{"a", "b"}))
	require.NoError(t, s.stop(t.Context(), "b"))
	require.Equal(t, []fleet.NodeName{"a"}, l.wanted([]fleet.NodeName{"a", "b"}))
}
