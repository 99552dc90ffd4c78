package docker

import (
	"context"
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
	d, err := New("plant-1-a", f.host)
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

func started(t *testing.T, d *Driver, l replicas.Launch) {
	t.Helper()
	require.NoError(t, d.Prepare(t.Context(), l))
	found, err := d.Start(t.Context(), l)
	require.NoError(t, err)
	require.Equal(t, replicas.Found{ID: web, Running: true, PID: 4711}, found)
}

// X1: an engine that is there is used, and one that is not is none.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d, _ := setup(t)
	require.NoError(t, d.Answers(t.Context()))
	none, err := New("plant-1-a", "unix:///no/such/socket")
	require.NoError(t, err)
	require.Equal(t, fleet.Communication, fleet.KindOf(none.Answers(t.Context())))
	for _, host := range []string{"tcp://10.0.0.7:2375", "unix://", "socket"} {
		_, err = New("plant-1-a", host)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), host)
	}
	_, err = New("plant-1-a", "")
	require.NoError(t, err)
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
	}, c.HostConfig)

	found, err := d.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []replicas.Found{{ID: web, Running: true, PID: 4711}}, found)
	used, err := d.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[fleet.ReplicaID]replicas.Usage{web: {CPU: 2.5, Memory: 8000}}, used)

	require.NoError(t, d.Stop(t.Context(), web))
	require.NoError(t, d.Stop(t.Context(), web))
	require.Equal(t, []string{"SIGTERM"}, c.signals)
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

// S53: what the engine does not stop is killed.
func TestStuck(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	f.stuck = true
	require.NoError(t, d.Stop(t.Context(), web))
	require.Equal(t, []string{"SIGTERM", "SIGKILL"}, f.containers[name].signals)
	f.containers[name].state, f.broken = "running", "/kill"
	require.Error(t, d.Stop(t.Context(), web), "it is tried again")
}

// S17: an exit is told by the engine at once, with what it knows of it.
func TestAwait(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		code int
		oom  bool
		want replicas.Exit
	}{
		"an exit":       {3, false, replicas.Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 3"}},
		"out of memory": {137, true, replicas.Exit{Reason: fleet.ReasonOutOfMemory, Message: "it took more memory than it may have"}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d, f := setup(t)
			started(t, d, launch())
			exits := make(chan replicas.Exit, 1)
			go func() {
				exit, _ := d.Await(context.Background(), web)
				exits <- exit
			}()
			f.mu.Lock()
			f.containers[name].oom = c.oom
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
		err := d.Prepare(t.Context(), launch(func(l *replicas.Launch) { l.Process.Image = image }))
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
	require.NoError(t, d.Prepare(t.Context(), l))
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
	require.NoError(t, d.Prepare(t.Context(), l))
	require.Empty(t, f.containers)
	l.Process.PreStart = append(l.Process.PreStart, []string{"fail"})
	err := d.Prepare(t.Context(), l)
	var failure *replicas.Failure
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "command 2 before the start: exit code 7", failure.Error())
	require.Empty(t, f.containers)
}

// S49: a restart in its place is of the same container, so that its output goes on; another port
// makes another one.
func TestStartAgain(t *testing.T) {
	t.Parallel()
	d, f := setup(t)
	started(t, d, launch())
	require.NoError(t, d.Stop(t.Context(), web))
	started(t, d, launch())
	require.Equal(t, 1, f.made)
	require.NoError(t, d.Stop(t.Context(), web))
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
	next := read(d, at, "three\n")
	read(d, at, "three\n") // it was not sent: asked for again
	again, err := New("plant-1-a", f.host)
	require.NoError(t, err)
	defer again.engine.http.CloseIdleConnections()
	f.prints(name, "four\n")
	read(again, next, "four\n")
	read(again, 42, "e\ntwo\nthree\nfour\n")

	f.mu.Lock()
	f.containers[name].output = nil // rotated away
	f.mu.Unlock()
	f.prints(name, "late\n")
	third, err := New("plant-1-a", f.host)
	require.NoError(t, err)
	defer third.engine.http.CloseIdleConnections()
	read(third, 70, "")
	f.prints(name, "later\n")
	read(third, 70, "later\n")
}
