package guardian

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// once is a runtime as replicas have it: without a lease, and each command runs once.
func once(t *testing.T, script string) (*Runtime, Spec) {
	t.Helper()
	r := setup(t)
	require.NoError(t, os.Remove(filepath.Join(r.Root, leaseFile)))
	r.Unleased = true
	spec := shell(t, script)
	spec.Once, spec.Run.StartSeconds = true, 0.001
	return r, spec
}

func await(t *testing.T, r *Runtime) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, r.Await(ctx, "line-7"))
	st, listed, err := r.Status(t.Context(), "line-7")
	require.NoError(t, err)
	if !listed {
		return Status{}
	}
	return st
}

// S17, X5: what ends by itself is reported and not started again; nothing of it is left.
func TestOnce(t *testing.T) {
	t.Parallel()
	t.Run("runs without a lease and keeps how it ended", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "setsid sleep 1000 & echo up; read x < go; exit 3")
		require.NoError(t, unix.Mkfifo(filepath.Join(spec.Dir, "go"), 0o600))
		start(t, r, spec)
		printed(t, r, "up")
		require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "go"), []byte("go\n"), 0o600))
		st := await(t, r)
		require.Equal(t, []any{Ended, ReasonExited, "exit code 3", 0}, []any{st.Guardian, st.Reason, st.LastExit, st.Restarts})
		cleared(t, r)
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Status{st}, listed)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		listed, err = r.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, listed)
	})
	t.Run("is started again by who asks for it", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "exec sleep 1000")
		st := start(t, r, spec)
		sendTo(t, st.PID, unix.SIGKILL)
		require.Equal(t, "signal SIGKILL", await(t, r).LastExit)
		require.True(t, start(t, r, spec).Running)
	})
	t.Run("is dead when its guardian was killed", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "exec sleep 1000")
		st := start(t, r, spec)
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		require.Equal(t, Dead, await(t, r).Guardian)
		eventually(t, func() bool { return !runs(t, st.PID) }, "the command outlives its guardian")
	})
	t.Run("is not listed when it was told to stop", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "exec sleep 1000")
		start(t, r, spec)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, await(t, r).Guardian)
	})
	t.Run("waits for nothing where there is no guardian", func(t *testing.T) {
		t.Parallel()
		r, _ := once(t, "")
		require.Empty(t, await(t, r).Guardian)
	})
}

// S121: commands before the start.
func TestPreStart(t *testing.T) {
	t.Parallel()
	t.Run("runs them in order, then the command", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "echo three; exec sleep 1000")
		spec.PreStart = [][]string{{"sh", "-c", "echo one"}, {"sh", "-c", "echo two"}}
		start(t, r, spec)
		require.Equal(t, "one\ntwo\nthree\n", printed(t, r, "three\n"))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		cleared(t, r)
	})
	t.Run("ends where one fails", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "echo three; exec sleep 1000")
		spec.PreStart = [][]string{{"sh", "-c", "read x < go; exit 7"}}
		require.NoError(t, unix.Mkfifo(filepath.Join(spec.Dir, "go"), 0o600))
		start(t, r, spec)
		require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "go"), []byte("go\n"), 0o600))
		st := await(t, r)
		require.Equal(t, "command 1 before the start: exit code 7", st.LastExit)
		require.Equal(t, ReasonExited, st.Reason)
		out, err := r.ReadOutput("line-7", 0)
		require.NoError(t, err)
		require.Empty(t, out.Data)
	})
	t.Run("refuses one without a program", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "exec sleep 1000")
		spec.PreStart = [][]string{{}}
		_, err := r.Start(t.Context(), spec)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}
