package docker

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	web   = fleet.ReplicaID("aaaaaaaaaaaa")
	name  = "holdfast-aaaaaaaaaaaa"
	image = "example.org:5000/web:1"
)

func setup(t *testing.T) (*Driver, *fakeEngine) {
	t.Helper()
	f := newFakeEngine(t)
	f.remote[image] = true
	d, err := New("plant-1-a", f.host, t.TempDir())
	require.NoError(t, err)
	t.Cleanup(d.engine.http.CloseIdleConnections)
	return d, f
}

func launch(change ...func(*replicas.Launch)) replicas.Launch {
	l := replicas.Launch{
		ID: web, Node: "plant-1-a", Definition: "d1", Epoch: 7, Dir: "/var/lib/holdfast/replicas/" + string(web),
		Process:   fleet.Process{Image: image, Command: []string{"serve"}, Args: []string{"--port", "20123"}, SharedMemory: 2 << 30, StopSeconds: 7},
		Resources: fleet.Resources{CPU: 1.5, Memory: 1 << 30, GPUs: 2}, GPUs: []int{1, 3},
		Base: []string{"PATH=/of/the/machine"}, Env: []string{"PORT=20123"},
		Ports: []fleet.ProcessPort{{Name: "http", Port: 20123}}, OutputFrom: 40,
	}
	for _, c := range change {
		c(&l)
	}
	return l
}

// ready prepares a launch, and runs its commands before the start.
func ready(ctx context.Context, d *Driver, l replicas.Launch) error {
	if err := d.Prepare(ctx, l); err != nil {
		return err
	}
	return d.RunBefore(ctx, l)
}

func started(t *testing.T, d *Driver, l replicas.Launch) {
	t.Helper()
	require.NoError(t, ready(t.Context(), d, l))
	found, err := d.Start(t.Context(), l)
	require.NoError(t, err)
	require.Equal(t, replicas.Found{ID: web, Running: true, PID: 4711}, found)
}

// X1: an engine that is there is used, and one that is not is none.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d, _ := setup(t)
	require.NoError(t, d.Answers(t.Context()))
	none, err := New("plant-1-a", "unix:///no/such/socket", "")
	require.NoError(t, err)
	require.Equal(t, fleet.Unavailable, fleet.KindOf(none.Answers(t.Context())))
	for _, host := range []string{"tcp://10.0.0.7:2375", "unix://", "socket"} {
		_, err = New("plant-1-a", host, "")
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), host)
	}
	_, err = New("plant-1-a", "", "")
	require.NoError(t, err)
}

// X1: the newest version that both speak is spoken, also after the engine was replaced by another.
func TestVersion(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ oldest, newest, spoken apiVersion }{
		"an engine of today":  {apiVersion{1, 44}, apiVersion{1, 52}, apiVersion{1, 52}},
		"one of tomorrow":     {apiVersion{1, 44}, apiVersion{1, 99}, newest},
		"one of some years":   {apiVersion{1, 12}, apiVersion{1, 41}, apiVersion{1, 41}},
		"one that is too old": {apiVersion{1, 12}, apiVersion{1, 9}, apiVersion{}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			f.oldest, f.newest = c.oldest, c.newest
			_, err := d.List(t.Context())
			if c.spoken == (apiVersion{}) {
				require.ErrorContains(t, err, "1.41 or newer is required")
				require.Equal(t, fleet.Unavailable, fleet.KindOf(d.Answers(t.Context())))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.spoken, d.engine.version)
		})
	}
	t.Run("another engine later", func(t *testing.T) {
		t.Parallel()
		d, f := setup(t)
		f.oldest, f.newest = apiVersion{1, 24}, apiVersion{1, 43}
		require.NoError(t, ready(t.Context(), d, launch()))
		f.mu.Lock()
		f.oldest, f.newest = apiVersion{1, 44}, apiVersion{1, 52}
		f.mu.Unlock()
		_, err := d.Start(t.Context(), launch())
		require.Equal(t, fleet.Unavailable, fleet.KindOf(err), "it is tried again")
		started(t, d, launch())
	})
}

// X5: an engine that hangs holds up a call for a bounded time, and is away then.
func TestHung(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.mu.Lock()
	f.hung = true
	f.mu.Unlock()
	require.Equal(t, readLimit, d.engine.limit)
	d.engine.limit = 10 * time.Millisecond
	for what, call := range map[string]func(context.Context) error{
		"list":   func(ctx context.Context) error { _, err := d.List(ctx); return err },
		"look":   func(ctx context.Context) error { _, err := d.Look(ctx, web); return err },
		"output": func(ctx context.Context) error { _, err := d.Output(ctx, web, 40); return err },
		"usage":  func(ctx context.Context) error { _, err := d.Usage(ctx); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			err := call(t.Context())
			require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
			require.ErrorContains(t, err, "longer than 10ms")
		})
	}
}

// S9, S53, X5: a container from its image to its end, and nothing is left.
func TestLife(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	require.Equal(t, []string{image}, f.pulls)
	c := f.containers[name]
	require.Equal(t, []string{"PORT=20123"}, c.Env, "nothing of the machine's environment")
	require.Equal(t, []string{"serve", "--port", "20123"}, f.argv(c))
	require.Equal(t, 7, c.StopTimeout)
	require.Equal(t, hostConfig{
		Binds: []string{"/var/lib/holdfast/replicas/aaaaaaaaaaaa:/holdfast"}, PortBindings: map[string][]portBinding{"20123/tcp": {{"20123"}}},
		NanoCPUs: 1_500_000_000, Memory: 1 << 30, ShmSize: 2 << 30, DeviceRequests: []deviceRequest{{[]string{"1", "3"}, [][]string{{"gpu"}}}}, RestartPolicy: restartPolicy{"no"},
		LogConfig: logConfig{"json-file", map[string]string{"max-size": "4m", "max-file": "2"}}, Init: true,
		CapDrop: []string{"NET_RAW", "MKNOD"}, SecurityOpt: []string{"no-new-privileges"}, PidsLimit: 8192,
	}, c.HostConfig)

	found, err := d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []replicas.Found{{ID: web, Running: true, PID: 4711}}, found)
	used, err := d.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[fleet.ReplicaID]replicas.Usage{web: {CPU: 2.5, Memory: 8000}}, used)
	c.unmeasured = true
	used, err = d.Usage(t.Context())
	require.NoError(t, err)
	require.Empty(t, used, "an engine that has not measured it yet says nothing")

	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, []string{"SIGTERM 7"}, c.signals)
	found, err = d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []replicas.Found{{ID: web}}, found, "its output is kept")
	require.NoError(t, d.Remove(t.Context(), web))
	require.Empty(t, f.containers)
	require.NoError(t, d.Remove(t.Context(), web))
}

// S9, S10: a command takes the place of what the image runs by itself, args alone are for that.
func TestEntrypoint(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ command, args, runs []string }{
		"a command":          {[]string{"vllm", "serve"}, []string{"m"}, []string{"vllm", "serve", "m"}},
		"a command alone":    {[]string{"serve"}, nil, []string{"serve"}},
		"args":               {nil, []string{"--model-id", "m"}, []string{"/entrypoint.sh", "--model-id", "m"}},
		"the image as it is": {nil, nil, []string{"/entrypoint.sh", "--help"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			f.configs[image] = imageConfig{Entrypoint: []string{"/entrypoint.sh"}, Cmd: []string{"--help"}}
			started(t, d, launch(func(l *replicas.Launch) { l.Process.Command, l.Process.Args = c.command, c.args }))
			require.Equal(t, c.runs, f.argv(f.containers[name]))
		})
	}
}

// S53, X5: a container has its own time since it was first told to stop, however often its engine failed
// meanwhile, and is killed then.
func TestStuck(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	at := time.Minute
	d.now = func() time.Duration { return at }
	started(t, d, launch())
	f.stuck = true
	require.Error(t, d.Stop(t.Context(), web, 0))
	at += 4200 * time.Millisecond
	require.Error(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, []string{"SIGTERM 7", "SIGTERM 3"}, f.containers[name].signals)
	at += 2800 * time.Millisecond
	f.broken = "/kill"
	require.Error(t, d.Stop(t.Context(), web, 0), "it is tried again")
	f.broken = ""
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, "SIGKILL", f.containers[name].signals[2])
	require.Empty(t, d.stops)
	f.stuck = false
	started(t, d, launch())
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, "SIGTERM 7", f.containers[name].signals[3], "the next start has all its time")

	started(t, d, launch())
	f.stuck = true
	require.Error(t, d.Stop(t.Context(), web, 0))
	f.mu.Lock()
	f.containers[name].end(0)
	f.stuck = false
	f.mu.Unlock()
	require.NoError(t, d.Stop(t.Context(), web, 0))
	at += time.Hour
	started(t, d, launch())
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, "SIGTERM 7", f.containers[name].signals[5], "also after a stop that nobody took and that came true")
}

// F13: a container that runs obeys another stop time than it was started with.
func TestStopWithin(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	require.NoError(t, d.Stop(t.Context(), web, 90*time.Second))
	require.Equal(t, []string{"SIGTERM 90"}, f.containers[name].signals)
}

// X28, S53: what is created only may be about to start: the engine is asked to stop it.
func TestStopsWhatIsCreated(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.mu.Lock()
	f.containers[name].state = "created" // as an engine says until a start is through
	f.mu.Unlock()
	f.stuck = true
	at := time.Minute
	d.now = func() time.Duration { return at }
	require.Error(t, d.Stop(t.Context(), web, 0))
	at += time.Hour
	f.stuck = false
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Equal(t, []string{"SIGTERM 7", "SIGTERM 0"}, f.containers[name].signals, "an engine kills nothing that does not run")
}

// S47, S40: what ends at once has never run.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	f.exits["serve"] = 3
	for _, check := range []*fleet.HealthCheck{nil, {Type: fleet.HealthHTTP}} {
		l := launch(func(l *replicas.Launch) { l.Process.Health = check })
		require.NoError(t, ready(t.Context(), d, l))
		_, err := d.Start(t.Context(), l)
		var failure *replicas.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, fleet.ReasonExited, failure.Reason)
		require.EqualError(t, failure, "it ended by itself: exit code 3")
	}
}

// S17: an exit is told by the engine at once, with what it knows of it.
func TestAwait(t *testing.T) {
	t.Parallel()
	const anyMemory = 0
	for what, c := range map[string]struct {
		code   int
		oom    bool
		looks  int
		memory int64
		want   replicas.Exit
	}{
		"an exit":                   {3, false, 0, 64 << 20, replicas.Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 3"}},
		"out of memory":             {137, true, 0, 64 << 20, replicas.Exit{Reason: fleet.ReasonOutOfMemory, Message: "it exceeded its memory limit"}},
		"out of memory, heard late": {137, true, 2, 64 << 20, replicas.Exit{Reason: fleet.ReasonOutOfMemory, Message: "it exceeded its memory limit"}},
		"killed, nobody says why": {137, false, 0, 64 << 20, replicas.Exit{
			Reason: fleet.ReasonExited, Message: "it was killed: exit code 137; the engine does not say by whom: perhaps it exceeded its memory limit",
		}},
		"killed, with all memory": {137, false, 0, anyMemory, replicas.Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 137"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			if !c.oom {
				d.oomDelay = 10 * time.Millisecond // nothing comes
			}
			started(t, d, launch(func(l *replicas.Launch) { l.Resources.Memory = c.memory }))
			exits := make(chan replicas.Exit, 1)
			go func() {
				exit, _ := d.Await(context.Background(), web)
				exits <- exit
			}()
			f.mu.Lock()
			f.containers[name].oom, f.containers[name].oomLooks = c.oom, c.looks
			f.containers[name].end(c.code)
			f.mu.Unlock()
			require.Equal(t, c.want, <-exits)
		})
	}
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		d, _ := setup(t)
		exit, err := d.Await(t.Context(), web)
		require.NoError(t, err)
		require.Zero(t, exit)
	})
	t.Run("is given up with the agent", func(t *testing.T) {
		t.Parallel()
		d, _ := setup(t)
		started(t, d, launch())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := d.Await(ctx, web)
		require.Error(t, err)
	})
}

// S48, X8: an image that is not to be had is told from an engine or registry that is away.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	for image, reason := range map[string]string{"gone": fleet.ReasonNoImage, "late@sha256:1": fleet.ReasonNoImage, "away": ""} {
		err := ready(t.Context(), d, launch(func(l *replicas.Launch) { l.Process.Image = image }))
		require.Error(t, err)
		var failure *replicas.Failure
		if reason == "" {
			require.NotErrorAs(t, err, &failure)
			require.True(t, fleet.KindOf(err).Retryable())
			continue
		}
		require.ErrorAs(t, err, &failure)
		require.Equal(t, reason, failure.Reason)
	}
	require.ElementsMatch(t, []string{"gone:latest", "late:sha256:1", "away:latest"}, f.pulls)
	l := launch(func(l *replicas.Launch) { l.Process.Command = []string{"no-such-program"} })
	require.NoError(t, ready(t.Context(), d, l))
	_, err := d.Start(t.Context(), l)
	var failure *replicas.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, fleet.ReasonNotStarted, failure.Reason)
}

// S121: commands before the start run in containers of their own, of which none is left.
func TestPreStart(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	f.exits["fetch"], f.exits["fail"] = 0, 7
	l := launch(func(l *replicas.Launch) { l.Process.PreStart = [][]string{{"fetch", "model"}} })
	require.NoError(t, ready(t.Context(), d, l))
	require.Empty(t, f.containers)
	l.Process.PreStart = append(l.Process.PreStart, []string{"fail"})
	err := ready(t.Context(), d, l)
	var failure *replicas.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "command 2 before the start: exit code 7", failure.Error())
	require.Len(t, f.containers, 1)
	f.prints(name+"-before", "no such model\n")
	out, err := d.Output(t.Context(), web, 40)
	require.NoError(t, err)
	require.Equal(t, "no such model\n", string(out.Data), "its last words are the replica's")
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.Len(t, f.containers, 1, "also once nothing of it is to run")
	l.Process.PreStart = l.Process.PreStart[:1]
	started(t, d, l)
	require.Len(t, f.containers, 1)
	require.NoError(t, d.Remove(t.Context(), web))
	require.Empty(t, f.containers)
}

// S121, X6, X8: one that hangs is ended with its time, and says so.
func TestPreStartHangs(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	prepared := make(chan error, 1)
	go func() {
		prepared <- ready(ctx, d, launch(func(l *replicas.Launch) { l.Process.PreStart = [][]string{{"sleep", "infinity"}} }))
	}()
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.requests["wait"] > 0
	}, 30*time.Second, time.Millisecond)
	cancel(fleet.Errorf(fleet.Unavailable, "too long"))
	err := <-prepared
	require.EqualError(t, err, "command 1 before the start has not ended: too long")
	require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
	require.Empty(t, f.containers)
}

// S49: a restart in its place is of the same container, so that its output goes on; another port
// makes another one.
func TestStartAgain(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	require.NoError(t, d.Stop(t.Context(), web, 0))
	started(t, d, launch())
	require.Equal(t, 1, f.made)
	require.NoError(t, d.Stop(t.Context(), web, 0))
	started(t, d, launch(func(l *replicas.Launch) { l.Ports[0].Port = 20124 }))
	require.Equal(t, 2, f.made)
}

// X27: output is read whole and in order from its offset on, also by a next agent.
func TestOutput(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	none, err := d.Output(t.Context(), web, 40)
	require.NoError(t, err)
	require.Equal(t, guardian.Output{Offset: 40, Next: 40}, none)
	started(t, d, launch())
	f.prints(name, "one\n", "two\n")
	read := func(d *Driver, from int64, want string) int64 {
		t.Helper()
		out, err := d.Output(t.Context(), web, from)
		require.NoError(t, err)
		require.Equal(t, want, string(out.Data))
		require.Equal(t, from+int64(len(want)), out.Next)
		return out.Next
	}
	at := read(d, 40, "one\ntwo\n")
	read(d, at, "")
	f.prints(name, "three\n")
	read(d, at, "three\n")
	read(d, at, "three\n") // it was not sent: asked for again
	again := next(t, d, f)
	f.prints(name, "four\n")
	read(again, at, "three\nfour\n") // the last piece was not taken in
	read(again, at+6, "four\n")
	read(again, at+8, "ur\n")
}

// next is the driver of the next agent.
func next(t *testing.T, d *Driver, f *fakeEngine) *Driver {
	t.Helper()
	again, err := New("plant-1-a", f.host, d.dir)
	require.NoError(t, err)
	t.Cleanup(again.engine.http.CloseIdleConnections)
	return again
}

// reader takes output in as a node does: pieces of at most 64 KiB, each from where the last ended.
type reader struct {
	t       *testing.T
	at      int64
	got     strings.Builder
	skipped int64
}

func (r *reader) read(d *Driver, pieces int) (more bool) {
	r.t.Helper()
	for range pieces {
		out, err := d.Output(r.t.Context(), web, r.at)
		require.NoError(r.t, err)
		if len(out.Data) == 0 {
			return false
		}
		data := out.Data[:min(len(out.Data), 64<<10)]
		r.got.Write(data)
		r.at, r.skipped = out.Offset+int64(len(data)), r.skipped+out.Skipped
	}
	return true
}

// lines are numbered ones of 100 bytes.
func lines(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("%-99d\n", i))
	}
	return all
}

// X27: the engine keeps little of what a container prints, and none of it is missed that was there to
// be read, whichever agent reads.
func TestOutputIsRotated(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*Driver, *fakeEngine, *reader) {
		d, f := setup(t)
		started(t, d, launch())
		return d, f, &reader{t: t, at: 40}
	}
	all := func(from, to int) string { return strings.Join(lines(from, to), "") }
	t.Run("while it is read", func(t *testing.T) {
		t.Parallel()
		d, f, r := setup(t)
		for round := range 6 {
			f.prints(name, lines(round*1500, (round+1)*1500)...)
			if round%3 == 2 {
				d = next(t, d, f)
			}
			for r.read(d, 8) {
			}
			f.rotate(name, 300)
		}
		require.True(t, all(0, 9000) == r.got.String())
		require.Zero(t, r.skipped)
	})
	t.Run("before all was read", func(t *testing.T) {
		t.Parallel()
		d, f, r := setup(t)
		f.prints(name, lines(0, 3000)...)
		require.True(t, r.read(d, 2), "128 KiB of 300 KB")
		f.prints(name, lines(3000, 6000)...)
		f.rotate(name, 2000)
		d = next(t, d, f)
		for r.read(d, 8) {
		}
		require.True(t, all(0, 6000)[:128<<10]+all(4000, 6000) == r.got.String())
		require.Positive(t, r.skipped)
		skipped := r.skipped
		f.prints(name, lines(6000, 6010)...)
		for r.read(d, 8) {
		}
		require.True(t, strings.HasSuffix(r.got.String(), all(4000, 6010)))
		require.Equal(t, skipped, r.skipped)
	})
	t.Run("and nobody knows how far it was read", func(t *testing.T) {
		t.Parallel()
		d, f, r := setup(t)
		f.prints(name, lines(0, 2000)...)
		for r.read(d, 8) {
		}
		f.rotate(name, 500)
		require.NoError(t, os.WriteFile(d.tailFile(web), nil, 0o600)) // a power cut
		d = next(t, d, f)
		require.False(t, r.read(d, 8))
		f.prints(name, lines(2000, 2001)...)
		require.True(t, r.read(d, 1))
		require.True(t, all(0, 2001) == r.got.String())
	})
	t.Run("and is not read again for each piece", func(t *testing.T) {
		t.Parallel()
		d, f, r := setup(t)
		f.prints(name, lines(0, 5200)...)
		for r.read(d, 8) {
		}
		require.Equal(t, 3, f.requests["logs"], "256 KiB, the rest of 520 kB, and the end")
	})
}

// X27: parts of a long line have the time of the first one, whatever was printed beside them: each is given
// once, while the container runs and after, by one agent and the next.
func TestOutputOfTwoStreams(t *testing.T) {
	t.Parallel()
	for what, filters := range map[string]bool{"engines before 24": true, "engines of today": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			f.filters = filters
			started(t, d, launch())
			r := &reader{t: t, at: 40}
			want := ""
			for at := range int64(3) {
				f.printsAt(name, 10*at, "progress 1 ")
				f.printsAt(name, 10*at+5, "a line\n")
				f.printsAt(name, 10*at, "progress 2 ")
				f.printsAt(name, 10*at, "progress 3 ")
				want += "progress 1 a line\nprogress 2 progress 3 "
				for range 3 {
					for r.read(d, 8) {
					}
					d = next(t, d, f)
				}
				require.Equal(t, want, r.got.String())
			}
			f.printsAt(name, 20, "progress 4 ")
			if !filters { // others lose what comes so late
				want += "progress 4 "
			}
			require.NoError(t, d.Stop(t.Context(), web, 0))
			for r.read(d, 8) {
			}
			require.Equal(t, want, r.got.String())
			require.False(t, r.read(d, 8), "nothing comes again")
			require.Zero(t, r.skipped)
		})
	}
}

// X27, S31: an engine that cannot read what it kept to its end says so; what can be read is, and no more is
// waited for.
func TestOutputIsCorrupt(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.prints(name, "one\n", "two\n")
	f.corrupt = true
	r := &reader{t: t, at: 40}
	require.True(t, r.read(d, 1))
	require.Equal(t, "one\ntwo\n", r.got.String())
	require.Positive(t, r.skipped)
	_, err := d.Output(t.Context(), web, r.at)
	require.True(t, fleet.KindOf(err).Retryable(), "it may have been at something else: %v", err)
	f.prints(name, "three\n")
	f.corrupt = false
	require.True(t, r.read(d, 1))
	require.Equal(t, "one\ntwo\nthree\n", r.got.String())
	require.EqualValues(t, 1, r.skipped, "only what may be missing counts")

	f.corrupt = true
	require.NoError(t, d.Stop(t.Context(), web, 0))
	for range maxCuts {
		_, err := d.Output(t.Context(), web, r.at)
		require.Error(t, err)
	}
	require.False(t, r.read(d, 1), "what is gone for good holds up nothing")
}

// X27: a clock that is set back holds up no output.
func TestOutputAfterTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.printsAt(name, 3600, "before\n")
	r := &reader{t: t, at: 40}
	for range 3 {
		for r.read(d, 8) {
		}
	}
	f.printsAt(name, 0, "after\n")
	for r.read(d, 8) {
	}
	require.Equal(t, "before\nafter\n", r.got.String())
}

// X27, S121: each container goes on where the one before was left, whatever that printed after this one was made.
func TestOutputOfOneContainerAndTheNext(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	l := launch(func(l *replicas.Launch) { l.Process.PreStart = [][]string{{"fetch"}, {"fail"}} })
	f.exits["fail"] = 7
	prepared := make(chan error, 1)
	go func() { prepared <- ready(t.Context(), d, l) }()
	before := name + "-before"
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.requests["wait"] > 0
	}, 30*time.Second, time.Millisecond)
	f.prints(before, "much of the first, which is long\n")
	r := &reader{t: t, at: 40}
	for r.read(d, 8) {
	}
	f.mu.Lock()
	f.containers[before].end(0)
	f.mu.Unlock()
	require.Error(t, <-prepared)
	f.prints(before, "no such model\n")
	for r.read(d, 8) {
	}
	l.Process.PreStart = nil
	started(t, d, l)
	f.prints(name, "up\n")
	for r.read(next(t, d, f), 8) {
	}
	require.Equal(t, "much of the first, which is long\nno such model\nup\n", r.got.String())
	l.Ports[0].Port, l.OutputFrom = 20124, r.at-2 // a piece was under way when it was asked
	require.NoError(t, d.Stop(t.Context(), web, 0))
	started(t, d, l)
	f.prints(name, "up again\n")
	for r.read(d, 8) {
	}
	require.True(t, strings.HasSuffix(r.got.String(), "up\nup again\n"), r.got.String())
}

// X11, S88: a container that prints nothing costs its engine a look at its last piece, and one that has ended
// nothing.
func TestQuietOutput(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.prints(name, lines(0, 2)...)
	r := &reader{t: t, at: 40}
	for r.read(d, 8) {
	}
	whole := f.requests["logs"]
	for range 10 {
		require.False(t, r.read(d, 8))
	}
	require.Equal(t, whole, f.requests["logs"]-f.requests["tail"])
	f.prints(name, lines(2, 4)...)
	require.True(t, r.read(d, 1))
	require.NoError(t, d.Stop(t.Context(), web, 0))
	require.False(t, r.read(d, 8))
	asked := f.requests["logs"]
	for range 10 {
		require.False(t, r.read(d, 8))
	}
	require.Equal(t, asked, f.requests["logs"])
	started(t, d, launch())
	f.prints(name, lines(4, 6)...)
	for r.read(d, 8) {
	}
	require.Equal(t, strings.Join(lines(0, 6), ""), r.got.String())
}
