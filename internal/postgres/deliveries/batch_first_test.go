package deliveries_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

var firstToken = sha256.Sum256([]byte("first"))

func telling(r deliveries.BatchRelease) deliveries.BatchRelease {
	r.TokenHash = firstToken[:]
	return r
}

// toldRows is all that a notify changes.
func (b *bench) toldRows(id fleet.BatchID) string {
	b.T.Helper()
	return stores.Scan[string](b, `SELECT jsonb_agg(jsonb_build_array(d.name, d.revision, d.attempt, d.state, d.phase, d.deadline_at > now() + interval '59 min',
			t.node, t.role, t.state, t.tries, t.notice, t.total, p.expires_at > now() + interval '5 min', p.expires_at < now() + interval '6 min') ORDER BY d.name, t.node)::text
		|| (SELECT jsonb_agg(jsonb_build_array(f.node, f.expires_at > now() + interval '59 min'))::text FROM fetch_tokens f WHERE f.deployment_id = $1)
		FROM deliveries d JOIN delivery_nodes t ON t.delivery_id = d.id JOIN pending p ON p.deployment_id = d.id WHERE d.batch_id = $1`, id)
}

// N21, N98
func TestReleaseBatchTells(t *testing.T) {
	t.Parallel()
	// One of them was released before, under an older era.
	release := func(b *bench) deliveries.BatchRelease {
		names := b.instances(3)
		b.Put(`{"released":1}`, stores.Named("i001"))
		b.Exec("UPDATE region SET era = era + 1")
		b.fleetOf(1, names...)
		items := b.changes(names, "x")
		items[1].Revision, items[1].Spec, items[1].Generation = 1, fleet.InstanceSpec{}, 2
		return releaseOf(batchID(1), items...)
	}

	t.Run("as a notify of its own would", func(t *testing.T) {
		t.Parallel()
		apart, at := setup(t), setup(t)
		r := release(apart)
		require.Nil(t, apart.release(r).Notify)
		after := apart.tell(r.ID, nodeA)

		out := at.release(telling(release(at)))
		require.Equal(t, 3, out.Claimed)
		require.Equal(t, apart.toldRows(r.ID), at.toldRows(r.ID))
		require.Equal(t, digestOf(at.items(r.ID, nodeA)), out.Notify.Command.Digest)
		require.Equal(t, after.SealingKey, out.Notify.SealingKey)
		want, got := after.Command, out.Notify.Command
		want.Digest, want.Timestamp = got.Digest, got.Timestamp
		require.Equal(t, want, got)
		tokens, err := at.BatchTokens(t.Context(), r.ID)
		require.NoError(t, err)
		require.Equal(t, []deliveries.FetchToken{{Node: nodeA, Hash: firstToken[:]}}, tokens)
	})

	t.Run("once, and by a notify of its own when it is repeated", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := telling(release(b))
		first := b.release(r).Notify
		require.Nil(t, b.release(r).Notify)
		second := b.tell(r.ID, nodeA)
		require.Equal(t, first.Command.Digest, second.Command.Digest)
		require.NotNil(t, b.tell(r.ID, nodeA))
		require.Nil(t, b.tell(r.ID, nodeA), "three times are enough")
	})

	t.Run("nobody who cannot be told", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := telling(release(b))
		b.Exec("UPDATE nodes SET revoked_at = now() WHERE name = $1", nodeA)
		out := b.release(r)
		require.Equal(t, 3, out.Claimed)
		require.Nil(t, out.Notify)
		require.Equal(t, "persisted", stores.Scan[string](b, "SELECT DISTINCT phase FROM deliveries"))
		require.Equal(t, &fleet.BatchNotify{Wait: time.Second}, b.tell(r.ID, nodeA))
		require.Equal(t, 3, b.endBatch(r.ID).Failed)
	})
}
