package region

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X25
func TestPresence(t *testing.T) {
	t.Parallel()
	database, ctx := testkit.DatabaseURL(t), t.Context()
	pool, err := pgxpool.New(ctx, database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.Open(ctx, database, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	now := time.Hour
	clock := func() (lease.Instant, error) { return lease.Instant(now), nil }
	cfg := ServerConfig{Build: "old", Timing: DefaultTiming()}
	other := newPresence(store, "other", cfg, clock)
	cfg.Build = "new"
	this := newPresence(store, "this", cfg, clock)
	requireLive := func(want ...string) {
		t.Helper()
		got, err := this.live(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
	}
	requireLive("new") // whoever asks has a worker
	require.NoError(t, this.seen(ctx))
	require.NoError(t, other.seen(ctx))
	requireLive("new", "old")
	const beat = 10 * time.Second
	beats := func(n int) {
		for range n {
			now += beat
			require.NoError(t, this.seen(ctx))
			_, err := this.live(ctx)
			require.NoError(t, err)
		}
	}
	_, err = pool.Exec(ctx, "UPDATE servers SET seen_at = seen_at - interval '1 hour'") // its clock jumped
	require.NoError(t, err)
	beats(1)
	requireLive("new", "old")
	beats(1)
	now += time.Minute // the database was away, or this process paused
	requireLive("new", "old")
	beats(2)
	requireLive("new", "old")
	require.NoError(t, other.seen(ctx))
	beats(4)
	requireLive("new", "old")
	beats(1)
	requireLive("new")
	require.NoError(t, other.seen(ctx))
	requireLive("new", "old")
	require.NoError(t, other.gone(ctx))
	requireLive("new")
}
