package region

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M25, M31: a comparison that brings an older state than the stream at the same moment does not undo it.
func TestCompareBesideStream(t *testing.T) {
	t.Parallel()
	m := stand(t, 3)
	us := m.regions["us"].store
	held, err := us.GetCopy(t.Context(), fleet.CopyKey{Region: "eu", ObjectKey: poolKey(1)})
	require.NoError(t, err)
	change := func(more int64) fleet.CopyChange {
		o := held
		o.Version.Number += more
		o.Spec = json.RawMessage(`{"maxReplicas": 7}`)
		return fleet.CopyChange{Key: fleet.CopyKey{Region: "eu", ObjectKey: o.ObjectKey}, Version: o.Version, Object: &o}
	}
	older, newer := change(1), change(2)
	older.Seen = &held.Version
	claim, err := us.ClaimStream(t.Context(), "eu", "run")
	require.NoError(t, err)
	m.ask("us", "eu", false)
	at, _, err := us.BeginSync(t.Context(), fleet.SyncVisit{Peer: "eu", Run: "run"})
	require.NoError(t, err)

	holding, err := m.regions["us"].raw.Begin(t.Context())
	require.NoError(t, err)
	_, err = holding.Exec(t.Context(), `SELECT FROM copies WHERE name = 'pool-1' FOR UPDATE`)
	require.NoError(t, err)
	done := make(chan error, 2)
	apply := func(waiting int, by func() error) {
		go func() { done <- by() }()
		require.Eventually(t, func() bool {
			var n int
			err := m.regions["us"].raw.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
			return err == nil && n == waiting
		}, patience, 5*time.Millisecond)
	}
	apply(1, func() error {
		_, err := us.ApplyCopies(t.Context(), fleet.CopySet{Claim: claim, Changes: []fleet.CopyChange{newer}})
		return err
	})
	apply(2, func() error {
		_, err := us.ApplyCompared(t.Context(), fleet.ComparedSet{Place: at, Changes: []fleet.CopyChange{older}, To: at.At})
		return err
	})
	require.NoError(t, holding.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	now, err := us.GetCopy(t.Context(), fleet.CopyKey{Region: "eu", ObjectKey: poolKey(1)})
	require.NoError(t, err)
	require.Equal(t, newer.Version, now.Version)
}
