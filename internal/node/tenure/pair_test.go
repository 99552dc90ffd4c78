package tenure_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// X21, N60 to N64: what a pair does with real sockets, guardians and processes. That no two
// nodes run at once is asked at the end of each.
func TestPair(t *testing.T) {
	t.Parallel()
	t.Run("starts as it was declared, and a holder that is gone is followed", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		p.runsOn(p.a, 0)
		p.eventually("the other is told who is active", func() bool {
			meta, err := p.b.agent.Store.Meta(t.Context())
			return err == nil && meta.Holder == nodeA && meta.Epoch > 1
		})
		require.False(t, p.b.agent.Leases.MayRun())
		p.a.stop()
		killed := guardian.SinceBoot()
		l := p.runsOn(p.b, killed)
		t.Logf("it ran again %s after the agent died", l.at-killed)
		require.Less(t, l.at-killed, 4*ttl)
		p.a.start(false) // from its own files
		p.eventually("the former holder learns of it", func() bool {
			meta, err := p.a.agent.Store.Meta(t.Context())
			return err == nil && meta.Role == fleet.RoleStandby && meta.Holder == nodeB
		})
	})
	t.Run("goes on without the region, also after both restarted", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		first := p.runsOn(p.a, 0)
		p.a.region.set(true)
		p.b.region.set(true)
		p.runsOn(p.a, first.at+2*ttl)
		p.a.stop()
		p.b.stop()
		restarted := guardian.SinceBoot()
		p.b.start(false)
		p.a.start(false)
		p.eventually("it runs on either", func() bool {
			all := p.lines()
			return all[len(all)-1].at > restarted+2*ttl
		})
	})
	t.Run("an agent's restart stops nothing and changes no epoch", func(t *testing.T) {
		t.Parallel()
		p := setupFor(t, 3*ttl) // a busy machine restarts an agent within that
		p.start()
		first := p.runsOn(p.a, guardian.SinceBoot()+p.ttl)
		p.a.stop()
		p.a.start(false)
		again := p.runsOn(p.a, guardian.SinceBoot()+p.ttl)
		require.Equal(t, first.epoch, again.epoch)
	})
	t.Run("a holder that is cut off stops in time, and the other goes on", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		p.runsOn(p.a, 0)
		for _, w := range []*wire{p.a.region, p.a.peer, p.b.peer} {
			w.set(true)
		}
		cut := guardian.SinceBoot()
		l := p.runsOn(p.b, cut)
		t.Logf("it ran again %s after the cut", l.at-cut)
		p.eventually("the other does not hold", func() bool { return !p.a.agent.Leases.MayRun() })
		require.EqualValues(t, 0, p.a.agent.Figures()["lease_held"])
		require.Positive(t, p.a.agent.Figures()["lease_lapses"])
		require.EqualValues(t, 1, p.b.agent.Figures()["lease_held"])
		require.EqualValues(t, l.epoch, p.b.agent.Figures()["lease_epoch"])
		for _, w := range []*wire{p.a.region, p.a.peer, p.b.peer} {
			w.set(false)
		}
		p.eventually("it learns of it", func() bool {
			meta, err := p.a.agent.Store.Meta(t.Context())
			return err == nil && meta.Holder == nodeB
		})
	})
	t.Run("hands over without waiting for a timeout", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		p.runsOn(p.a, 0)
		began := guardian.SinceBoot()
		out, err := p.a.agent.Leases.HandOver(t.Context(), fleet.HandOverCommand{Site: site, To: nodeB, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		require.False(t, p.a.agent.Leases.MayRun())
		again, err := p.a.agent.Leases.HandOver(t.Context(), fleet.HandOverCommand{Site: site, To: nodeB, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, again.Released)
		taken, err := p.b.agent.Leases.TakeOver(t.Context(), fleet.TakeOverCommand{Site: site, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.Greater(t, taken.Epoch, out.Epoch)
		took := guardian.SinceBoot() - began
		l := p.runsOn(p.b, began)
		t.Logf("handed over in %s, ran again after %s", took, l.at-began)
		require.Less(t, took, ttl-interval)
	})
	t.Run("a lease that is given back is taken by the other with nobody asking", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		held := p.runsOn(p.a, guardian.SinceBoot()+ttl) // the region's vote has been there for a TTL
		out, err := p.a.agent.Leases.HandOver(t.Context(), fleet.HandOverCommand{Site: site, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		p.a.stop()
		given := guardian.SinceBoot()
		l := p.runsOn(p.b, given)
		require.Positive(t, p.region.released(), "the release was heard")
		require.Greater(t, l.epoch, held.epoch)
		t.Logf("it ran again %s after it was given back", l.at-given)
	})
	t.Run("a holder that hears nobody gives back what ran out, and the other goes on", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		held := p.runsOn(p.a, guardian.SinceBoot()+ttl)
		p.a.region.silence()
		p.b.peer.silence()
		p.a.peer.set(true)
		cut := guardian.SinceBoot()
		l := p.runsOn(p.b, cut)
		t.Logf("it ran again %s after the cut", l.at-cut)
		require.Greater(t, l.epoch, held.epoch)
		require.Positive(t, p.region.released(), "nobody had to wait until its renewals had not come for a TTL")
	})
	t.Run("a forced take-over waits until the holder ran out", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		p.start()
		p.runsOn(p.a, 0)
		began := guardian.SinceBoot()
		p.region.aim(nodeB)
		taken, err := p.b.agent.Leases.TakeOver(t.Context(), fleet.TakeOverCommand{Site: site, Forced: true, DeadlineSeconds: 60})
		require.NoError(t, err)
		require.Positive(t, taken.Epoch)
		p.runsOn(p.b, began)
	})
}

// X21: the setting of a site, and what it gives up.
func TestIsolationRun(t *testing.T) {
	t.Parallel()
	runs := func(s *tenure.Site) { s.OnIsolation = lease.IsolationRun }
	t.Run("a holder that is cut off runs on", func(t *testing.T) {
		t.Parallel()
		p := setup(t, runs)
		p.start()
		p.runsOn(p.a, 0)
		p.b.stop() // so that nobody else takes it
		p.a.region.set(true)
		cut := guardian.SinceBoot()
		p.runsOn(p.a, cut+2*ttl)
		require.True(t, p.a.agent.Leases.MayRun())
	})
	t.Run("one whose key was taken back is not cut off: it stops in time, and the other goes on", func(t *testing.T) {
		t.Parallel()
		p := setup(t, runs)
		p.start()
		p.runsOn(p.a, guardian.SinceBoot()+ttl) // the region's vote has been there for a TTL
		revoked := p.revoke(p.a)
		l := p.runsOn(p.b, revoked)
		t.Logf("it ran again %s after the key was taken back", l.at-revoked)
		require.Less(t, l.at-revoked, 3*ttl)
		require.False(t, p.a.agent.Leases.MayRun())
		p.runsOn(p.b, l.at+2*ttl) // all the while it would run again, if silence were all that it heard
		require.False(t, p.a.agent.Leases.MayRun())
		for _, line := range p.lines() {
			require.False(t, line.node == nodeA && line.at > l.at, "two ran at once")
		}
		p.eventually("its own vote tells it who is active", func() bool {
			meta, err := p.a.agent.Store.Meta(t.Context())
			return err == nil && meta.Holder == nodeB
		})
	})
	t.Run("one whose key was taken back stops, also with nobody to follow it", func(t *testing.T) {
		t.Parallel()
		p := setup(t, runs)
		p.start()
		p.runsOn(p.a, guardian.SinceBoot()+ttl)
		p.b.stop()
		p.region.revoke(nodeA)
		revoked := guardian.SinceBoot()
		p.eventually("it stopped", func() bool { return !p.a.agent.Leases.MayRun() && p.a.agent.Figures()["lease_lapses"] > 0 })
		require.Less(t, guardian.SinceBoot()-revoked, 2*ttl)
	})
}
