package region

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// X25
func TestPresence(t *testing.T) {
	t.Parallel()
	database, ctx := testkit.DatabaseURL(t), t.Context()
	pool, err := pgxpool.New(ctx, database)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := store.Open(ctx, database, testkit.Region)
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
	lately, err := this.lately(ctx)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"new", "old"}, lately, "it may be about to come back")
	beats(4)
	lately, err = this.lately(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"new"}, lately)
}

// X26: a build of which each server falls soon after its start is there whenever somebody looks,
// and yet does not stay.
func TestFallingBuild(t *testing.T) {
	t.Parallel()
	const beat = 10 * time.Second
	for name, c := range map[string]struct {
		fresh, words int // a server starts at every so many looks, and speaks in so many
		rest         int // from which look on none starts any more, but one stays
		silent       bool
		want         bool
	}{
		"each falls at once":                                 {fresh: 1, words: 1, want: true},
		"each speaks twice":                                  {fresh: 2, words: 2, want: true},
		"each lives for longer than half the limit":          {fresh: 3, words: 3},
		"one stays after many fell":                          {fresh: 1, words: 1, rest: 10},
		"one stays, and another fell while it was young":     {fresh: 1, words: 1, rest: 1},
		"all are there, and the database was away for a day": {fresh: 1, words: 100, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			store, err := store.Open(ctx, testkit.DatabaseURL(t), testkit.Region)
			require.NoError(t, err)
			t.Cleanup(store.Close)
			now := time.Hour
			this := newPresence(store, "this", ServerConfig{Build: "old", Timing: DefaultTiming()}, func() (lease.Instant, error) { return lease.Instant(now), nil })
			began := map[string]int{}
			for look := range 20 {
				if now += beat; c.silent && look == 10 {
					now += 24 * time.Hour
				}
				if look%c.fresh == 0 && (c.rest == 0 || look <= c.rest) {
					began["new-"+strconv.Itoa(look)] = look
				}
				for id, at := range began {
					if look-at < c.words || c.rest > 0 && at == c.rest {
						require.NoError(t, store.ServerSeen(ctx, id, "new"))
					}
				}
				live, err := this.live(ctx)
				require.NoError(t, err)
				require.Contains(t, live, "new")
			}
			require.Equal(t, c.want, this.falls("new"))
			require.False(t, this.falls("old"))
			alone, err := this.alone(ctx)
			require.NoError(t, err)
			require.True(t, alone, "the others are of another build")
		})
	}
}
