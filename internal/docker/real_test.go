//go:build slow && !race

package docker

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// patience is for what a real engine does within a second on an idle machine.
const patience = time.Minute

// onEngine is a driver on a real engine, with one replica.
type onEngine struct {
	*Driver
	t    *testing.T
	id   fleet.ReplicaID
	dir  string
	port int
}

// startEngine starts one that has the image of the test program.
func startEngine(t *testing.T, flags string) *testkit.Engine {
	t.Helper()
	e := testkit.StartEngine(t, flags)
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, "./testdata/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, string(said))
	e.Image(t, "local/program", "1", path)
	return e
}

// on is a new driver, as of a new agent, for a replica.
func on(t *testing.T, e *testkit.Engine, n int) *onEngine {
	t.Helper()
	o := &onEngine{t: t, id: fleet.ReplicaID(fmt.Sprintf("aaaaaaaaaa%02d", n)), dir: t.TempDir()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.port = l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	require.NoError(t, os.WriteFile(filepath.Join(o.dir, "hello"), []byte("hello"), 0o600))
	o.again(e)
	return o
}

// again has another agent's driver.
func (o *onEngine) again(e *testkit.Engine) {
	o.t.Helper()
	var err error
	o.Driver, err = New("plant-1-a", e.Host, filepath.Join(o.dir, "engine"))
	require.NoError(o.t, err)
	o.t.Cleanup(o.engine.http.CloseIdleConnections)
}

func (o *onEngine) launch(args ...string) replicas.Launch {
	return replicas.Launch{
		ID: o.id, Node: "plant-1-a", Definition: "d1", Epoch: 7, Dir: o.dir,
		Process: fleet.Process{Image: "local/program:1", Args: args, StopSeconds: 2},
		Env:     []string{"PORT=" + strconv.Itoa(o.port)}, Ports: []fleet.ProcessPort{{Name: "http", Port: o.port}},
	}
}

func (o *onEngine) start(l replicas.Launch) replicas.Found {
	o.t.Helper()
	require.NoError(o.t, ready(o.t.Context(), o.Driver, l))
	found, err := o.Start(o.t.Context(), l)
	require.NoError(o.t, err)
	require.Equal(o.t, replicas.Found{ID: o.id, Running: true, PID: found.PID}, found)
	require.Positive(o.t, found.PID)
	return found
}

// fails starts what ends by itself, or never does, and gives the reason.
func (o *onEngine) fails(l replicas.Launch) replicas.Exit {
	o.t.Helper()
	err := ready(o.t.Context(), o.Driver, l)
	if err == nil {
		_, err = o.Start(o.t.Context(), l)
	}
	var failed *replicas.Failure
	if err != nil {
		require.ErrorAs(o.t, err, &failed)
		return replicas.Exit{Reason: failed.Reason, Message: failed.Error()}
	}
	exit, err := o.Await(o.t.Context(), o.id)
	require.NoError(o.t, err)
	return exit
}

func (o *onEngine) eventually(holds func() bool, otherwise string) {
	o.t.Helper()
	require.Eventually(o.t, holds, patience, 20*time.Millisecond, otherwise)
}

// serves waits until the program answers at its address with a file of the replica's directory.
func (o *onEngine) serves() {
	o.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	o.eventually(func() bool {
		resp, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)) + "/hello") //nolint:noctx // it has its time
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		return err == nil && string(said) == "hello"
	}, "it does not serve")
}

// output reads all from an offset on.
func (o *onEngine) output(from int64) (text string, next int64, skipped int64) {
	o.t.Helper()
	var all strings.Builder
	for {
		out, err := o.Output(o.t.Context(), o.id, from)
		require.NoError(o.t, err)
		if len(out.Data) == 0 {
			return all.String(), from, skipped
		}
		all.Write(out.Data)
		skipped += out.Skipped
		from = out.Next
	}
}

func (o *onEngine) removed() {
	o.t.Helper()
	require.NoError(o.t, o.Stop(o.t.Context(), o.id, 0))
	require.NoError(o.t, o.Remove(o.t.Context(), o.id))
	require.NoError(o.t, o.Remove(o.t.Context(), o.id), "it is safe to repeat")
	found, err := o.List(o.t.Context())
	require.NoError(o.t, err)
	for _, f := range found {
		require.NotEqual(o.t, o.id, f.ID)
	}
}

// S46 to S49, S54, X1, X2, X4: what the driver promises, of a real engine.
func TestRealEngine(t *testing.T) {
	t.Parallel()
	e := startEngine(t, "")
	version, err := on(t, e, 99).engine.ping(t.Context())
	require.NoError(t, err)
	t.Logf("its API has version %s", version)
	t.Run("on it", func(t *testing.T) {
		for i, one := range []struct {
			name string
			test func(*onEngine)
		}{
			{"a life", (*onEngine).life},
			{"stubborn", (*onEngine).stubborn},
			{"what cannot run", (*onEngine).cannotRun},
			{"what takes too much memory", (*onEngine).hoards},
			{"commands before the start", (*onEngine).before},
			{"a port that is taken", (*onEngine).portTaken},
			{"ended by somebody", func(o *onEngine) { o.endedBySomebody() }},
			{"much output", func(o *onEngine) { o.prints(e) }},
			{"two outputs at once", func(o *onEngine) { o.tangles(version) }},
		} {
			t.Run(one.name, func(t *testing.T) {
				t.Parallel()
				one.test(on(t, e, i))
			})
		}
	})
}

func (o *onEngine) life() {
	ctx := o.t.Context()
	l := o.launch("serve")
	first := o.start(l)
	o.serves()
	found, err := o.List(ctx)
	require.NoError(o.t, err)
	require.Contains(o.t, found, first)
	o.eventually(func() bool {
		used, err := o.Usage(ctx)
		return err == nil && used[o.id].Memory > 0 && used[o.id].CPU > 0
	}, "its use is not measured")

	require.NoError(o.t, o.Stop(ctx, o.id, 0))
	require.NoError(o.t, o.Stop(ctx, o.id, 0), "it is safe to repeat")
	exit, err := o.Await(ctx, o.id)
	require.NoError(o.t, err)
	require.Equal(o.t, "it ended by itself: exit code 0", exit.Message)
	found, err = o.List(ctx)
	require.NoError(o.t, err)
	require.Contains(o.t, found, replicas.Found{ID: o.id})
	text, next, _ := o.output(0)
	require.Equal(o.t, "asked to stop\n", text)

	second := o.start(l)
	require.NotEqual(o.t, first.PID, second.PID)
	o.serves()
	require.NoError(o.t, o.Stop(ctx, o.id, 0))
	text, _, _ = o.output(next)
	require.Equal(o.t, "asked to stop\n", text, "its output goes on")
	l.Definition = "d2"
	l.OutputFrom = 100
	o.start(l)
	o.serves()
	require.NoError(o.t, o.Stop(ctx, o.id, 0))
	text, next, _ = o.output(100)
	require.Equal(o.t, "asked to stop\n", text)
	require.EqualValues(o.t, 100+len(text), next)
	o.removed()
}

func (o *onEngine) stubborn() {
	l := o.launch("stubborn")
	o.start(l)
	o.serves()
	require.NoError(o.t, o.Stop(o.t.Context(), o.id, 0))
	exit, err := o.Await(o.t.Context(), o.id)
	require.NoError(o.t, err)
	require.Equal(o.t, "it ended by itself: exit code 137", exit.Message)
	o.removed()
}

func (o *onEngine) cannotRun() {
	for _, one := range []struct {
		name, reason, message string
		change                func(*replicas.Launch)
	}{
		{"ends", fleet.ReasonExited, "exit code 3", func(l *replicas.Launch) { l.Process.Args = []string{"exit", "3"} }},
		{"has no program", fleet.ReasonExited, "exit code 127", func(l *replicas.Launch) { l.Process.Command = []string{"/none"} }},
		{"less memory than an engine gives", fleet.ReasonNotStarted, "6MB", func(l *replicas.Launch) { l.Resources.Memory = 1 << 20 }},
		{"more CPU than there is", fleet.ReasonNotStarted, "CPUs", func(l *replicas.Launch) { l.Resources.CPU = 10_000 }},
		{"its command before the start fails", fleet.ReasonExited, "command 2 before the start: exit code 4", func(l *replicas.Launch) {
			l.Process.PreStart = [][]string{{"/program", "write", "/holdfast/made", "by the first"}, {"/program", "exit", "4"}}
		}},
	} {
		l := o.launch("serve")
		one.change(&l)
		exit := o.fails(l)
		require.Equal(o.t, one.reason, exit.Reason, "%s: %s", one.name, exit.Message)
		require.Contains(o.t, exit.Message, one.message, one.name)
		if text, _, _ := o.output(0); strings.HasPrefix(exit.Message, "command 2") {
			require.Equal(o.t, "it ends with 4\n", text)
		}
		o.removed()
	}
}

// hoards is ended for its memory: an engine now and then misses why, and the driver says what it knows then.
func (o *onEngine) hoards() {
	l := o.launch("hoard")
	l.Resources.Memory = 64 << 20
	o.start(l)
	o.serves()
	client := &http.Client{Timeout: patience}
	_, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)) + "/hoard") //nolint:noctx,bodyclose // it has its time, and no answer comes
	require.Error(o.t, err)
	exit, err := o.Await(o.t.Context(), o.id)
	require.NoError(o.t, err)
	require.Contains(o.t, exit.Message, "it exceeded its memory limit")
	has, err := o.engine.inspect(o.t.Context(), nameOf(o.id))
	require.NoError(o.t, err)
	require.Equal(o.t, has.State.OOMKilled, exit.Reason == fleet.ReasonOutOfMemory, "%s: %s", exit.Reason, exit.Message)
	o.removed()
}

func (o *onEngine) before() {
	l := o.launch("serve")
	l.Process.PreStart = [][]string{{"/program", "write", "/holdfast/hello", "hell"}, {"/program", "write", "/holdfast/hello", "hello"}}
	o.start(l)
	o.serves()
	all, err := o.engine.list(o.t.Context(), labelReplica, string(o.id))
	require.NoError(o.t, err)
	require.Len(o.t, all, 1, "nothing is left of them")

	hangs := o.launch("serve")
	hangs.ID = "bbbbbbbbbbbb"
	hangs.Process.PreStart = [][]string{{"/program", "stubborn"}}
	ctx, cancel := context.WithCancel(o.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ready(ctx, o.Driver, hangs) }()
	o.eventually(func() bool {
		all, err := o.engine.list(o.t.Context(), labelReplica, "bbbbbbbbbbbb")
		return err == nil && len(all) == 1 && all[0].runs()
	}, "its command does not run")
	found, err := o.List(o.t.Context())
	require.NoError(o.t, err)
	require.Contains(o.t, found, replicas.Found{ID: hangs.ID}, "its program does not run yet")
	cancel()
	require.ErrorContains(o.t, <-ended, "command 1 before the start has not ended")
	all, err = o.engine.list(o.t.Context(), labelReplica, "bbbbbbbbbbbb")
	require.NoError(o.t, err)
	require.Empty(o.t, all)
	o.removed()
}

// portTaken is tried again: it may be free then.
func (o *onEngine) portTaken() {
	taken, err := net.Listen("tcp", ":"+strconv.Itoa(o.port))
	require.NoError(o.t, err)
	_, err = o.Start(o.t.Context(), o.launch("serve"))
	require.ErrorContains(o.t, err, "address already in use")
	require.True(o.t, fleet.KindOf(err).Retryable())
	found, err := o.Look(o.t.Context(), o.id)
	require.NoError(o.t, err)
	require.False(o.t, found.Running)
	require.NoError(o.t, taken.Close())
	o.start(o.launch("serve"))
	o.serves()
	o.removed()
}

// endedBySomebody: whoever kills, pauses or removes a container, the driver says what became of it.
func (o *onEngine) endedBySomebody() {
	ctx := o.t.Context()
	awaited := make(chan replicas.Exit, 1)
	await := func() {
		go func() {
			exit, err := o.Await(ctx, o.id)
			if err != nil {
				exit.Message = err.Error()
			}
			awaited <- exit
		}()
	}
	l := o.launch("serve")
	o.start(l)
	await()
	require.NoError(o.t, o.engine.do(ctx, nameOf(o.id), "kill", nil))
	require.Equal(o.t, replicas.Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 137"}, <-awaited)
	o.start(l)
	await()
	require.NoError(o.t, o.engine.remove(ctx, nameOf(o.id)))
	exit := <-awaited
	require.Contains(o.t, []replicas.Exit{{}, {Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 137"}}, exit)
	o.start(l)
	o.serves()
	require.NoError(o.t, o.engine.do(ctx, nameOf(o.id), "pause", nil))
	found, err := o.Look(ctx, o.id)
	require.NoError(o.t, err)
	require.True(o.t, found.Running, "it may go on")
	o.removed()
}

// prints reads much while it is printed and after, by one driver and the next, and nothing twice.
func (o *onEngine) prints(e *testkit.Engine) {
	const lines, text = 10_000, "0123456789abcdef\n"
	o.start(o.launch("print", strconv.Itoa(lines), text))
	var all strings.Builder
	var next int64
	o.eventually(func() bool {
		out, err := o.Output(o.t.Context(), o.id, next)
		require.NoError(o.t, err)
		require.Zero(o.t, out.Skipped)
		all.Write(out.Data)
		next = out.Next
		o.again(e)
		return next >= lines*int64(len(text))
	}, "its output does not come")
	require.Equal(o.t, strings.Repeat(text, lines), all.String())
	o.removed()

	// What was not read before the engine rotated it away is gone.
	o.start(o.launch("print", strconv.Itoa(100*lines), text))
	o.serves()
	said, _, _ := o.output(0)
	require.True(o.t, strings.HasSuffix(strings.Repeat(text, 100*lines), said))
	require.Greater(o.t, len(said), lines)
	o.removed()
}

// tangles reads the parts of long lines that come late, once. Engines before API version 1.43 keep some back.
func (o *onEngine) tangles(version apiVersion) {
	const turns, part = 10, 20_000
	o.start(o.launch("tangle"))
	lines, parts := 0, 0
	var next int64
	take := func() {
		text, to, skipped := o.output(next)
		require.Zero(o.t, skipped)
		next = to
		lines += strings.Count(text, "a line\n")
		parts += strings.Count(text, "#")
	}
	o.eventually(func() bool {
		take()
		return lines == turns
	}, "its lines do not come")
	o.serves()
	require.NoError(o.t, o.Stop(o.t.Context(), o.id, 0))
	for range 3 {
		take()
	}
	require.Equal(o.t, turns, lines)
	if version.compare(apiVersion{1, 43}) >= 0 {
		require.Equal(o.t, 2*turns*part, parts)
	} else {
		require.LessOrEqual(o.t, parts, 2*turns*part)
	}
	o.removed()
}

// S54, X1, X2: an engine that is killed takes its containers with it, or finds them again; while it is
// away, or stands still, nothing is said to have ended.
func TestRealEngineFalls(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		flags string
		lives bool
	}{{"", false}, {"--live-restore", true}} {
		t.Run(one.flags, func(t *testing.T) {
			t.Parallel()
			e := startEngine(t, one.flags)
			o := on(t, e, 0)
			o.falls(e, one.lives)
		})
	}
}

func (o *onEngine) falls(e *testkit.Engine, lives bool) {
	ctx := o.t.Context()
	l := o.launch("serve")
	began := o.start(l)
	awaited := make(chan error, 1)
	go func() {
		_, err := o.Await(ctx, o.id)
		awaited <- err
	}()
	e.Do(o.t, "kill")
	require.True(o.t, fleet.KindOf(<-awaited).Retryable())
	_, err := o.Look(ctx, o.id)
	require.Equal(o.t, fleet.Unavailable, fleet.KindOf(err), "%v", err)
	require.Equal(o.t, fleet.Unavailable, fleet.KindOf(o.Stop(ctx, o.id, 0)))
	e.Do(o.t, "start")
	e.Answers(o.t)
	found, err := o.Look(ctx, o.id)
	require.NoError(o.t, err)
	if lives {
		require.Equal(o.t, began, found)
	} else {
		require.Equal(o.t, replicas.Found{ID: o.id}, found)
		exit, err := o.Await(ctx, o.id)
		require.NoError(o.t, err)
		require.Equal(o.t, fleet.ReasonExited, exit.Reason)
		o.start(l)
	}
	o.serves()

	e.Do(o.t, "STOP")
	o.engine.limit = time.Second
	o.eventually(func() bool { // a signal has to come to all its threads
		_, err = o.Look(ctx, o.id)
		return err != nil
	}, "it does not stand still")
	require.ErrorContains(o.t, err, "the engine took longer than 1s")
	require.ErrorContains(o.t, o.Stop(ctx, o.id, 0), "the engine took longer than 1s")
	e.Do(o.t, "CONT")
	o.engine.limit = readLimit
	e.Answers(o.t)
	o.serves()
	o.removed()
}
