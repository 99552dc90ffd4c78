package postgres_test

import (
	"bytes"
	"crypto/ed25519"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X21, X23: a region has one signing key, whichever server asks first; its nodes are told of the next
// before it is used, and of the old one as long as its commands are good.
func TestSigningKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := store.Open(t.Context(), b.URL, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(other.Close)
	public := func(key ed25519.PrivateKey) []byte { return key.Public().(ed25519.PublicKey) }
	uses := func() []byte {
		t.Helper()
		mine, err := b.SigningKey(t.Context())
		require.NoError(t, err)
		its, err := other.SigningKey(t.Context())
		require.NoError(t, err)
		require.True(t, mine.Equal(its), "servers sign alike")
		return public(mine)
	}
	told := func() [][]byte {
		t.Helper()
		w, err := b.HeldBy(t.Context(), nodes.NodeReport{Node: nodeA})
		require.NoError(t, err)
		return w.CommandKeys
	}
	var first sync.WaitGroup
	for range 4 {
		for _, s := range []*store.Store{b.Store, other} {
			first.Go(func() { _, _ = s.SigningKey(t.Context()) })
		}
	}
	first.Wait()
	one := uses()
	require.Equal(t, [][]byte{one}, told())

	at, err := b.RotateSigningKey(t.Context(), keyring.Rotate{After: time.Hour, Overlap: time.Hour})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Hour), at, 10*time.Minute)
	require.Equal(t, one, uses(), "its time has not come")
	both := told()
	require.Len(t, both, 2, "nodes know it before it is used")
	_, err = b.RotateSigningKey(t.Context(), keyring.Rotate{After: time.Hour})
	require.Equal(t, fleet.Conflict, fleet.KindOf(err))
	_, err = b.Raw.Exec(t.Context(), `UPDATE signing_keys SET use_at = now(), retired_at = retired_at - interval '1 hour'`)
	require.NoError(t, err)
	two := uses()
	require.Equal(t, both[0], two)
	require.Equal(t, both, told(), "commands of the old one are under way")
	_, err = b.Raw.Exec(t.Context(), `UPDATE signing_keys SET retired_at = now() WHERE number = 1`)
	require.NoError(t, err)
	require.Equal(t, [][]byte{two}, told())

	_, err = other.RotateSigningKey(t.Context(), keyring.Rotate{After: time.Hour})
	require.NoError(t, err)
	_, err = other.RotateSigningKey(t.Context(), keyring.Rotate{})
	require.NoError(t, err)
	three := uses()
	require.Equal(t, [][]byte{three}, told(), "those that may be stolen are void at once")
	require.False(t, bytes.Equal(two, three))
	var left int
	require.NoError(t, b.Raw.QueryRow(t.Context(), `SELECT count(*) FROM signing_keys WHERE retired_at IS NULL`).Scan(&left))
	require.Equal(t, 1, left)
}
