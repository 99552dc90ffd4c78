package replicas

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// fakeDriver runs nothing, as an engine of its own: it outlives agents, may be away, and may hang.
type fakeDriver struct {
	mu       sync.Mutex
	away     bool
	hung     bool
	there    map[fleet.ReplicaID]chan struct{} // closed when it has ended
	prepared int
	broken   bool  // commands before the start fail
	hangs    bool  // commands before the start never end
	refuses  error // of an image's registry
	removed  []fleet.ReplicaID
	stuck    bool // it takes no stops
	refused  int  // stops, while it was away or stuck
	read     int  // how often output was asked for
	freezes  bool // in the middle of a start, and takes no stop of that
	falls    int  // so many programs end while they are started
}

var _ Driver = (*fakeDriver)(nil)

func newFakeDriver() *fakeDriver { return &fakeDriver{there: map[fleet.ReplicaID]chan struct{}{}} }

// call holds the lock until done is called.
func (f *fakeDriver) call(ctx context.Context) (done func(), err error) {
	f.mu.Lock()
	if f.hung {
		f.mu.Unlock()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if f.away {
		f.mu.Unlock()
		return nil, fleet.Errorf(fleet.Unavailable, "the engine is away")
	}
	return f.mu.Unlock, nil
}

func ended(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (f *fakeDriver) found(id fleet.ReplicaID) Found {
	if c, has := f.there[id]; has && !ended(c) {
		return Found{ID: id, Running: true, PID: 4711}
	}
	return Found{ID: id}
}

func (f *fakeDriver) List(ctx context.Context) ([]Found, error) {
	done, err := f.call(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var all []Found
	for id := range f.there {
		all = append(all, f.found(id))
	}
	return all, nil
}

func (f *fakeDriver) Prepare(ctx context.Context, l Launch) error {
	if len(l.Process.PreStart) > 0 {
		return nil
	}
	return f.prepare(ctx)
}

func (f *fakeDriver) RunBefore(ctx context.Context, _ Launch) error { return f.prepare(ctx) }

// prepare pulls an image, or runs commands.
func (f *fakeDriver) prepare(ctx context.Context) error {
	done, err := f.call(ctx)
	if err != nil {
		return err
	}
	f.prepared++
	if f.hangs {
		done()
		<-ctx.Done()
		return fleet.Errorf(fleet.Unavailable, "command 1 before the start has not ended: %w", context.Cause(ctx))
	}
	defer done()
	if f.refuses != nil {
		return f.refuses
	}
	if f.broken {
		return &Failure{fleet.ReasonExited, fleet.Errorf(fleet.ApplyFailed, "command 1 before the start: exit code 1")}
	}
	return nil
}

func (f *fakeDriver) Start(ctx context.Context, l Launch) (Found, error) {
	done, err := f.call(ctx)
	if err != nil {
		return Found{}, err
	}
	f.there[l.ID] = make(chan struct{})
	if f.falls > 0 {
		defer done()
		f.falls--
		close(f.there[l.ID])
		return Found{ID: l.ID}, &Failure{fleet.ReasonExited, fleet.Errorf(fleet.ApplyFailed, "it ended at once")}
	}
	if f.freezes {
		done()
		<-ctx.Done()
		return Found{}, ctx.Err()
	}
	defer done()
	return f.found(l.ID), nil
}

func (f *fakeDriver) Look(ctx context.Context, id fleet.ReplicaID) (Found, error) {
	done, err := f.call(ctx)
	if err != nil {
		return Found{}, err
	}
	defer done()
	return f.found(id), nil
}

func (f *fakeDriver) Await(ctx context.Context, id fleet.ReplicaID) (Exit, error) {
	done, err := f.call(ctx)
	if err != nil {
		return Exit{}, err
	}
	c, has := f.there[id]
	done()
	if !has {
		return Exit{}, nil
	}
	select {
	case <-c:
		return Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: exit code 3"}, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

func (f *fakeDriver) Stop(ctx context.Context, id fleet.ReplicaID, _ time.Duration) error {
	done, err := f.call(ctx)
	if err != nil {
		f.is(func() { f.refused++ })
		return err
	}
	defer done()
	if _, has := f.there[id]; f.stuck || f.freezes && has {
		f.refused++
		return fleet.Errorf(fleet.Unavailable, "the engine takes no stops")
	}
	f.end(id)
	return nil
}

// end is an exit; the lock is held.
func (f *fakeDriver) end(id fleet.ReplicaID) {
	if c, has := f.there[id]; has && !ended(c) {
		close(c)
	}
}

func (f *fakeDriver) Remove(ctx context.Context, id fleet.ReplicaID) error {
	done, err := f.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	f.end(id)
	delete(f.there, id)
	f.removed = append(f.removed, id)
	return nil
}

func (f *fakeDriver) Output(ctx context.Context, _ fleet.ReplicaID, from int64) (guardian.Output, error) {
	done, err := f.call(ctx)
	if err == nil {
		f.read++
		done()
	}
	return guardian.Output{Offset: from, Next: from}, err
}

func (f *fakeDriver) Usage(ctx context.Context) (map[fleet.ReplicaID]Usage, error) {
	done, err := f.call(ctx)
	if err == nil {
		done()
	}
	return nil, err
}

func (f *fakeDriver) is(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// container is a definition for the fake, which runs without probes.
func container(change ...func(*fleet.Definition)) fleet.Definition {
	return web(append([]func(*fleet.Definition){func(d *fleet.Definition) {
		d.Driver, d.Image, d.Health = fleet.DriverDocker, "web:1", nil
	}}, change...)...)
}

func setupEngine(t *testing.T, change ...func(*Options)) (*bench, *fakeDriver) {
	t.Helper()
	engine := newFakeDriver()
	return setup(t, append([]func(*Options){func(o *Options) {
		o.Drivers[fleet.DriverDocker], o.SeekEvery = engine, 10*time.Millisecond
	}}, change...)...), engine
}

func (b *bench) fetched() int {
	b.region.mu.Lock()
	defer b.region.mu.Unlock()
	return b.region.fetched
}

// X5, S54: an engine that is away when an agent starts comes back later; what it runs is not given up
// meanwhile, and what ended is told then. Processes wait for nobody.
func TestEngineIsLate(t *testing.T) {
	t.Parallel()
	const third = fleet.ReplicaID("cccccccccccc")
	came := make(chan fleet.Driver, 8)
	b, engine := setupEngine(t, func(o *Options) { o.OnDriver = func(d fleet.Driver) { came <- d } })
	c, p := b.defined(container()), b.defined(web())
	b.ask(line(first, c), line(second, c), line(third, p))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.is(third, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	const stranger = fleet.ReplicaID("dddddddddddd")
	engine.is(func() {
		engine.away = true
		engine.end(second)
		engine.there[stranger] = make(chan struct{})
	})
	before, fetched := len(b.told(first)), b.fetched()
	b.open(true)
	b.eventually(func() bool { return b.fetched() > fetched }, "the node waits for the engine")
	b.is(third, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, string(fleet.PhaseRunning), b.status(second).GetPhase(), "nobody knows that it ended")

	b.ask(line(first, c), line(second, c)) // the third ends while the engine is away
	b.gone(third)
	engine.is(func() { engine.away = false })
	require.Equal(t, fleet.DriverDocker, <-came)
	require.Equal(t, "it ended by itself: exit code 3", b.is(second, fleet.PhaseExited, fleet.HealthNotChecked).GetMessage())
	b.is(stranger, fleet.PhaseRunning, fleet.HealthNotChecked)
	b.ask(line(first, c), line(second, c), fleet.NodeReplica{ID: stranger}) // X3: it is ended by name
	b.is(stranger, fleet.PhaseStopped, fleet.HealthNotChecked)
	b.ask(line(first, c), line(second, c))
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		_, there := engine.there[stranger]
		return !there
	}, "what nobody remembers stays")
	require.Equal(t, string(fleet.PhaseRunning), b.status(first).GetPhase())
	require.Len(t, b.told(first), before, "nothing became of it")
	b.ask()
	b.gone(first)
	b.gone(second)
	require.Empty(t, engine.there)
}

// S53, X5, X6: what is to end while its engine is away ends once that is back, however long its stop may
// take; it is not forgotten before.
func TestEndsWithoutItsEngine(t *testing.T) {
	t.Parallel()
	for name, anew := range map[string]bool{"the agent stays": false, "the agent is started again": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, engine := setupEngine(t)
			l := line(first, b.defined(container()))
			l.StopSeconds = 600
			b.ask(l)
			b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
			if anew {
				b.stop()
			}
			engine.is(func() { engine.away = true })
			if anew {
				b.open(true)
			}
			b.ask()
			b.is(first, fleet.PhaseStopping, fleet.HealthHealthy)
			b.eventually(func() bool {
				engine.mu.Lock()
				defer engine.mu.Unlock()
				return engine.refused > 0
			}, "it is not told to end")
			engine.is(func() { engine.away = false })
			b.gone(first)
			require.Equal(t, []fleet.ReplicaID{first}, engine.removed)
		})
	}
}

// X5: what an agent started and could not write down, for it was killed, is ended by the next one, however
// often its engine refuses.
func TestLeftByAKilledAgent(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	engine.is(func() { engine.end(first) })
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	b.stop()
	engine.is(func() { engine.there[first], engine.stuck = make(chan struct{}), true })
	b.open(true)
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return engine.refused > 0
	}, "it is left to run")
	engine.is(func() { engine.stuck = false })
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return !engine.found(first).Running
	}, "it is left to run")
}

// X3, X5, X6: a node that lost its memory ends what it is told to where it can look, waits for no engine that
// may never come, and ends there what that has when it does; others it tells, and when they end.
func TestForgottenWithoutItsEngine(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	c := b.defined(container())
	b.ask(line(first, c), line(second, c))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	b.forgets()
	engine.is(func() { engine.away = true })
	b.says(fleet.NodeReplica{ID: first}) // before the agent asks: one that is to run is prepared meanwhile
	b.open(true)
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	b.says()
	b.gone(first)
	engine.is(func() { engine.away = false })
	st := b.is(second, fleet.PhaseRunning, fleet.HealthNotChecked)
	require.Equal(t, "its node does not remember it", st.GetMessage())
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return !engine.found(first).Running
	}, "what was told to end runs on")
	engine.is(func() { engine.end(second) })
	b.is(second, fleet.PhaseExited, fleet.HealthNotChecked)
}

// S17: what ends while it is started has exited, whatever ended it.
func TestEndsWhileItStarts(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{fleet.ReasonExited, fleet.ReasonOutOfMemory} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b, engine := setupEngine(t)
			engine.refuses = &Failure{Reason: reason, Err: fleet.Errorf(fleet.ApplyFailed, "it ended")}
			b.ask(line(first, b.defined(container())))
			require.Equal(t, reason, b.is(first, fleet.PhaseExited, fleet.HealthNotChecked).GetReason())
		})
	}
}

// X8: what cannot be ended says why.
func TestNotStoppedSaysWhy(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	engine.is(func() { engine.away = true })
	b.ask()
	says := func() {
		t.Helper()
		b.eventually(func() bool { return b.status(first).GetMessage() == notStopped+"the engine is away" }, "it does not say why")
	}
	says()
	b.stop()
	b.mu.Lock()
	b.statuses[first] = nil
	b.mu.Unlock()
	b.open(true)
	says()
	engine.is(func() { engine.away = false })
	b.gone(first)
}

// X8: what is said of a stop that was not taken is over with it.
func TestNotStoppedIsOver(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	engine.is(func() { engine.stuck = true })
	b.says(fleet.NodeReplica{ID: first})
	b.eventually(func() bool { return strings.Contains(b.status(first).GetMessage(), notStopped) }, "it does not say why")
	engine.is(func() { engine.stuck = false })
	require.Empty(t, b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked).GetMessage())
}

// X3, X5: what an agent told to have ended that did not see it is ended by the next one that does.
func TestEndedUnseenByAnEarlierAgent(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	b.forgets()
	engine.is(func() { engine.away = true })
	b.says(fleet.NodeReplica{ID: first}) // before the agent asks: one that is to run is prepared meanwhile
	b.open(true)
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	b.stop()
	engine.is(func() { engine.away = false })
	b.open(true)
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return !engine.found(first).Running
	}, "it runs on")
	b.says()
	b.gone(first)
	require.Equal(t, []fleet.ReplicaID{first}, engine.removed)
}

// S54: what a machine ran before it was started again has ended, whatever its engine says later.
func TestAnotherBootWithoutEngine(t *testing.T) {
	t.Parallel()
	boot := "this boot"
	b, engine := setupEngine(t, func(o *Options) { o.Boot = boot })
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	engine.is(func() { engine.away = true; engine.end(first) })
	boot = "the next boot"
	b.open(true)
	require.Equal(t, "its machine was restarted", b.is(first, fleet.PhaseExited, fleet.HealthNotChecked).GetMessage())
}

// X5, X27: an engine that hangs or is away keeps nobody else's output and samples from the region.
func TestEngineHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	engine.is(func() { engine.hung = true })
	b.ask(line(first, b.defined(container())), line(second, b.defined(web())))
	b.is(second, fleet.PhaseRunning, fleet.HealthHealthy)
	b.eventually(func() bool {
		b.region.mu.Lock()
		defer b.region.mu.Unlock()
		_, sampled := b.region.samples[second]
		return sampled && b.region.logs[second] != ""
	}, "a process is held up by the engine")
	engine.is(func() { engine.hung = false })
}

// X5: however many containers an engine hangs with, processes start.
func TestEngineHangsInStarts(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	engine.is(func() { engine.freezes = true })
	c := b.defined(container())
	var lines []fleet.NodeReplica
	for i := range maxStarts + 2 {
		lines = append(lines, line(fleet.ReplicaID(fmt.Sprintf("%012x", i)), c))
	}
	b.ask(lines...)
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return len(engine.there) == maxStarts
	}, "they are not started")
	b.ask(append(lines, line(first, b.defined(web())))...)
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	engine.is(func() { require.Len(t, engine.there, maxStarts) })
}

// X5, S19, S53: an engine that hangs keeps an agent neither from taking its processes over nor from ending them.
func TestEngineHangsForTheNextAgent(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())), line(second, b.defined(web())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	pid := b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()
	b.stop()
	engine.is(func() { engine.hung = true })
	b.mu.Lock()
	b.statuses, b.seen = map[fleet.ReplicaID]*nodev1.ReplicaStatus{}, map[fleet.ReplicaID][]string{}
	b.mu.Unlock()
	b.open(true)
	require.Equal(t, pid, b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetPid())
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- b.keeper.StopAll(ctx) }()
	b.eventually(func() bool { return !alive(pid) }, "the process waits for the engine")
	cancel()
	require.Error(t, <-stopped, "nobody knows what the engine runs")
}

// X23, X27: the output of a replica is sent by one goroutine alone, also of one whose driver comes to be known
// in the middle of a round.
func TestOneShipper(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t, func(o *Options) { o.Enrolled = make(chan struct{}) }) // it ships nothing by itself
	k := b.keeper
	<-k.ready
	k.mu.Lock()
	w := k.add(known{NodeReplica: line(first, ""), Phase: fleet.PhasePreparing})
	require.Equal(t, fleet.DriverProcess, k.shipper(w.known))
	w.known.Driver = fleet.DriverDocker
	k.mu.Unlock()
	require.NoError(t, k.shipOne(t.Context(), fleet.DriverProcess, first))
	require.False(t, w.located)
	engine.is(func() { require.Zero(t, engine.read) })
	require.NoError(t, k.shipOne(t.Context(), fleet.DriverDocker, first))
	require.True(t, w.located)
	engine.is(func() { require.Equal(t, 1, engine.read) })

	w.cleared = true
	require.NoError(t, k.shipOne(t.Context(), fleet.DriverDocker, first))
	require.NoError(t, k.clear(t.Context(), first), "it is gone already")
	engine.is(func() { require.Equal(t, []fleet.ReplicaID{first}, engine.removed) })
}

// S121: the commands before a start run before each one, also where the node starts it by itself.
func TestPreparedForEachStart(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container(func(d *fleet.Definition) { d.PreStart = [][]string{{"fetch"}} }))))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, 1, engine.prepared)
	b.keeper.Lost()
	engine.is(func() { engine.broken = true; engine.end(first) })
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return engine.prepared > 1
	}, "it is not made ready again")
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	engine.is(func() { engine.broken = false })
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Greater(t, engine.prepared, 2)
}

// S121: also after a program that ended while it was started.
func TestPreparedAfterWhatEndedAtOnce(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container(func(d *fleet.Definition) { d.PreStart = [][]string{{"fetch"}} }))))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.keeper.Lost()
	engine.is(func() { engine.falls = 1; engine.end(first) })
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return engine.falls == 0 && engine.found(first).Running
	}, "it is not started again")
	engine.mu.Lock()
	defer engine.mu.Unlock()
	require.Equal(t, 3, engine.prepared)
}

// S54, S121, X6, X8: commands that hang before a start of the node's own are ended as those before the first,
// and tried again for as long as the region is away; it is given up when that is back.
func TestHangsBeforeAnotherStart(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	b, engine := setupEngine(t, func(o *Options) {
		o.Now = func() time.Duration { return guardian.SinceBoot() + time.Duration(later.Load()) }
	})
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.keeper.Lost()
	engine.is(func() { engine.hangs = true; engine.end(first) })
	prepared := func(times int) {
		t.Helper()
		b.eventually(func() bool {
			engine.mu.Lock()
			defer engine.mu.Unlock()
			return engine.prepared > times
		}, "it is not made ready again")
	}
	prepared(1)
	later.Add(int64(decide.PrepareLimit))
	prepared(2)
	b.eventually(func() bool { return b.status(first).GetRestarts() == 1 }, "it is told of no restart")
	b.keeper.Heard()
	later.Add(int64(decide.PrepareLimit))
	st := b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked)
	require.Equal(t, decide.ReasonPrepareLimit, st.GetReason())
	engine.is(func() { require.False(t, engine.found(first).Running) })
}

// S53, X4: a node says that all it ran has ended only where it knows so.
func TestStopAll(t *testing.T) {
	t.Parallel()
	b, engine := setupEngine(t)
	b.ask(line(first, b.defined(container())), line(second, b.defined(web())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	pid := b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()
	b.stop()
	engine.is(func() { engine.away = true })
	require.Error(t, b.keeper.StopAll(t.Context()), "its engine went away meanwhile")
	require.False(t, alive(pid))
	fetched := b.fetched()
	b.open(true)
	b.eventually(func() bool { return b.fetched() > fetched }, "the node waits for the engine")
	b.stop()
	require.Error(t, b.keeper.StopAll(t.Context()), "its engine was away all the while")
	engine.is(func() { engine.away = false })
	require.NoError(t, b.keeper.StopAll(t.Context()))
	engine.is(func() { require.True(t, ended(engine.there[first])) })

	other, absent := setupEngine(t)
	other.stop()
	absent.is(func() { absent.away = true })
	fetched = other.fetched()
	other.open(true)
	other.eventually(func() bool { return other.fetched() > fetched }, "it waits for the engine")
	other.stop()
	require.NoError(t, other.keeper.StopAll(t.Context()), "nothing was ever started there")
}
