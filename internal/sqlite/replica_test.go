package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S19, X26: what is known of replicas outlives the process, and the number of their set never falls.
func TestReplicas(t *testing.T) {
	t.Parallel()
	const one, two = fleet.ReplicaID("aaaaaaaaaaaa"), fleet.ReplicaID("bbbbbbbbbbbb")
	s, path := setup(t)
	at, err := s.ReplicaSet(t.Context())
	require.NoError(t, err)
	require.Zero(t, at)
	require.NoError(t, s.PutReplica(t.Context(), Replica{one, []byte("{}")}))
	require.NoError(t, s.SetReplicaLogOffset(t.Context(), one, 42))
	newest := fleet.SetVersion{Era: 2, Number: 3}
	require.NoError(t, s.TakeReplicaSet(t.Context(), newest, []Replica{{one, []byte("1")}, {two, []byte("2")}}))
	for _, older := range []fleet.SetVersion{{Era: 2, Number: 2}, {Era: 1, Number: 9}} {
		require.NoError(t, s.TakeReplicaSet(t.Context(), older, nil))
	}
	s = reopen(t, s, path)
	at, err = s.ReplicaSet(t.Context())
	require.NoError(t, err)
	require.Equal(t, newest, at)
	all, err := s.Replicas(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Replica{{one, []byte("1")}, {two, []byte("2")}}, all)
	offset, err := s.ReplicaLogOffset(t.Context(), one)
	require.NoError(t, err)
	require.Equal(t, int64(42), offset, "a change keeps how far output was sent")
	require.NoError(t, s.DropReplica(t.Context(), one))
	offset, err = s.ReplicaLogOffset(t.Context(), one)
	require.NoError(t, err)
	require.Zero(t, offset)
}
