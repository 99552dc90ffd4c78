package guardian

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestStart(t *testing.T) {
	t.Parallel()
	t.Run("returns a running command with its labels", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "exec sleep 1000")
		st := start(t, r, spec)
		require.True(t, st.Running)
		require.True(t, runs(t, st.PID))
		require.Equal(t, spec.Labels, st.Labels)
		require.Equal(t, Live, st.Guardian)
		require.Zero(t, st.Restarts)
		listed, err := r.List(t.Context())
		require.NoError(t, err)
		require.Equal(t, []Status{st}, listed)
	})
	t.Run("gives the command its own environment and directory and nothing else", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "pwd; exec /usr/bin/env")
		spec.Run.Command = []string{"sh", "-c", "pwd; tr '\\0' '\\n' < /proc/self/environ; ls /proc/self/fd | wc -l; echo end; exec sleep 1000"}
		spec.Run.Env = map[string]string{"COLOUR": "blue", "PATH": "/usr/bin:/bin"}
		start(t, r, spec)
		cookie, err := cookieOf(filepath.Join(r.Root, "line-7"))
		require.NoError(t, err)
		lines := strings.Fields(printed(t, r, "end\n"))
		require.Equal(t, spec.Dir, lines[0])
		// sh adds PWD (and some shells OLDPWD, _ and SHLVL) to what its children see.
		var env []string
		for _, line := range lines[1 : len(lines)-2] {
			if name, _, _ := strings.Cut(line, "="); name != "PWD" && name != "OLDPWD" && name != "_" && name != "SHLVL" {
				env = append(env, line)
			}
		}
		require.ElementsMatch(t, []string{
			"COLOUR=blue", "HOLDFAST_INSTANCE=line-7", "PATH=/usr/bin:/bin", cookieVar + "=" + cookie,
		}, env)
		require.Equal(t, "4", lines[len(lines)-2], "0, 1, 2 and what ls itself opens")
	})
	t.Run("works below a path that is longer than a socket address", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.Root = filepath.Join(r.Root, strings.Repeat("d", 120), strings.Repeat("e", 120))
		require.NoError(t, r.Lease(t.Context(), NoDeadline()))
		start(t, r, shell(t, "exec sleep 1000"))
		st, ok, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.True(t, ok && st.Running)
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, left(t, r))
	})
	t.Run("is refused while a guardian of the name lives", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		first := start(t, r, shell(t, "exec sleep 1000"))
		_, err := r.Start(t.Context(), shell(t, "exec sleep 2000"))
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		st, _, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.Equal(t, first, st)
	})
	t.Run("fails if the command ended in time, however late its guardian sees it", func(t *testing.T) {
		t.Parallel()
		for range 3 { // its guardian sees both, the end and the timer, in either order
			r := setup(t)
			spec := shell(t, "until [ -e go ]; do sleep 0.01; done; exit 3")
			spec.Run.StartSeconds = 1
			failed := make(chan error, 1)
			go func() { _, err := r.Start(t.Context(), spec); failed <- err }()
			var st Status
			eventually(t, func() bool {
				var ok bool
				st, ok, _ = r.Status(t.Context(), "line-7")
				return ok && st.Running
			}, "it does not start")
			paused(t, st.GuardianPID) // a thread that still waits would take the end in
			require.NoError(t, os.WriteFile(filepath.Join(spec.Dir, "go"), nil, 0o600))
			eventually(t, func() bool {
				e, _, err := readProcess(st.PID)
				return err == nil && e.Zombie && time.Since(st.Since) > 1100*time.Millisecond
			}, "it does not end")
			require.NoError(t, unix.Kill(st.GuardianPID, unix.SIGCONT))
			require.Equal(t, fleet.ApplyFailed, fleet.KindOf(<-failed))
		}
	})
	t.Run("without a lease leaves nothing when the context ends first", func(t *testing.T) {
		t.Parallel()
		r, spec := once(t, "echo child=$$; sleep 1000 & wait")
		spec.Run.StartSeconds = 1000
		require.ErrorIs(t, cutOff(t, r, spec), context.Canceled)
		require.Empty(t, left(t, r))
		require.NotEmpty(t, start(t, r, shell(t, "exec sleep 1000")).PID)
	})
	t.Run("refuses names that lead out of the root", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		spec := shell(t, "exec sleep 1000")
		spec.Instance = "../other"
		_, err := r.Start(t.Context(), spec)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}

// cutOff starts a command and ends the context once it printed its pid as child.
func cutOff(t *testing.T, r *Runtime, spec Spec) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { _, err := r.Start(ctx, spec); failed <- err }()
	printedPID(t, r, "child")
	cancel()
	return <-failed
}

// X13: a start whose caller was cut off goes on under the lease, and never runs twice.
func TestStarted(t *testing.T) {
	t.Parallel()
	begun := func(t *testing.T, script string, window float64) (*Runtime, Status) {
		t.Helper()
		r := setup(t)
		spec := shell(t, "echo child=$$; "+script)
		spec.Run.StartSeconds = window
		require.ErrorIs(t, cutOff(t, r, spec), context.Canceled)
		st, ok, err := r.Status(t.Context(), "line-7")
		require.NoError(t, err)
		require.True(t, ok && st.Running)
		_, err = r.Start(t.Context(), spec)
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		return r, st
	}
	t.Run("gives the result of a start that goes on, and again", func(t *testing.T) {
		t.Parallel()
		r, first := begun(t, "exec sleep 1000", 1)
		require.True(t, first.Starting)
		for range 2 {
			st, err := r.Started(t.Context(), "line-7")
			require.NoError(t, err)
			require.False(t, st.Starting)
			require.Equal(t, first.PID, st.PID)
		}
		require.Equal(t, 1, strings.Count(printed(t, r, "child"), "child"))
	})
	t.Run("fails as the start does when the command ends too early", func(t *testing.T) {
		t.Parallel()
		r, first := begun(t, "sleep 1000 & while [ ! -e go ]; do sleep 0.01; done; exit 3", 1000)
		var asked launch
		require.NoError(t, readJSON(filepath.Join(r.Root, "line-7", specFile), &asked))
		failed := make(chan error, 1)
		go func() { _, err := r.Started(t.Context(), "line-7"); failed <- err }()
		require.NoError(t, os.WriteFile(filepath.Join(asked.Dir, "go"), nil, 0o600))
		err := <-failed
		if fleet.KindOf(err) == fleet.Conflict { // it had ended before it was asked
			require.ErrorContains(t, err, "did not report")
		} else {
			require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err), "%v", err)
			require.ErrorContains(t, err, "exit code 3")
		}
		eventually(t, func() bool { return !runs(t, first.PID) && len(left(t, r)) == 0 }, "it runs on")
	})
	t.Run("says that it was stopped", func(t *testing.T) {
		t.Parallel()
		r, _ := begun(t, "exec sleep 1000", 1000)
		stopped := make(chan error, 1)
		waiting := make(chan error, 1)
		go func() { _, err := r.Started(t.Context(), "line-7"); waiting <- err }()
		go func() { stopped <- r.Stop(t.Context(), "line-7") }()
		require.NoError(t, <-stopped)
		require.Equal(t, fleet.Conflict, fleet.KindOf(<-waiting))
		require.Empty(t, left(t, r))
	})
	t.Run("the end of the lease ends it", func(t *testing.T) {
		t.Parallel()
		r, _ := begun(t, "exec sleep 1000", 1000)
		require.NoError(t, r.Lease(t.Context(), Lease{Deadline: SinceBoot(), TTL: testTTL}))
		eventually(t, func() bool { return len(left(t, r)) == 0 }, "it runs on")
		_, err := r.Started(t.Context(), "line-7")
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
	})
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Spec)
		reason string
	}{
		"when the program is missing":   {func(s *Spec) { s.Run.Command = []string{"no-such-program"} }, `program "no-such-program" not found in /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin; install it there on the node, or give its path`},
		"when its path is missing":      {func(s *Spec) { s.Run.Command = []string{"/no/such"} }, "execute /no/such: no such file or directory"},
		"when it is not executable":     {func(s *Spec) { s.Run.Command = []string{"/etc/passwd"} }, "execute /etc/passwd: permission denied"},
		"when the directory is missing": {func(s *Spec) { s.Dir = "/no/such" }, "working directory /no/such: no such file"},
		"when the command exits":        {func(s *Spec) { s.Run.Command[2] = "echo secret; sleep 1000 & exit 3" }, "exit code 3"},
		"when the command exits with 0": {func(s *Spec) { s.Run.Command[2] = "exit 0" }, "exit code 0"},
		"when the command is killed":    {func(s *Spec) { s.Run.Command[2] = "kill -SEGV $$" }, "signal SIGSEGV"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			spec := shell(t, "")
			spec.Run.StartSeconds = 20
			c.change(&spec)
			_, err := r.Start(t.Context(), spec)
			require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err), "%v", err)
			require.ErrorContains(t, err, c.reason)
			require.NotContains(t, err.Error(), "secret")
			listed, err := r.List(t.Context())
			require.NoError(t, err)
			require.Empty(t, listed)
			require.Empty(t, left(t, r))
			require.True(t, start(t, r, shell(t, "exec sleep 1000")).Running)
		})
	}
}

// X21, X23: of one name there is never more than one.
func TestStartsRace(t *testing.T) {
	t.Parallel()
	t.Run("one of twenty starts wins", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		file := filepath.Join(t.TempDir(), "starts")
		results := make(chan error, 20)
		for i := range 20 {
			spec := shell(t, "")
			spec.Run.Command = []string{r.Executable, "exclusive", file}
			spec.Labels.Epoch = int64(i)
			go func() {
				st, err := r.Start(t.Context(), spec)
				if err == nil && st.Labels.Epoch != spec.Labels.Epoch {
					err = fleet.Errorf(fleet.Internal, "started with the spec of %d", st.Labels.Epoch)
				}
				results <- err
			}()
		}
		won := 0
		for range 20 {
			err := <-results
			if err == nil {
				won++
				continue
			}
			require.Equal(t, fleet.Conflict, fleet.KindOf(err), "%v", err)
		}
		require.Equal(t, 1, won)
		eventually(t, func() bool { return readFile(t, file) == "once\n" }, "not started")
	})
	t.Run("starts, stops and kills of guardians never make it two", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		file := filepath.Join(t.TempDir(), "starts")
		spec := shell(t, "")
		spec.Run.Command = []string{"sh", "-c", `"$0" exclusive "$1"`, r.Executable, file} // a grandchild
		for range 6 {
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { _, _ = r.Start(t.Context(), spec) }) // any may lose
			}
			all.Go(func() {
				if st, ok, _ := r.Status(t.Context(), "line-7"); ok && st.Guardian == Live {
					_ = unix.Kill(st.GuardianPID, unix.SIGKILL)
				}
			})
			all.Go(func() { _ = r.Stop(t.Context(), "line-7") })
			all.Wait()
		}
		require.NoError(t, r.Stop(t.Context(), "line-7"))
		require.Empty(t, left(t, r))
		start(t, r, spec)
		eventually(t, func() bool { return strings.Contains(readFile(t, file), "once") }, "never started")
		require.NotContains(t, readFile(t, file), "twice")
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return string(data)
}
