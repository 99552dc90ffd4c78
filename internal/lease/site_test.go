package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// X21: an isolated node ends as soon as it hears that another has held since.
func TestIsolatedRunEnds(t *testing.T) {
	t.Parallel()
	m := &model{rules: rules{ttl: 3, run: true}}
	w := m.begin()
	require.True(t, m.calm(w, 2))
	for range 3 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.Equal(t, Holding, m.cands.get(w.cands[0]).Role())
	w.links = 0b110 // the links of a
	for range 12 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.True(t, w.guards[0].unbounded)
	require.True(t, w.active(1), "peer and region made another active")
	w.links = 0
	m.advance(&w, -1)
	m.settleAll(&w)
	require.False(t, w.active(0))
	require.True(t, w.active(1))
	require.Zero(t, m.claims.get(w.claims[0]), "it is no longer the last holder")
}

// X21: one that runs on because it was isolated ends with the first refusal, and does not begin
// again between two of them.
func TestRevokedRunEnds(t *testing.T) {
	t.Parallel()
	m := &model{rules: rules{ttl: 3, run: true}}
	w := m.begin()
	require.True(t, m.calm(w, 2))
	for range 3 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	w.links = 0b110 // the links of a
	for range 12 {
		m.settleAll(&w)
		m.advance(&w, -1)
	}
	require.True(t, w.guards[0].unbounded)
	require.True(t, w.active(1), "peer and region made another active")
	w.links, w.void = 0, true
	m.advance(&w, -1)
	m.settleAll(&w)
	require.False(t, w.active(0))
	for range 12 {
		m.advance(&w, -1)
		m.settleAll(&w)
		require.False(t, w.active(0))
	}
	require.True(t, w.active(1))
	require.Zero(t, m.claims.get(w.claims[0]), "its own vote told it that another holds")
}

// settleAll lets everything that is under way arrive.
func (m *model) settleAll(w *world) {
	for w.sent > 0 {
		id := w.net[0]
		m.take(w, id)
		m.call(w, m.packets.get(id))
	}
}

// N60, N64: the active dies, the standby takes over with peer away and region there, in about
// a TTL; and with the region away a pair goes on.
func TestFailOver(t *testing.T) {
	t.Parallel()
	start := func() (*model, world) {
		m := &model{rules: rules{ttl: 3}}
		w := m.begin()
		for range 4 {
			m.settleAll(&w)
			m.advance(&w, -1)
		}
		m.settleAll(&w)
		require.True(t, w.active(0))
		return m, w
	}
	t.Run("the active dies", func(t *testing.T) {
		m, w := start()
		died := w.now
		for !w.active(1) {
			w.paused[0] = true
			w.now += beat
			m.tick(&w)
			for w.sent > 0 {
				id := w.net[0]
				m.take(&w, id)
				if p := m.packets.get(id); p.to != 0 {
					m.call(&w, p)
				}
			}
			m.check(w)
			require.Less(t, w.now.Sub(died), 2*m.span().Sub(0), "two TTLs are enough")
		}
		require.Empty(t, m.broken)
		require.Greater(t, w.guards[1].epoch, w.guards[0].epoch)
	})
	t.Run("the active hears nobody, and its renewals arrive", func(t *testing.T) {
		m, w := start()
		w.deaf[0] = true
		cut := w.now
		for !w.active(1) {
			m.advance(&w, -1)
			if w.ends[0] {
				m.ended(&w, 0)
			}
			m.settleAll(&w)
			m.check(w)
			require.LessOrEqual(t, w.now.Sub(cut), (m.span() + beat).Sub(0), "it gives back what it could not renew")
		}
		require.Empty(t, m.broken)
		require.Greater(t, w.guards[1].epoch, int64(1))
	})
	t.Run("the region is away", func(t *testing.T) {
		m, w := start()
		epoch := w.guards[0].epoch
		w.links = 0b011 // those of the region
		for range 20 {
			m.advance(&w, -1)
			m.settleAll(&w)
			m.check(w)
			require.True(t, w.active(0))
		}
		require.Equal(t, epoch, w.guards[0].epoch)
	})
}
