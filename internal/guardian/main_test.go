package guardian

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/waits"
)

// patience is for conditions that hold within milliseconds on an idle machine.
const patience = 30 * time.Second

// TestMain makes the test binary what the agent's is: an agent, a guardian, and here the
// command of an instance too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Command:
			// Not os.Exit: a binary with the race detector would stay for another second.
			syscall.Exit(Main(context.Background(), os.Args[2:]))
		case "agent":
			os.Exit(agent(os.Args[2]))
		case "exclusive":
			os.Exit(exclusive(os.Args[2]))
		case "greet":
			fmt.Printf("%s greets as %d\n", os.Args[0], os.Getuid())
			select {}
		case "witness":
			os.Exit(witness(os.Args[2]))
		}
	}
	waits.Parallel()
	goleak.VerifyTestMain(m)
}

// order is what a test asks the agent process to start.
type order struct {
	Root, Executable string
	LifetimeSelf     bool
	Spec             Spec
	// Runs is how long its lease runs, 0 without end; Enforce makes it keep the deadline too.
	Runs    time.Duration
	Enforce bool
	// Deadline is that of its lease when Runs is 0. The agent leaves to the guardian to look at it.
	Deadline time.Duration
}

// agent starts an instance, says so, and stays until it is killed.
func agent(arg string) int {
	var o order
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		fmt.Println(err)
		return 1
	}
	r := &Runtime{Root: o.Root, Executable: o.Executable}
	if o.LifetimeSelf {
		r.LifetimePID = os.Getpid()
	}
	lease := NoDeadline()
	if o.Runs > 0 {
		lease = leaseFor(o.Runs)
	}
	begin := func() error {
		_, err := r.Start(context.Background(), o.Spec)
		return err
	}
	if o.Deadline > 0 {
		lease = Lease{Deadline: o.Deadline, TTL: testTTL}
		begin = func() error { return startUnasked(r, o.Spec) }
	}
	if err := r.Lease(context.Background(), lease); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := begin(); err != nil {
		fmt.Printf("%s: %v\n", fleet.KindOf(err), err)
		return 1
	}
	if o.Enforce {
		go func() { fmt.Println(r.Enforce(context.Background())) }()
	}
	fmt.Println("started")
	select {}
}

// startUnasked starts as if the lease had ended just after the agent looked.
func startUnasked(r *Runtime, spec Spec) error {
	dir, err := r.dir(spec.Instance)
	if err != nil {
		return err
	}
	lock, err := claim(dir)
	if err != nil {
		return err
	}
	_, err = r.start(context.Background(), dir, lock, spec)
	return err
}

// exclusive is a command that notices when it runs twice at once, by a lock that the kernel
// drops with the process.
func exclusive(file string) int {
	lock, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 1
	}
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		fmt.Fprintln(lock, "twice")
		return 1
	}
	fmt.Fprintln(lock, "once")
	select {}
}

func setup(t *testing.T) *Runtime {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	r := &Runtime{
		Root: t.TempDir(), Executable: self, LifetimePID: os.Getpid(), // nothing outlives a test run that is killed
		Backoff: Backoff{First: 10 * time.Millisecond, Max: 40 * time.Millisecond},
		Log:     slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	require.NoError(t, r.Lease(t.Context(), NoDeadline()))
	t.Cleanup(func() {
		left, err := r.List(context.Background())
		require.NoError(t, err)
		for _, st := range left {
			require.NoError(t, r.Stop(context.Background(), st.Instance))
		}
		logs, err := filepath.Glob(filepath.Join(r.Root, "*", logFile))
		require.NoError(t, err)
		for _, log := range logs {
			said, err := os.ReadFile(log)
			require.NoError(t, err)
			require.NotContains(t, string(said), "DATA RACE")
			require.NotContains(t, string(said), "goroutine ")
		}
	})
	return r
}

func shell(t *testing.T, script string) Spec {
	t.Helper()
	return Spec{
		Instance: "line-7",
		Run:      fleet.Run{Command: []string{"sh", "-c", script}, StartSeconds: 0.05, StopSeconds: 20},
		Env:      []string{"PATH=" + systemPath, "HOLDFAST_INSTANCE=line-7"},
		Dir:      t.TempDir(),
		Labels:   Labels{Version: fleet.Version{Era: 1, Revision: 4}, Hash: "aa", RunHash: "bb", Epoch: 9},
	}
}

func start(t *testing.T, r *Runtime, spec Spec) Status {
	t.Helper()
	st, err := r.Start(t.Context(), spec)
	require.NoError(t, err)
	return st
}

// printed waits until the command has printed something, and gives all of its output.
func printed(t *testing.T, r *Runtime, want string) string {
	t.Helper()
	var all string
	eventually(t, func() bool {
		out, err := r.ReadOutput("line-7", 0)
		require.NoError(t, err)
		all = string(out.Data)
		return strings.Contains(all, want)
	}, "output without "+want)
	return all
}

// printedPID is the number that the command printed as "name=N".
func printedPID(t *testing.T, r *Runtime, name string) int {
	t.Helper()
	all := printed(t, r, name+"=")
	var pid int
	eventually(t, func() bool {
		_, rest, _ := strings.Cut(printed(t, r, name+"="), name+"=")
		digits, _, whole := strings.Cut(rest, "\n")
		var err error
		pid, err = strconv.Atoi(digits)
		return whole && err == nil
	}, "no pid in "+all)
	return pid
}

func eventually(t *testing.T, holds func() bool, otherwise string) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, otherwise)
}

func runs(t *testing.T, pid int) bool {
	t.Helper()
	e, ok, err := readProcess(pid)
	require.NoError(t, err)
	return ok && !e.Zombie
}

func sendTo(t *testing.T, pid int, sig unix.Signal) {
	t.Helper()
	require.Positive(t, pid)
	require.NoError(t, unix.Kill(pid, sig))
}

// left lists the processes on the machine that belong to the instance.
func left(t *testing.T, r *Runtime) []int {
	t.Helper()
	run, guard := ofInstance(t, r)
	return append(run, guard...)
}

// cleared says that nothing of the instance runs any more; its guardian, which said so first,
// ends too.
func cleared(t *testing.T, r *Runtime) {
	t.Helper()
	run, _ := ofInstance(t, r)
	require.Empty(t, run)
	eventually(t, func() bool { return len(left(t, r)) == 0 }, "its guardian is left")
}

func ofInstance(t *testing.T, r *Runtime) (run, guard []int) {
	t.Helper()
	dir := filepath.Join(r.Root, "line-7")
	cookie, err := cookieOf(dir)
	require.NoError(t, err)
	table, err := processes()
	require.NoError(t, err)
	for _, e := range table {
		cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", e.PID))
		switch {
		case e.Zombie:
		case err == nil && slices.Contains(strings.Split(string(cmdline), "\x00"), dir):
			guard = append(guard, e.PID)
		case carried(e.PID, cookieVar) == cookie:
			run = append(run, e.PID)
		}
	}
	return run, guard
}
