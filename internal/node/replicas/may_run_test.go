package replicas

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// killed ends the agent, and has the store hold what one that was killed then had written.
func (b *bench) killed(change func(*known)) {
	b.t.Helper()
	b.stop()
	store, err := sqlite.Open(b.t.Context(), filepath.Join(b.dir, "node.db"))
	require.NoError(b.t, err)
	rows, err := store.Replicas(b.t.Context())
	require.NoError(b.t, err)
	require.Len(b.t, rows, 1)
	r, err := recall(rows[0], "this boot", 0)
	require.NoError(b.t, err)
	r.Health, r.PID = fleet.HealthNotChecked, 0
	change(&r)
	row, err := r.row()
	require.NoError(b.t, err)
	require.NoError(b.t, store.PutReplica(b.t.Context(), row))
	require.NoError(b.t, store.Close())
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.statuses, first)
}

// asked waits until the engine was told to end something, and did not.
func (b *bench) asked(engine *fakeDriver) {
	b.t.Helper()
	b.eventually(func() bool {
		engine.mu.Lock()
		defer engine.mu.Unlock()
		return engine.refused > 0
	}, "it is not told to end")
}

// S53, X28: that something has ended is told only once its driver says so, also where nobody saw that it began.
func TestEndsWhatMayRun(t *testing.T) {
	t.Parallel()
	before := container(func(d *fleet.Definition) { d.PreStart = [][]string{{"fetch"}} })
	runs := func(b *bench, _ *fakeDriver) { b.is(first, fleet.PhaseRunning, fleet.HealthHealthy) }
	prepares := func(b *bench, engine *fakeDriver) {
		b.eventually(func() bool {
			engine.mu.Lock()
			defer engine.mu.Unlock()
			return engine.prepared > 0
		}, "its commands are not begun")
	}
	for name, row := range map[string]struct {
		def     fleet.Definition
		freezes bool
		until   func(*bench, *fakeDriver)
		killed  func(*known) // nil: the agent stays
		away    bool         // the engine, for the next agent
	}{
		"its agent was killed after its start, and its engine is away then": {
			def: container(), until: runs, away: true, killed: func(k *known) { k.Phase, k.Run = fleet.PhasePreparing, false },
		},
		"its agent was killed when it was told to end, and its engine is away then": {
			def: container(), until: runs, away: true, killed: func(k *known) { k.Phase, k.Run = fleet.PhaseStopping, false },
		},
		"its engine froze in the middle of its start": {def: container(), freezes: true, until: func(b *bench, engine *fakeDriver) {
			b.eventually(func() bool {
				engine.mu.Lock()
				defer engine.mu.Unlock()
				return engine.found(first).Running
			}, "it is not started")
		}},
		"its agent was killed while commands before its start ran": {
			def: before, until: prepares, killed: func(k *known) { k.Run = false },
		},
		"its agent was killed while commands before its start were to end": {
			def: before, until: prepares, killed: func(k *known) { k.Run, k.Phase = false, fleet.PhaseStopping },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, engine := setupEngine(t)
			engine.is(func() { engine.freezes, engine.hangs = row.freezes, row.def.PreStart != nil })
			b.ask(line(first, b.defined(row.def)))
			row.until(b, engine)
			if row.killed != nil {
				b.killed(row.killed)
				engine.is(func() { engine.away, engine.stuck = row.away, true })
				b.open(true)
			}
			b.ask()
			b.is(first, fleet.PhaseStopping, fleet.HealthNotChecked)
			b.asked(engine)
			require.Equal(t, string(fleet.PhaseStopping), b.status(first).GetPhase())
			engine.is(func() { engine.away, engine.stuck, engine.freezes = false, false, false })
			b.gone(first)
			require.Equal(t, []fleet.ReplicaID{first}, engine.removed)
		})
	}
}

// S53, S54, X28: what may run is not given up before it has ended.
func TestGivenUpWhileItMayRun(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	b, engine := setupEngine(t, func(o *Options) {
		o.Now = func() time.Duration { return guardian.SinceBoot() + time.Duration(later.Load()) }
	})
	b.ask(line(first, b.defined(container())))
	b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	b.killed(func(k *known) { k.Phase = fleet.PhasePreparing })
	engine.is(func() { engine.away = true })
	b.open(true)
	b.eventually(func() bool { return b.status(first).GetMessage() != "" }, "it does not say what it waits for")
	later.Add(int64(decide.PrepareLimit))
	b.asked(engine)
	require.Equal(t, string(fleet.PhasePreparing), b.status(first).GetPhase())
	engine.is(func() { engine.away = false })
	require.Equal(t, decide.ReasonPrepareLimit, b.is(first, fleet.PhaseFailed, fleet.HealthNotChecked).GetReason())
	engine.is(func() { require.False(t, engine.found(first).Running) })
}

// S53, X3: what was never started has ended at once, whether or not there ever is an engine.
func TestEndsWhatNeverBegan(t *testing.T) {
	t.Parallel()
	says := func(b *bench, _ *fakeDriver, id fleet.ReplicaID) {
		b.eventually(func() bool { return b.status(id).GetMessage() != "" }, "it does not say what it waits for")
	}
	for name, row := range map[string]struct {
		away  bool // all the while
		until func(*bench, *fakeDriver, fleet.ReplicaID)
		anew  bool
	}{
		"there is no engine": {away: true, until: says},
		"there is no engine, and the agent is started again": {away: true, until: says, anew: true},
		"its image is being pulled when the engine goes away": {until: func(b *bench, engine *fakeDriver, _ fleet.ReplicaID) {
			b.eventually(func() bool {
				engine.mu.Lock()
				defer engine.mu.Unlock()
				return engine.prepared > 0
			}, "it is not pulled")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, engine := setupEngine(t)
			engine.is(func() { engine.away, engine.hangs = row.away, true })
			lines := []fleet.NodeReplica{line(first, b.defined(container()))}
			if row.away {
				lines = append(lines, line(second, b.defined(container(func(d *fleet.Definition) { d.PreStart = [][]string{{"fetch"}} }))))
			}
			b.ask(lines...)
			for _, l := range lines {
				row.until(b, engine, l.ID)
			}
			engine.is(func() { engine.away = true })
			if row.anew {
				b.stop()
				b.open(true)
			}
			b.ask()
			for _, l := range lines {
				b.is(l.ID, fleet.PhaseStopped, fleet.HealthNotChecked)
			}
		})
	}
}
