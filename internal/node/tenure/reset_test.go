package tenure_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

const (
	forgedEpoch = lease.Most - 5
	resetEpoch  = int64(1004)
)

// tellReset is what the region says after an operator reset the votes.
func (k *kept) tellReset(number, epoch int64, members ...tenure.Member) error {
	k.t.Helper()
	return k.SetSite(k.t.Context(), tenure.Site{
		Name: site, Generation: 3, Members: members, OnIsolation: lease.IsolationStop, Resets: number, ResetEpoch: epoch,
	})
}

func (k *kept) votes() votefile.State {
	k.t.Helper()
	s, err := votefile.Load(filepath.Join(k.dir, votefile.Name), votefile.State{Site: site, Node: nodeA}, votefile.Enrolled)
	require.NoError(k.t, err)
	return s
}

// forge has the node's own files say what somebody forged.
func (k *kept) forge() {
	k.t.Helper()
	k.tenant.floor = forgedEpoch
	require.NoError(k.t, votefile.Save(filepath.Join(k.dir, votefile.Name), votefile.State{
		Site: site, Node: nodeA, Record: lease.Record{Promised: forgedEpoch}, Known: forgedEpoch,
	}))
}

func (k *kept) activeAt(epoch int64) {
	k.t.Helper()
	k.eventually("it is active by a new epoch", func() bool {
		_, role, now := k.tenant.seen()
		return k.MayRun() && role == fleet.RoleActive && now == epoch && k.Stats().Epoch == epoch
	})
}

// X20, X21: a node follows each reset once, whatever it held and knew.
func TestReset(t *testing.T) {
	t.Parallel()
	t.Run("what a holder by a forged epoch runs ends, and it holds again a TTL later", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).steady()
		k.forge()
		k.start().tell(alone)
		k.eventually("it holds by a forged epoch", func() bool { _, _, epoch := k.tenant.seen(); return k.MayRun() && epoch > forgedEpoch })
		before := guardian.SinceBoot()
		require.NoError(t, k.tellReset(1, resetEpoch, alone))
		k.eventually("what ran ends", func() bool { l, _, _ := k.tenant.seen(); return l == guardian.Lease{TTL: k.ttl} })
		k.activeAt(resetEpoch + 1)
		require.GreaterOrEqual(t, guardian.SinceBoot()-before, k.ttl)
		require.EqualValues(t, 1, k.Stats().Resets)
		require.Greater(t, k.Stats().ResetFrom, int64(forgedEpoch))
		state := k.votes()
		require.EqualValues(t, 1, state.Resets)
		require.LessOrEqual(t, state.Record.Promised, resetEpoch+1)
		require.LessOrEqual(t, state.Known, resetEpoch)
	})
	t.Run("a holder by an epoch that others can follow stops nothing", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).steady().start()
		k.tell(alone)
		k.activeAt(5)
		require.NoError(t, k.tellReset(1, resetEpoch, alone))
		k.activeAt(resetEpoch + 1)
		require.NotContains(t, k.tenant.all(), "stop")
		require.Zero(t, k.Stats().Lapses)
	})
	t.Run("twice, late or out of order, it does what the last one said once", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		k.forge()
		k.start().tell(alone)
		require.NoError(t, k.tellReset(2, 2*resetEpoch, alone))
		for _, number := range []int64{2, 1, 0, 2} {
			require.NoError(t, k.tellReset(number, resetEpoch, alone))
		}
		k.activeAt(2*resetEpoch + 1)
		require.EqualValues(t, 2, k.votes().Resets)
		resets := slices.DeleteFunc(k.tenant.all(), func(step string) bool { return len(step) < 6 || step[:6] != "reset " })
		require.Equal(t, []string{"reset 2 to 2008"}, resets)
	})
	t.Run("killed between its files, it goes on from there", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		k.forge()
		k.tenant.onReset = func() error { return errors.New("killed") }
		k.open()
		require.NoError(t, k.Begin(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		require.Error(t, k.tellReset(1, resetEpoch, alone))
		cancel()
		require.NoError(t, <-done)
		require.EqualValues(t, 1, k.votes().Resets, "the votes came first")
		require.EqualValues(t, forgedEpoch, k.tenant.floor, "the store did not")

		k.tenant.onReset = nil
		k.start() // and the region is away
		k.activeAt(resetEpoch + 1)
	})
	t.Run("a store that cannot be written is tried again", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		k.forge()
		failures := 3
		k.tenant.onReset = func() error {
			if failures--; failures >= 0 {
				return errors.New("the disk is full")
			}
			return nil
		}
		k.start()
		require.Error(t, k.tellReset(1, resetEpoch, alone))
		require.False(t, k.MayRun())
		k.activeAt(resetEpoch + 1)
	})
	t.Run("a lost vote stays lost, and a worker's store is reset too", func(t *testing.T) {
		t.Parallel()
		k := newKept(t)
		require.NoError(t, votefile.Save(filepath.Join(k.dir, votefile.Name), votefile.State{Site: site, Node: nodeA, Record: lease.Joining()}))
		k.start()
		require.NoError(t, k.tellReset(1, resetEpoch, alone, other))
		require.Equal(t, lease.Record{Promised: resetEpoch, Lost: true}, k.votes().Record, "its peer may know higher ones")

		w := newKept(t)
		w.tenant.floor = forgedEpoch
		w.start()
		require.NoError(t, w.tellReset(1, resetEpoch, worker))
		require.Contains(t, w.tenant.all(), "reset 1 to 1004")
		w.eventually("it says so", func() bool { return w.Stats().Resets == 1 })
		require.EqualValues(t, forgedEpoch, w.Stats().ResetFrom)
		w.eventually("it has no lease to lose", func() bool {
			l, _, _ := w.tenant.seen()
			return l == guardian.NoDeadline()
		})
	})
	t.Run("numbers that cannot be are refused", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		for _, bad := range [][2]int64{{-1, 5}, {1, -1}, {1, lease.Most + 1}} {
			require.Equal(t, fleet.Invalid, fleet.KindOf(k.tellReset(bad[0], bad[1], alone)))
		}
	})
}

// X20, X21: a server that has not seen the reset still tells the old numbers. Nobody takes them in.
func TestResetIgnoresStaleServers(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	k.forge()
	now, err := boottime.Now()
	require.NoError(t, err)
	cfg := lease.VoterConfig{Site: site, Name: lease.Region, Others: [2]fleet.NodeName{nodeA, nodeB}, TTL: k.ttl, Nonce: 7}
	stale := lease.Start(cfg, lease.Record{Promised: forgedEpoch, Holder: nodeA, Epoch: forgedEpoch, Counter: 1, TTL: time.Second}, now)
	fresh := lease.Start(cfg, lease.Record{Promised: resetEpoch, Epoch: resetEpoch, Counter: 1}, now)
	resets, asked := int64(0), 0
	k.region.vote = func(call lease.Call, q lease.Request) (a lease.Answer) {
		asked++
		now, _ := boottime.Now()
		of := &stale
		if resets > 0 {
			of = &fresh
		}
		*of, a, _ = of.Handle(call, q, now)
		a.Resets = resets
		return a
	}
	seen := func() int { k.region.mu.Lock(); defer k.region.mu.Unlock(); return asked }
	k.start()
	require.NoError(t, k.tellReset(1, resetEpoch, alone, other))
	before := seen()
	k.eventually("the stale server is asked, after its own vote would grant", func() bool { return seen() > before+6 })
	require.Equal(t, resetEpoch, k.votes().Record.Promised)
	require.False(t, k.MayRun())
	k.region.mu.Lock()
	resets = 1
	k.region.mu.Unlock()
	k.activeAt(resetEpoch + 1)
}
