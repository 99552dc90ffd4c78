package node

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// fakeTenancy notes among the calls of a runtime what it is told.
type fakeTenancy struct {
	rt       *fakeRuntime
	refuses  error
	enforces chan struct{} // closed when it does
}

var (
	_ tenancy = fakeTenancy{}
	_ tenancy = (*guardian.Runtime)(nil)
)

func (f fakeTenancy) Lease(_ context.Context, l guardian.Lease) error {
	f.rt.mu.Lock()
	defer f.rt.mu.Unlock()
	f.rt.note("lease %v", l == guardian.NoDeadline())
	return f.refuses
}

func (f fakeTenancy) Enforce(ctx context.Context) error {
	close(f.enforces)
	<-ctx.Done()
	return nil
}

// X21
func TestTenancy(t *testing.T) {
	t.Parallel()
	// holding is a node that held an instance, of which nothing runs now.
	holding := func(t *testing.T) (*bench, fakeTenancy) {
		t.Helper()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		require.NoError(t, b.store.Close())
		require.NoError(t, b.key.Enrolled("eu-1").Save(b.dir+"/node.key"))
		clear(b.rt.running)
		b.rt.said()
		return b, fakeTenancy{rt: b.rt, enforces: make(chan struct{})}
	}
	t.Run("the right to run is there before anything starts, and is enforced meanwhile", func(t *testing.T) {
		t.Parallel()
		b, keeper := holding(t)
		b.rt.onStart = func(ctx context.Context, _ guardian.Spec) error {
			select {
			case <-keeper.enforces:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		a, rt := launch(t, b.dir, "http://127.0.0.1:1", using(b.rt), func(o *AgentOptions) { o.Tenancy = keeper })
		require.NoError(t, a.stop())
		require.Equal(t, []string{"lease true", "start " + string(press) + " 1"}, rt.said())
	})
	t.Run("a right that cannot be written starts nothing", func(t *testing.T) {
		t.Parallel()
		b, keeper := holding(t)
		keeper.refuses = fleet.Errorf(fleet.Internal, "disk full")
		key, err := identity.Load(b.dir + "/node.key")
		require.NoError(t, err)
		a, err := Open(t.Context(), AgentOptions{
			Node: key.Node(), Site: "plant-1", Dir: b.dir, API: "http://127.0.0.1:1", Runtime: b.rt, Tenancy: keeper, Now: time.Now,
		})
		require.NoError(t, err)
		require.ErrorContains(t, a.Run(t.Context()), "disk full")
		require.NoError(t, a.Close())
		require.Equal(t, []string{"lease true"}, b.rt.said())
	})
	t.Run("what the lease ended says so and is started again with the epoch of now", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.must(b.cmd(1, "one"))
		ended := b.rt.running[press]
		ended.Running, ended.Guardian, ended.Reason, ended.LastExit = false, guardian.Ended, guardian.ReasonLeaseEnded, "signal SIGTERM"
		b.rt.running[press] = ended
		for _, b.mayRun = range []bool{true, false} {
			all, err := b.Instances(t.Context())
			require.NoError(t, err)
			require.Equal(t, guardian.ReasonLeaseEnded, all[0].Reason)
			require.False(t, all[0].Held.Running)
		}
		b.mayRun = true
		require.NoError(t, b.Adopt(t.Context(), sqlite.Right{Role: fleet.RoleActive, Epoch: 7}, ""))
		require.NoError(t, b.settleAll(t.Context()))
		require.True(t, b.rt.running[press].Running)
		require.Contains(t, b.rt.specs[press].Env, "HOLDFAST_EPOCH=7")
	})
}
