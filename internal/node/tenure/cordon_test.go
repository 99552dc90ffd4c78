package tenure_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

func cordoned(m tenure.Member) tenure.Member {
	m.Cordoned = true
	return m
}

// passes waits until some TTLs have gone by.
func (k *kept) passes(ttls int) {
	k.t.Helper()
	began := guardian.SinceBoot()
	for span := k.ttl; ttls > 0; ttls-- {
		k.eventually("time passes", func() bool { return guardian.SinceBoot() > began+span })
		began += span
	}
}

// X5, X21: a cordoned node does not stand by itself, also after a restart with the region
// away, until it is let in again.
func TestCordoned(t *testing.T) {
	t.Parallel()
	t.Run("a node does not stand, and is told so by its own file", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).start()
		k.tell(cordoned(alone))
		k.passes(2)
		require.False(t, k.MayRun())
		k.end()
		k.start() // the region says nothing
		k.passes(2)
		require.False(t, k.MayRun())
		k.tell(alone)
		k.eventually("it stands again", k.MayRun)
	})
	t.Run("a holder goes on until it hands over, and does not stand three TTLs later", func(t *testing.T) { // the drain of a lone node
		t.Parallel()
		k := newKept(t).steady().start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		k.tell(cordoned(alone))
		k.passes(2)
		k.eventually("it may run still", k.MayRun)
		out, err := k.HandOver(t.Context(), fleet.HandOverCommand{Site: site, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.True(t, out.Released)
		k.passes(5)
		require.False(t, k.MayRun())
		taken, err := k.TakeOver(t.Context(), fleet.TakeOverCommand{Site: site, Forced: true, DeadlineSeconds: 30})
		require.NoError(t, err)
		require.Greater(t, taken.Epoch, out.Epoch, "a person's force is stronger")
	})
	t.Run("a holder that was down takes up what it had", func(t *testing.T) {
		t.Parallel()
		k := newKept(t).steady().start()
		k.tell(alone)
		k.eventually("it may run", k.MayRun)
		k.tell(cordoned(alone))
		k.end()
		k.passes(2)
		k.start()
		k.eventually("it may run again", k.MayRun)
	})
}
