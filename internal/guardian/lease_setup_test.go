package guardian

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// testTTL makes the margins those of a long TTL: a second each, so that a busy machine keeps
// them. Tests of them run before the parallel ones, for the same reason.
const testTTL = 16 * time.Second

func leaseFor(runs time.Duration) Lease {
	return Lease{Deadline: SinceBoot() + runs, TTL: testTTL}
}

// witness is a command that says when it ran, and ignores SIGTERM, as its child does.
func witness(file string) int {
	signal.Ignore(unix.SIGTERM) // Go does not inherit that
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 1
	}
	for range time.Tick(5 * time.Millisecond) {
		fmt.Fprintf(out, "%d\n", SinceBoot())
	}
	return 0
}

// witnessed is an instance with two witnesses, one of which left the group and session of
// the other; both ignore SIGTERM.
func witnessed(t *testing.T, r *Runtime) (Spec, *watch) {
	t.Helper()
	w := &watch{t: t, dir: t.TempDir()}
	spec := shell(t, fmt.Sprintf(`trap '' TERM; echo start >> %[2]s/starts; (setsid "%[1]s" witness %[2]s/stray &); "%[1]s" witness %[2]s/own & wait; wait`,
		r.Executable, w.dir))
	spec.Run.StopSeconds = 0.2
	return spec, w
}

// watch reads what the witnesses wrote.
type watch struct {
	t   *testing.T
	dir string
}

// last is when something of the instance ran last; 0 never.
func (w *watch) last() time.Duration {
	w.t.Helper()
	var last time.Duration
	for _, file := range []string{"own", "stray"} {
		last = max(last, w.lastOf(file))
	}
	return last
}

func (w *watch) lastOf(file string) time.Duration {
	w.t.Helper()
	lines := strings.Split(readFile(w.t, filepath.Join(w.dir, file)), "\n")
	if len(lines) < 2 {
		return 0
	}
	at, err := strconv.ParseInt(lines[len(lines)-2], 10, 64)
	require.NoError(w.t, err)
	return time.Duration(at)
}

func (w *watch) starts() int {
	w.t.Helper()
	return strings.Count(readFile(w.t, filepath.Join(w.dir, "starts")), "start")
}

// goesOn waits until both witnesses wrote after an instant.
func (w *watch) goesOn(at time.Duration) {
	w.t.Helper()
	eventually(w.t, func() bool { return w.lastOf("own") > at && w.lastOf("stray") > at }, "nothing runs")
}

// until waits for an instant on the clock of leases.
func until(t *testing.T, at time.Duration) {
	t.Helper()
	eventually(t, func() bool { return SinceBoot() >= at }, "the clock stands still")
}

// enforced runs the agent's half for the length of a test.
func enforced(t *testing.T, r *Runtime) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Enforce(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

// paused stops a process and waits until all of its threads stand.
func paused(t *testing.T, pid int) {
	t.Helper()
	sendTo(t, pid, unix.SIGSTOP)
	eventually(t, func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		for _, task := range tasks {
			stat := readFile(t, task)
			if state := stat[strings.LastIndexByte(stat, ')')+1:]; !strings.HasPrefix(state, " T") {
				return false
			}
		}
		return len(tasks) > 0
	}, "not paused")
}

// status waits until the guardian of the instance is seen in some health.
func status(t *testing.T, r *Runtime, want Health) Status {
	t.Helper()
	var st Status
	eventually(t, func() bool {
		var err error
		st, _, err = r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		return st.Guardian == want
	}, "not seen as "+string(want))
	return st
}
