package guardian

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// startAgent starts an instance from another process.
func startAgent(t *testing.T, o order, wrap ...string) *exec.Cmd {
	t.Helper()
	arg, err := json.Marshal(o)
	require.NoError(t, err)
	argv := append(wrap, o.Executable, "agent", string(arg))
	cmd := exec.Command(argv[0], argv[1:]...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { endAgent(cmd) })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	return cmd
}

func endAgent(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // a second time it is gone already
	_ = cmd.Wait()
}

// startByAgent is startAgent that gives how to kill the agent.
func startByAgent(t *testing.T, o order, wrap ...string) (kill func()) {
	t.Helper()
	cmd := startAgent(t, o, wrap...)
	return func() { endAgent(cmd) }
}

func TestOutlivesAgent(t *testing.T) {
	t.Parallel()
	t.Run("a killed agent's instance is found, signalled and stopped by the next", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "trap 'echo changed' HUP; echo ready; while :; do sleep 0.05; done")
		startByAgent(t, order{Root: r.Root, Executable: r.Executable, Spec: spec})()
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.True(t, listed[0].Running && runs(t, listed[0].PID))
		require.Equal(t, spec.Labels, listed[0].Labels)
		require.Zero(t, listed[0].Restarts)
		printed(t, r, "ready")
		require.NoError(t, r.Signal(t.Context(), "line-7", "SIGHUP", spec.Labels))
		printed(t, r, "changed")
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, left(t, r))
	})
	t.Run("a command can be signalled when the agent ignores the signal", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "trap 'echo changed' HUP; echo ready; while :; do sleep 0.05; done")
		startByAgent(t, order{Root: r.Root, Executable: r.Executable, Spec: spec},
			"sh", "-c", `trap "" HUP; exec "$0" "$@"`)
		printed(t, r, "ready")
		require.NoError(t, r.Signal(t.Context(), "line-7", "SIGHUP", spec.Labels))
		printed(t, r, "changed")
	})
	t.Run("with a lifetime process the instance ends gracefully after it", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
		kill := startByAgent(t, order{Root: r.Root, Executable: r.Executable, LifetimeSelf: true, Spec: spec})
		printed(t, r, "ready")
		kill()
		printed(t, r, "bye")
		eventually(t, func() bool { return len(left(t, r)) == 0 }, "something is left")
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, listed)
	})
	t.Run("a lifetime process that has ended refuses the start", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		cmd := exec.Command("true")
		require.NoError(t, cmd.Run())
		r.LifetimePID = cmd.Process.Pid
		_, err := r.Start(t.Context(), shell(t, "exec sleep 1000"))
		require.ErrorContains(t, err, "no such process")
		require.Empty(t, left(t, r))
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Empty(t, listed)
	})
}

func TestSignal(t *testing.T) {
	t.Parallel()
	t.Run("tells the process of a change without a restart and keeps the labels", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		// The child would die of a SIGHUP to the whole group, and the shell say so.
		st := start(t, r, shell(t, "sh -c 'sleep 1000; echo child died' & trap 'echo changed' HUP; echo ready; while :; do sleep 0.05; done"))
		printed(t, r, "ready")
		changed := Labels{Version: fleet.Version{Era: 1, Revision: 5}, Hash: "cc", Epoch: 10}
		require.NoError(t, r.Signal(t.Context(), "line-7", "", changed))
		printed(t, r, "changed")
		seen, _, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.Equal(t, changed, seen.Labels)
		require.Equal(t, st.PID, seen.PID)

		sendTo(t, st.GuardianPID, unix.SIGKILL)
		eventually(t, func() bool { return !runs(t, st.GuardianPID) }, "not killed")
		dead, _, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.Equal(t, changed, dead.Labels, "the labels outlive the guardian")
		var asked launch
		require.NoError(t, readJSON(filepath.Join(r.Root, "line-7", specFile), &asked))
		require.Equal(t, changed, asked.Labels)
	})
	t.Run("is refused without a guardian and for other signals", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		require.Equal(t, fleet.NotFound, fleet.KindOf(r.Signal(t.Context(), "line-7", "SIGHUP", Labels{})))
		st := start(t, r, shell(t, "exec sleep 1000"))
		require.Equal(t, fleet.Invalid, fleet.KindOf(r.Signal(t.Context(), "line-7", "SIGKILL", Labels{})))
		require.True(t, runs(t, st.PID))
	})
}

func TestRestart(t *testing.T) {
	t.Parallel()
	t.Run("a command that exits runs again, alone, and the status says so", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		// The first two runs end with 7 and leave a child behind, the first when it was seen.
		spec := shell(t, "n=$(ls runs | wc -l); touch runs/$n; echo run=$n; [ $n -ge 2 ] && exec sleep 1000; sleep 1000 & sleep 0.3; until [ -e seen ]; do sleep 0.02; done; exit 7")
		require.NoError(t, exec.Command("mkdir", filepath.Join(spec.Dir, "runs")).Run())
		first := start(t, r, spec)
		require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "seen"), nil, 0o600))
		printed(t, r, "run=2")
		var st Status
		eventually(t, func() bool {
			var err error
			st, _, err = r.Status(t.Context(), "line-7")
			require.NoError(t, err)
			return st.Running && st.Restarts == 2
		}, "not restarted")
		require.Equal(t, "exit code 7", st.LastExit)
		require.NotEqual(t, first.PID, st.PID)
		require.True(t, st.Since.After(first.Since))
		require.Equal(t, 1, strings.Count(printed(t, r, "run=2"), "run=1\n"))
		// In mid-exec a process shows no environment, by which it would be known.
		eventually(t, func() bool { return len(left(t, r)) == 2 }, "children of earlier runs are left, or it is not there")
		require.ElementsMatch(t, []int{st.PID, st.GuardianPID}, left(t, r), "children of earlier runs")
	})
	t.Run("the delay doubles up to its limit and starts anew after a long life", func(t *testing.T) {
		t.Parallel()
		b := Backoff{}.withDefaults()
		var delays []time.Duration
		last := time.Duration(0)
		for range 7 {
			last = b.next(last, 59*time.Second)
			delays = append(delays, last/time.Second)
		}
		require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 30, 30}, delays)
		require.Equal(t, time.Second, b.next(30*time.Second, time.Minute))
	})
	t.Run("a command in its back-off can be stopped and is not started again", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.Backoff = Backoff{First: time.Hour, Max: time.Hour}
		st := start(t, r, shell(t, "exec sleep 1000"))
		sendTo(t, st.PID, unix.SIGKILL)
		eventually(t, func() bool {
			seen, _, err := r.Status(t.Context(), "line-7")
			require.NoError(t, err)
			return !seen.Running && seen.LastExit == "signal SIGKILL" && seen.Guardian == Live
		}, "the exit is not seen")
		require.NoError(t, r.Signal(t.Context(), "line-7", "SIGHUP", Labels{Epoch: 11}))
		seen, _, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.Equal(t, int64(11), seen.Labels.Epoch)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, left(t, r))
	})
}
