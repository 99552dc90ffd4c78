package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// begun is revision 2 whose attempt was cut off in the middle of its start.
func begun(t *testing.T, cut func(b *bench, cancel func())) *bench {
	t.Helper()
	b := setup(t)
	b.must(b.cmd(1, "one"))
	b.rt.said()
	entered := b.startsSlowly()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { _, err := b.Apply(ctx, b.cmd(2, "two"), nil); failed <- err }()
	<-entered
	cut(b, cancel)
	require.Error(t, <-failed)
	return b
}

// startsSlowly has revision 2 start as a guardian does: its start goes on when the caller is cut off.
func (b *bench) startsSlowly() (entered chan struct{}) {
	entered = make(chan struct{}, 1)
	b.rt.onBegun = func(ctx context.Context, spec guardian.Spec) error {
		if spec.Labels.Version.Revision != 2 {
			return nil
		}
		b.rt.starting(spec.Instance, true)
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return entered
}

func callerGone(_ *bench, cancel func()) { cancel() }

// epochRises is what the first seconds of a pair bring: the node keeps the lease, at a higher epoch.
func epochRises(b *bench, _ func()) {
	require.NoError(b.t, b.Adopt(b.t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 2}, ""))
	require.NoError(b.t, b.settleAll(b.t.Context()))
}

// N50, X13, X21: a start whose attempt was cut off goes on, and is not repeated.
func TestCutStart(t *testing.T) {
	t.Parallel()
	second := []string{"stop press", "start press 2"}
	for what, cut := range map[string]func(b *bench, cancel func()){"its caller is gone": callerGone, "the epoch rises": epochRises} {
		t.Run("when "+what+", the next attempt takes it over", func(t *testing.T) {
			t.Parallel()
			b := begun(t, cut)
			require.NoError(t, b.settleAll(t.Context()))
			require.EqualValues(t, 1, b.held(press).Version.Revision)
			cmd := b.cmd(2, "two", under(fleet.RoleActive, 2))
			cmd.DeploymentID = strings.Repeat("a", 32)
			b.must(cmd)
			b.is(2, "two", 2, 2)
			require.Equal(t, second, b.rt.said())
			require.Empty(t, b.cut)
		})
		t.Run("when "+what+", it becomes current without another attempt", func(t *testing.T) {
			t.Parallel()
			b := begun(t, cut)
			b.rt.starting(press, false)
			b.checkCut(t.Context())
			b.is(2, "two", 2, 2)
			require.Equal(t, second, b.rt.said())
			require.True(t, b.must(b.cmd(2, "two", under(fleet.RoleActive, 2))).Already)
			require.Empty(t, b.rt.said())
		})
	}
	t.Run("goes on under a new agent", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.restart()
		require.EqualValues(t, 1, b.held(press).Version.Revision)
		b.rt.starting(press, false)
		b.checkCut(t.Context())
		b.is(2, "two", 2, 2)
		require.Equal(t, second, b.rt.said())
	})
	t.Run("its early end fails the next attempt, and the previous revision runs again", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.rt.onStarted = func(context.Context, fleet.InstanceName) error {
			return fleet.Errorf(fleet.ApplyFailed, "exit code 3")
		}
		_, err := b.apply(b.cmd(2, "two"))
		require.Equal(t, fleet.ApplyFailed, fleet.KindOf(err))
		b.is(1, "one", 1, 2)
	})
	t.Run("a newer revision ends it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.must(b.cmd(3, "three"))
		b.is(3, "three", 3, 3)
		require.Equal(t, append(second, "stop press", "start press 3"), b.rt.said())
	})
	t.Run("a newer revision that could not be fetched ends it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		cmd := b.cmd(3, "three")
		b.region.mu.Lock()
		delete(b.region.bodies, cmd.DeploymentID)
		b.region.mu.Unlock()
		_, err := b.apply(cmd)
		require.Error(t, err)
		b.checkCut(t.Context())
		b.is(1, "one", 1, 3)
	})
	t.Run("a delete ends it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.must(b.deletion(3))
		b.is(0, "", 3, 3)
	})
	t.Run("a lost lease ends it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.mayRun = false
		require.NoError(t, b.settleAll(t.Context()))
		require.Zero(t, b.runsNow(press))
		b.mayRun = true
		require.NoError(t, b.settleAll(t.Context()))
		b.is(1, "one", 1, 2)
	})
	t.Run("another role ends it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, func(b *bench, _ func()) {
			require.NoError(t, b.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleStandby, Epoch: 2}, ""))
			require.NoError(t, b.settleAll(t.Context()))
		})
		b.is(0, "", 1, 2)
	})
	t.Run("a delivery that the region has closed ends it, once no other attempt came in time", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.Applier.opt.ClaimLimit = time.Hour
		b.region.before = func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		b.checkCut(t.Context())
		require.EqualValues(t, 2, b.runsNow(press), "another attempt may come")
		b.Applier.opt.ClaimLimit = time.Nanosecond
		b.checkCut(t.Context())
		b.is(1, "one", 1, 2)
		require.Equal(t, append(second, "stop press", "start press 1"), b.rt.said())
	})
	t.Run("the loop finds out what becomes of it", func(t *testing.T) {
		t.Parallel()
		b := begun(t, callerGone)
		b.rt.starting(press, false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		require.Eventually(t, func() bool { return b.held(press).Version.Revision == 2 }, patience, 10*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, second, b.rt.said())
	})
}
