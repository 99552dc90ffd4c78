package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
)

// join makes regions members of one mesh, as their databases know it.
func (m *mesh) join() {
	for self, r := range m.regions {
		for peer := range m.regions {
			r.exec(m.t, `INSERT INTO peers (name, self, public_key, number, admitted_by, admission, address, address_number, address_signature)
				VALUES ($1, $2, sha256($1::text::bytea), 1, $1, decode(repeat('00', 64), 'hex'), '', 1, decode(repeat('00', 64), 'hex'))`, peer, peer == self)
		}
	}
}

// X1, M34: a region that was restored writes nothing under a policy, and deletes nothing, until it has compared with all enabled
// peers, or an operator accepts the risk. What no policy governs is not held up.
func TestRestoredRegion(t *testing.T) {
	t.Parallel()
	restored := func(t *testing.T) (*mesh, *sharing) {
		t.Helper()
		m := stand(t, 3)
		m.join()
		eu := m.regions["eu"]
		_, err := postgres.RaiseEra(t.Context(), eu.url, "eu")
		require.NoError(t, err)
		eu.store.Close()
		eu.store, err = store.Open(t.Context(), eu.url, "eu")
		require.NoError(t, err)
		t.Cleanup(eu.store.Close)
		left, err := eu.store.NotCompared(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"us"}, left)
		return m, eu
	}
	write := func(eu *sharing, name, project string) error {
		_, err := eu.store.Declare(t.Context(), postgres.Write{
			Request: postgres.Request{Actor: "ann", Project: fleet.ProjectName(project)}, Key: fleet.ObjectKey{Kind: fleet.KindPool, Name: name},
		}, fleet.PoolSpec{})
		return err
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
		require.ErrorContains(t, err, "first compares with region us")
	}
	t.Run("compares first", func(t *testing.T) {
		t.Parallel()
		m, eu := restored(t)
		refused(t, write(eu, "pool-1", "one"))
		refused(t, write(eu, "new", "one"))
		_, err := eu.store.DeleteDeclared(t.Context(), postgres.Write{Request: postgres.Request{Actor: "ann"}, Key: poolKey(1)})
		refused(t, err)
		require.NoError(t, write(eu, "free", "default"))
		require.NoError(t, eu.store.WantSyncs(t.Context(), 0))
		eu.exec(t, `UPDATE region_syncs SET wanted_at = now() - interval '1 hour'`) // nobody follows us here
		m.compare(questions{mesh: m, self: "eu"}, "us")
		require.NoError(t, write(eu, "pool-1", "one"))
		left, err := eu.store.NotCompared(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
	})
	t.Run("accepts the risk", func(t *testing.T) {
		t.Parallel()
		_, eu := restored(t)
		require.Equal(t, fleet.Invalid, fleet.KindOf(eu.store.ResumeWrites(t.Context(), "us")))
		refused(t, write(eu, "new", "one"))
		require.NoError(t, eu.store.ResumeWrites(t.Context(), "eu"))
		require.NoError(t, write(eu, "new", "one"))
	})
	t.Run("does not wait for a disabled peer", func(t *testing.T) {
		t.Parallel()
		_, eu := restored(t)
		require.NoError(t, eu.store.DisablePeer(t.Context(), "us"))
		require.NoError(t, write(eu, "new", "one"))
	})
}
