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
	requireLive()
	require.NoError(t, this.seen(ctx))
	requireLive("new")
	require.NoError(t, other.seen(ctx))
	requireLive("new", "old")
	pool, err := pgxpool.New(ctx, database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(ctx, "UPDATE servers SET seen_at = seen_at - interval '10 min' WHERE id = 'other'")
	require.NoError(t, err)
	requireLive("new", "old") // it fell silent, and this one cannot tell yet
	for range 3 {
		now += this.silence.Every
		require.NoError(t, this.seen(ctx))
	}
	requireLive("new")
	now += time.Minute // the database was away, or this process paused
	requireLive("new", "old")
	require.NoError(t, this.seen(ctx))
	requireLive("new", "old")
	require.NoError(t, other.gone(ctx))
	requireLive("new")
}
