package region

import (
	"context"
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

// M46: the copies of a peer go only when an operator asks for it, of a disabled one, and come back when it is enabled again.
func TestDropPeer(t *testing.T) {
	t.Parallel()
	m := stand(t, 30)
	m.join()
	us := m.regions["us"]
	err := us.store.DropPeer(t.Context(), "eu")
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "%v", err)
	require.Equal(t, fleet.NotFound, fleet.KindOf(us.store.DropPeer(t.Context(), "nobody")))
	old, err := us.store.ClaimStream(t.Context(), "eu", "old")
	require.NoError(t, err)
	m.remove("eu", poolKey(7))
	m.ask("us", "eu", false)
	m.compare(questions{mesh: m, self: "us"}, "eu") // which leaves a marker
	require.NoError(t, us.store.DisablePeer(t.Context(), "eu"))
	require.Equal(t, fleet.Conflict, fleet.KindOf(us.store.RemovePeer(t.Context(), "eu")))
	require.NoError(t, us.store.DropPeer(t.Context(), "eu"))
	require.Empty(t, m.held("us"))
	var left int
	require.NoError(t, us.raw.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM copy_markers) + (SELECT count(*) FROM region_syncs)`).Scan(&left))
	require.Zero(t, left)
	_, err = us.store.ApplyCopies(t.Context(), fleet.CopySet{Claim: old})
	require.Equal(t, fleet.Stale, fleet.KindOf(err), "a server that was paused meanwhile writes nothing")
	require.NoError(t, us.store.EnablePeer(t.Context(), "eu"))
	ctx, cancel := context.WithCancel(t.Context())
	wait := m.follow(ctx)
	m.settle("enabled again")
	cancel()
	wait()
}
