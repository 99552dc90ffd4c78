package guardian

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestStop(t *testing.T) {
	t.Parallel()
	t.Run("is nothing when nothing runs", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		start(t, r, shell(t, "exec sleep 1000"))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
	})
	t.Run("lets the command end in its own way", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		start(t, r, shell(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
		printed(t, r, "ready")
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		printed(t, r, "bye")
		require.Empty(t, left(t, r))
		_, listed, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.False(t, listed)
	})
	t.Run("kills what ignores SIGTERM, and what left the group and session", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "trap '' TERM; (setsid sh -c 'echo daemon=$$; sleep 1000 & wait' &) ; echo ready; while :; do sleep 1000; done")
		spec.Run.StopSeconds = 0.1
		start(t, r, spec)
		daemon := printedPID(t, r, "daemon")
		require.True(t, runs(t, daemon))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.False(t, runs(t, daemon))
		require.Empty(t, left(t, r))
	})
	t.Run("ends stopped processes gracefully too", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		st := start(t, r, shell(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
		printed(t, r, "ready")
		sendTo(t, st.PID, unix.SIGSTOP)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		printed(t, r, "bye")
	})
	t.Run("happens when the guardian gets SIGTERM", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		st := start(t, r, shell(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
		printed(t, r, "ready")
		sendTo(t, st.GuardianPID, unix.SIGTERM)
		printed(t, r, "bye")
		eventually(t, func() bool { return !runs(t, st.GuardianPID) }, "the guardian lives on")
		require.Empty(t, left(t, r))
		require.NoError(t, r.Remove(t.Context(), "line-7"))
	})
	t.Run("frees the name for a start at once", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		for range 5 {
			start(t, r, shell(t, "exec sleep 1000"))
			require.NoError(t, r.Stop(t.Context(), "line-7"))
		}
	})
}

// X21: pausing or killing the guardian alone leaves nothing that cannot be stopped.
func TestStopBroken(t *testing.T) {
	t.Parallel()
	const script = "echo command=$$; sh -c 'echo child=$$; sleep 1000 & wait' & (setsid sh -c 'echo daemon=$$; sleep 1000 & wait' &); wait"
	t.Run("a killed guardian takes the command along and is listed as dead", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		st := start(t, r, shell(t, script))
		child, daemon := printedPID(t, r, "child"), printedPID(t, r, "daemon")
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.PID) }, "the command outlives its guardian")
		require.True(t, runs(t, child) && runs(t, daemon), "else this test proves nothing")
		seen, listed, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.True(t, listed)
		require.Equal(t, Dead, seen.Guardian)
		require.False(t, seen.Running)
		require.Equal(t, st.Labels, seen.Labels)

		start(t, r, shell(t, "exec sleep 1000"))
		require.False(t, runs(t, child) || runs(t, daemon), "a start beside what was left")
	})
	t.Run("what a killed guardian left is stopped", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		st := start(t, r, shell(t, script))
		printedPID(t, r, "child")
		printedPID(t, r, "daemon")
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.GuardianPID) }, "not killed")
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, left(t, r))
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, listed)
	})
	t.Run("what was left is found without a readable state", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		st := start(t, r, shell(t, script))
		child, daemon := printedPID(t, r, "child"), printedPID(t, r, "daemon")
		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.GuardianPID) }, "not killed")
		require.NoError(t, os.WriteFile(filepath.Join(r.Root, "line-7", stateFile), nil, 0o600))
		start(t, r, shell(t, "exec sleep 1000"))
		require.False(t, runs(t, child) || runs(t, daemon))
	})
	t.Run("a hung guardian is listed, keeps the name, and can be stopped", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.AnswerTimeout = 300 * time.Millisecond
		st := start(t, r, shell(t, script))
		printedPID(t, r, "child")
		printedPID(t, r, "daemon")
		sendTo(t, st.GuardianPID, unix.SIGSTOP)
		eventually(t, func() bool { // threads stop one by one
			seen, _, err := r.Status(t.Context(), "line-7")
			require.NoError(t, err)
			return seen.Guardian == Hung && seen.Running && seen.PID == st.PID
		}, "not seen as hung")
		_, err := r.Start(t.Context(), shell(t, "exec sleep 1000"))
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		require.Equal(t, fleet.Unavailable, fleet.KindOf(r.Signal(t.Context(), "line-7", "SIGHUP", Labels{})))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.False(t, runs(t, st.PID))
		require.Empty(t, left(t, r))
	})
}

func TestNeverKillsAnother(t *testing.T) {
	t.Parallel()
	t.Run("a process that has the pid of the command now", func(t *testing.T) {
		t.Parallel()
		other := setup(t)
		bystander := start(t, other, shell(t, "exec sleep 1000"))
		e, _, err := readProcess(bystander.PID)
		require.NoError(t, err)
		boot, err := bootID()
		require.NoError(t, err)

		r := setup(t)
		dir := filepath.Join(r.Root, "line-7")
		require.NoError(t, os.Mkdir(dir, 0o700))
		reused := e.process
		reused.Start--
		require.NoError(t, writeJSON(filepath.Join(dir, stateFile), state{
			BootID: boot, Cookie: "of another", Guardian: reused, Command: reused, Session: e.Session,
		}))
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.True(t, runs(t, bystander.PID))
	})
	t.Run("a process that has the pid of the guardian now", func(t *testing.T) {
		t.Parallel()
		other := setup(t)
		bystander := start(t, other, shell(t, "exec sleep 1000"))
		e, _, err := readProcess(bystander.PID)
		require.NoError(t, err)
		boot, err := bootID()
		require.NoError(t, err)

		r := setup(t)
		r.AnswerTimeout = 20 * time.Millisecond
		dir := filepath.Join(r.Root, "line-7")
		lock, err := claim(dir)
		require.NoError(t, err)
		reused := e.process
		reused.Start--
		require.NoError(t, writeJSON(filepath.Join(dir, stateFile), state{BootID: boot, Guardian: reused}))
		require.Equal(t, fleet.Unavailable, fleet.KindOf(r.Stop(t.Context(), "line-7")), "the holder of the lock is unknown")
		require.True(t, runs(t, bystander.PID))
		require.NoError(t, lock.Close())
	})
	t.Run("anything after the machine was booted again", func(t *testing.T) {
		t.Parallel()
		other := setup(t)
		bystander := start(t, other, shell(t, "exec sleep 1000"))
		e, _, err := readProcess(bystander.PID)
		require.NoError(t, err)

		r := setup(t)
		dir := filepath.Join(r.Root, "line-7")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, writeJSON(filepath.Join(dir, stateFile), state{
			BootID: "of another boot", Guardian: e.process, Command: e.process, Session: e.Session,
		}))
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, listed)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.True(t, runs(t, bystander.PID))
	})
}
