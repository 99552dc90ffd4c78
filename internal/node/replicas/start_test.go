package replicas

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// S48, X8: what cannot be started says why, in a word and a sentence.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	port, err := strconv.Atoi(portOf(t, taken.Addr().String()))
	require.NoError(t, err)
	for reason, change := range map[string]func(*fleet.Definition){
		fleet.ReasonNotStarted: func(d *fleet.Definition) { d.Command = []string{"no-such-program"} },
		fleet.ReasonNoDriver:   func(d *fleet.Definition) { d.Driver, d.Image = fleet.DriverDocker, "web:1" },
		fleet.ReasonPortTaken:  func(d *fleet.Definition) { d.Ports[0].Port = port },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.ask(line(first, b.defined(web(change))))
			st := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
			require.Equal(t, reason, st.GetReason())
			require.NotEmpty(t, st.GetMessage())
			b.ask()
			b.gone(first)
		})
	}
	t.Run("an argument that its names make too long", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
			d.Args = []string{strings.Repeat("x", fleet.MaxArgument-1) + "${HOLDFAST_REPLICA}"}
		}))))
		st := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
		require.Equal(t, fleet.ReasonNotStarted, st.GetReason())
		require.Regexp(t, `^the program could not be run: /process/args/0: the argument has \d+ bytes; the kernel's limit is 131071 `, st.GetMessage())
	})
	t.Run("a definition that is not to be had", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.ask(line(first, hashOf([]byte("nobody has it"))))
		require.Equal(t, fleet.ReasonNoDefinition, b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked).GetReason())
	})
	t.Run("a definition that is another", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		hash := hashOf([]byte("mine"))
		b.region.definitions[hash] = []byte("{}")
		b.ask(line(first, hash))
		require.Equal(t, fleet.ReasonNoDefinition, b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked).GetReason())
		require.NoFileExists(t, filepath.Join(b.dir, "replicas", "definitions", string(hash)))
	})
}

// S94, X6, X8: what is never ready is given up, and says what kept it, in no more words than are stored.
func TestNeverReady(t *testing.T) {
	t.Parallel()
	const late, lateBefore = "it could not be prepared in time: ", "its preStart commands did not end before its startup deadline"
	soon := func(d *fleet.Definition) { d.Startup.Deadline = 0.5 }
	sleeps := func(d *fleet.Definition) { d.PreStart = [][]string{{"sleep", "1000"}} }
	for name, row := range map[string]struct {
		def    fleet.Definition
		reason string
		says   string
		hangs  bool
		soon   bool // its time is over soon, and the clock does not jump: a node takes that for a pause of its machine
	}{
		"commands before the start of a container that hang": {
			container(sleeps), fleet.ReasonStartupDeadline, lateBefore + ": command 1 before the start has not ended: the time limit is over", true, false,
		},
		"a registry that hangs":               {container(), decide.ReasonPrepareLimit, late + "command 1 before the start has not ended: the time limit is over", true, false},
		"a registry that refuses":             {container(), decide.ReasonPrepareLimit, late + "pull the image: unauthorized to read web:1", false, false},
		"commands before the start that hang": {web(sleeps, soon), fleet.ReasonStartupDeadline, lateBefore, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var later atomic.Int64
			b, engine := setupEngine(t, func(o *Options) {
				o.Now = func() time.Duration { return guardian.SinceBoot() + time.Duration(later.Load()) }
			})
			engine.is(func() {
				engine.hangs = row.hangs
				engine.refuses = fleet.Errorf(fleet.Unavailable, "pull the image: unauthorized to read web:1%s", strings.Repeat(" ", 2*fleet.MaxReplicaMessage))
			})
			b.ask(line(first, b.defined(row.def)))
			b.eventually(func() bool {
				if !row.soon {
					later.Add(int64(time.Minute))
				}
				return b.status(first).GetPhase() == string(fleet.PhaseFailed)
			}, "it is never given up")
			st := b.status(first)
			require.Equal(t, row.reason, st.GetReason())
			require.Equal(t, row.says, strings.TrimSpace(st.GetMessage()))
			require.LessOrEqual(t, len(st.GetMessage()), maxMessage)
		})
	}
}

// S51, S56: what is told to end while it waits for its region ends at once.
func TestEndWhilePreparing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := b.defined(web())
	b.region.mu.Lock()
	body := b.region.definitions[hash]
	b.region.refuse = true
	b.region.mu.Unlock()
	b.ask(line(first, hash))
	b.eventually(func() bool { return b.status(first).GetMessage() != "" }, "it does not say what it waits for")
	require.Equal(t, string(fleet.PhasePreparing), b.status(first).GetPhase())
	end := line(first, hash)
	end.Run = false
	b.ask(end)
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	b.region.mu.Lock()
	b.region.refuse, b.region.definitions[hash] = false, body
	b.region.mu.Unlock()
	b.ask(line(second, hash))
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.gone(first)
}

// S121: commands before the start run first, each with the environment of the program, and one that
// fails is told like an exit.
func TestPreStart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
		d.PreStart = [][]string{{"sh", "-c", "echo model > model-$PORT-${PORT}"}}
	}))), line(second, b.defined(web(func(d *fleet.Definition) { d.PreStart = [][]string{{"sh", "-c", "exit 7"}} }))))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	port := portOf(t, st.GetEndpoint())
	require.FileExists(t, b.in(first, "model-"+port+"-"+port))
	failed := b.is(second, fleet.PhaseExited, fleet.HealthNotChecked)
	require.Contains(t, failed.GetMessage(), "command 1 before the start: exit code 7")
}

// S15: many at once, each at a port of its own.
func TestMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := b.defined(web())
	var lines []fleet.NodeReplica
	for i := range 12 {
		lines = append(lines, line(fleet.ReplicaID(fmt.Sprintf("%012x", i)), hash))
	}
	b.ask(lines...)
	endpoints := map[string]bool{}
	for _, l := range lines {
		endpoints[b.is(l.ID, fleet.PhaseRunning, fleet.HealthHealthy).GetEndpoint()] = true
	}
	require.Len(t, endpoints, len(lines))
	b.eventually(func() bool {
		b.region.mu.Lock()
		defer b.region.mu.Unlock()
		return len(b.region.samples) == len(lines)
	}, "no samples of some")
	b.region.mu.Lock()
	samples := maps.Clone(b.region.samples)
	b.region.mu.Unlock()
	for id, s := range samples {
		require.Positive(t, s.Memory, id)
	}
	b.ask()
	for _, l := range lines {
		b.gone(l.ID)
	}
	left, err := os.ReadDir(filepath.Join(b.dir, "replicas", "definitions"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(left), 1, "definitions that nobody needs go with the next set")
}

// X27: output of a replica that ended is kept until the region has it.
func TestOutputOutlivesReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web(func(d *fleet.Definition) {
		d.Command = []string{"sh", "-c", `trap "echo last words; exit" TERM; echo ready; while :; do sleep 0.05; done`}
		d.Health.Type = fleet.HealthNone
	}))))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	said := func(words string) func() bool {
		return func() bool {
			b.region.mu.Lock()
			defer b.region.mu.Unlock()
			return strings.Contains(b.region.logs[first], words)
		}
	}
	b.eventually(said("ready"), "it has not begun")
	b.region.mu.Lock()
	b.region.noLogs = true
	b.region.mu.Unlock()
	b.ask()
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	require.DirExists(t, filepath.Join(b.dir, "replicas", "run", string(first)))
	b.region.mu.Lock()
	b.region.noLogs = false
	b.region.mu.Unlock()
	b.gone(first)
	require.True(t, said("last words")())
}

// S31: a definition that cannot be kept, for the disk may be full, leaves nothing behind, however often it is tried.
func TestDefinitionThatCannotBeKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := b.keeper.definitions
	hash := b.defined(web())
	full := filepath.Join(t.TempDir(), "full") // in its place at once: a keeper that begins removes what is empty
	require.NoError(t, os.MkdirAll(filepath.Join(full, "in the way"), 0o700))
	require.NoError(t, os.MkdirAll(d.dir, 0o700))
	require.NoError(t, os.Rename(full, d.path(hash)))
	for range 3 {
		_, err := d.get(t.Context(), hash)
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
	}
	left, err := os.ReadDir(d.dir)
	require.NoError(t, err)
	require.Len(t, left, 1)

	b.stop()
	cut := filepath.Join(d.dir, unfinished+"by an agent that was killed")
	require.NoError(t, os.WriteFile(cut, nil, 0o600))
	b.open(true)
	<-b.keeper.ready
	require.NoFileExists(t, cut)
}

func TestExpand(t *testing.T) {
	t.Parallel()
	names := map[string]string{"PORT": "80", "HOLDFAST_NODE": "a"}
	for text, want := range map[string]string{
		"":                          "",
		"plain":                     "plain",
		"${PORT}":                   "80",
		"x${PORT}y${HOLDFAST_NODE}": "x80ya",
		"$PORT":                     "$PORT",
		"$$":                        "$",
		"$${PORT}":                  "${PORT}",
		"$$$${PORT}":                "$${PORT}",
		"${OTHER}":                  "${OTHER}",
		"${PORT":                    "${PORT",
		"${${PORT}}":                "${80}",
		"end$":                      "end$",
		"$host:${PORT}":             "$host:80",
	} {
		require.Equal(t, want, expand(text, names), text)
	}
}

// X11: no file leaves the directory of its replica.
func TestWriteFiles(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../out", "a/../../out", "/etc/out", "link/out"} {
		dir := filepath.Join(t.TempDir(), "in")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "link")))
		require.Error(t, writeFiles(dir, []fleet.ProcessFile{{Path: path, Content: "x"}}), path)
	}
}

// X6, X11: whatever a replica left where its files are to be, they are written anew at once, and nothing
// else is.
func TestWriteFilesOverWhatIsThere(t *testing.T) {
	t.Parallel()
	in := func(dir string) string { return filepath.Join(dir, "conf", "x") }
	for name, leave := range map[string]func(dir, other string) error{
		"nothing":       func(string, string) error { return nil },
		"an older file": func(dir, _ string) error { return os.WriteFile(in(dir), []byte("something longer"), 0o400) },
		"a FIFO":        func(dir, _ string) error { return syscall.Mkfifo(in(dir), 0o600) },
		"a link":        func(dir, other string) error { return os.Symlink(other, in(dir)) },
		"a link to a FIFO": func(dir, _ string) error {
			return errors.Join(syscall.Mkfifo(in(dir)+"y", 0o600), os.Symlink("xy", in(dir)))
		},
		"a link to nothing": func(dir, _ string) error { return os.Symlink("nothing", in(dir)) },
		"a directory":       func(dir, _ string) error { return os.MkdirAll(filepath.Join(in(dir), "deep"), 0o700) },
		"a socket": func(dir, _ string) error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: in(dir)})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return l.Close()
		},
		"a file for its directory": func(dir, other string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "conf")), os.Link(other, filepath.Join(dir, "conf")))
		},
		"a FIFO for its directory": func(dir, _ string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "conf")), syscall.Mkfifo(filepath.Join(dir, "conf"), 0o600))
		},
		"a link for its directory": func(dir, _ string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "conf"), filepath.Join(dir, "other")), os.Symlink("other", filepath.Join(dir, "conf")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			other := filepath.Join(t.TempDir(), "other")
			require.NoError(t, os.WriteFile(other, []byte("theirs"), 0o600))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "conf"), 0o700))
			require.NoError(t, leave(dir, other))
			written := make(chan error, 1)
			go func() { written <- writeFiles(dir, []fleet.ProcessFile{{Path: "conf/x", Content: "ours"}}) }()
			select {
			case err := <-written:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Fatal("it waits for what the replica left")
			}
			is, err := os.Lstat(in(dir))
			require.NoError(t, err)
			require.True(t, is.Mode().IsRegular())
			body, err := os.ReadFile(in(dir))
			require.NoError(t, err)
			require.Equal(t, "ours", string(body))
			body, err = os.ReadFile(other)
			require.NoError(t, err)
			require.Equal(t, "theirs", string(body))
		})
	}
}

// S17: what has ended has no port any more, although its output is still to be sent: another one may
// listen there, by this agent or the next.
func TestPortOfEnded(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"the agent stays": false, "the agent is started again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.region.noLogs = true
			at, err := newPorts().choose(first, []fleet.ProcessPort{{Name: "http"}}, nil)
			require.NoError(t, err)
			hash := b.defined(web(func(d *fleet.Definition) { d.Ports[0].Port = at["http"] }))
			b.ask(line(first, hash))
			st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
			require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
			b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
			if anew {
				b.stop()
				b.open(true)
			}
			b.ask(line(second, hash))
			b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
		})
	}
}

// S15: a port that the agent itself may not listen at is no port that somebody has.
func TestPrivilegedPort(t *testing.T) {
	t.Parallel()
	p := newPorts()
	p.listen = func(string, string) (net.Listener, error) {
		return nil, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}
	}
	at, err := p.choose(first, []fleet.ProcessPort{{Name: "http", Port: 80}}, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"http": 80}, at)
	_, err = p.choose(second, []fleet.ProcessPort{{Name: "http", Port: 80}}, nil)
	require.Equal(t, fleet.ReasonPortTaken, failure(err))
}

// X3: of two replicas none has the other's port, also of an earlier agent.
func TestPorts(t *testing.T) {
	t.Parallel()
	p := newPorts()
	p.keep(second, map[string]int{"http": 20001})
	at, err := p.choose(first, []fleet.ProcessPort{{Name: "http"}, {Name: "admin"}}, nil)
	require.NoError(t, err)
	require.NotEqual(t, at["http"], at["admin"])
	again, err := p.choose(first, []fleet.ProcessPort{{Name: "http"}, {Name: "admin"}}, at)
	require.NoError(t, err)
	require.Equal(t, at, again)
	_, err = p.choose(first, []fleet.ProcessPort{{Name: "http", Port: 20001}}, nil)
	require.Equal(t, fleet.ReasonPortTaken, failure(err))
	p.drop(second)
	at, err = p.choose(first, []fleet.ProcessPort{{Name: "http"}}, map[string]int{"http": 20001})
	require.NoError(t, err)
	require.NotZero(t, at["http"])
}

// S121: what its commands before the start made of a file is left: its owner and mode.
func TestFilesAsTheyShouldBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []fleet.ProcessFile{{Path: "key", Content: "ours"}}
	require.NoError(t, writeFiles(dir, files))
	require.NoError(t, os.Chmod(filepath.Join(dir, "key"), 0o600))
	require.NoError(t, writeFiles(dir, files))
	is, err := os.Lstat(filepath.Join(dir, "key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), is.Mode())
	files[0].Content = "mine"
	require.NoError(t, writeFiles(dir, files))
	has, err := os.ReadFile(filepath.Join(dir, "key"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(has))
}

// S48, S84, S121: preStart commands have a phase of their own, and share the start-up time with the first success.
func TestPreStartSharesTheStartup(t *testing.T) {
	t.Parallel()
	before := func(seconds string, deadline float64) fleet.Definition {
		return web(func(d *fleet.Definition) {
			d.PreStart = [][]string{{"sh", "-c", "touch began; until test -e go; do sleep 0.01; done; sleep " + seconds}}
			d.Startup.Deadline = deadline
		})
	}
	b := setup(t)
	b.ask(line(first, b.defined(before("0", 60))), line(second, b.defined(before("1000", 1))))
	b.eventually(func() bool { return b.status(first).GetExactPhase() == string(fleet.PhasePreStart) }, "it has no phase of its own")
	require.Equal(t, string(fleet.PhasePreparing), b.status(first).GetPhase(), "in the words of the build before")
	st := b.is(second, fleet.PhaseFailed, fleet.HealthNotChecked)
	require.Equal(t, fleet.ReasonStartupDeadline, st.GetReason())
	require.Empty(t, st.GetExactPhase())

	deadline := func() time.Duration {
		b.keeper.mu.Lock()
		defer b.keeper.mu.Unlock()
		return b.keeper.replicas[first].known.Probe.Deadline
	}
	by := deadline()
	require.Positive(t, by)
	b.stop()
	b.open(true) // the next agent does not start the time again
	b.eventually(func() bool { return b.status(first).GetExactPhase() == string(fleet.PhasePreStart) }, "the next agent forgot it")
	require.NoError(t, os.WriteFile(b.in(first, "go"), nil, 0o600))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, by, deadline())
}
