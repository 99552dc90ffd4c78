package deliveries_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

const unknownID = fleet.DeliveryID("0123456789abcdef0123456789abcdef")

func (b *bench) dead(id fleet.DeliveryID) {
	b.T.Helper()
	_, err := b.Fetchable(b.Ctx(), string(id))
	stores.Refused(b.T, fleet.NotFound, err)
}

// expire moves the pending row of a delivery into the past.
func (b *bench) expire(id fleet.DeliveryID) {
	b.T.Helper()
	b.Exec("UPDATE pending SET expires_at = now() - interval '1 s' WHERE deployment_id = $1", id)
}

// N25, N26, N27, N28, N29, N91, N92
func TestFetchable(t *testing.T) {
	t.Parallel()

	t.Run("gives a live delivery's content, and its tokens by node and as hashes only", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`, stores.Running("press"))
		d := b.MustClaim(run1, "1")
		p := b.Notify(d.ID, nodeA, "secret-a")
		b.Notify(d.ID, nodeB, "secret-b")
		require.Equal(t, string(d.ID), p.Command.DeploymentID)
		require.Equal(t, d.Revision, p.Command.Revision)
		require.Equal(t, "ann", p.Command.DeployedBy)
		require.Empty(t, p.Command.FetchToken, "sealing it is not the store's")

		got, err := b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err)
		require.Equal(t, stores.JSONOf(`{"a":1}`), got.Content)
		require.JSONEq(t, `{"command":["press"]}`, string(got.Run))
		one, two := sha256.Sum256([]byte("secret-a")), sha256.Sum256([]byte("secret-b"))
		require.ElementsMatch(t, []deliveries.FetchToken{{Node: nodeA, Hash: one[:]}, {Node: nodeB, Hash: two[:]}}, got.Tokens)
	})

	t.Run("knows no unknown id", func(t *testing.T) {
		t.Parallel()
		setup(t).dead(unknownID)
	})

	t.Run("knows no expired one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "secret")
		b.expire(d.ID)
		b.dead(d.ID)
	})

	t.Run("knows no superseded one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "secret")
		b.Put(`{"a":2}`)
		newer := b.MustClaim(run1, "2")
		b.dead(d.ID)
		_, err := b.Fetchable(t.Context(), string(newer.ID))
		require.NoError(t, err)
		w, err := b.Prepare(t.Context(), fleet.Prepare{Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, TTL: minute})
		require.NoError(t, err)
		require.Nil(t, w.Prepared, "nobody is told of it any more")
	})

	t.Run("knows no closed one, but one that only the active has recorded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeB, "secret")
		b.MustRecord(d, nodeA)
		_, err := b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err, "the standby still has to fetch")
		b.MustRecord(d, nodeB)
		b.MustEnd(d, fleet.DeliverySucceeded)
		b.dead(d.ID)
	})

	t.Run("gives no token that has expired", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "old")
		b.Exec("UPDATE fetch_tokens SET expires_at = now() - interval '1 s'")
		b.Notify(d.ID, nodeA, "new")
		got, err := b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err)
		sum := sha256.Sum256([]byte("new"))
		require.Equal(t, []deliveries.FetchToken{{Node: nodeA, Hash: sum[:]}}, got.Tokens)
	})
}

// N84
func TestSnapshotTicket(t *testing.T) {
	t.Parallel()

	ticket := func(b *bench, id fleet.DeliveryID) (*fleet.Prepared, error) {
		sum := sha256.Sum256([]byte(id))
		w, err := b.Prepare(b.Ctx(), fleet.Prepare{Subject: stores.SubjectOf(run1), Ticket: id, Node: nodeB, TTL: minute, TokenHash: sum[:]})
		return w.Prepared, err
	}

	t.Run("gives what is deployed, and closes nothing that is open", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		d := b.MustClaim(run1, "2")
		p, err := ticket(b, unknownID)
		require.NoError(t, err)
		require.EqualValues(t, 1, p.Command.Revision.Version.Revision)
		require.Equal(t, fleet.RoleStandby, p.Command.Role)
		got, err := b.Fetchable(t.Context(), string(unknownID))
		require.NoError(t, err)
		require.Equal(t, stores.JSONOf(`{"a":1}`).Hash, got.Content.Hash)
		require.Len(t, got.Tokens, 1)
		_, err = b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err)
	})

	t.Run("is not made where nothing is deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		p, err := ticket(b, unknownID)
		require.NoError(t, err)
		require.Nil(t, p)
		b.dead(unknownID)
	})

	t.Run("ends", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		_, err := ticket(b, unknownID)
		require.NoError(t, err)
		b.Exec("UPDATE snapshot_tickets SET expires_at = now() - interval '1 s'")
		b.dead(unknownID)
	})
}

// N20, N74, N90
func TestPendingExpiry(t *testing.T) {
	t.Parallel()

	expiry := func(b *bench) time.Time {
		return stores.Scan[time.Time](b, "SELECT expires_at FROM pending")
	}

	t.Run("moves forward with progress, never back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		first := expiry(b)
		require.NoError(t, b.Progress(t.Context(), nodeA, string(d.ID), 10, 100, 10*minute))
		second := expiry(b)
		require.Greater(t, second.Sub(first), 4*minute)
		require.NoError(t, b.Progress(t.Context(), nodeA, string(d.ID), 5, 100, time.Second))
		require.Equal(t, second, expiry(b))
		require.EqualValues(t, 10, b.Delivery(d.ID).Targets[0].Fetched, "a late report takes nothing back")
	})

	t.Run("stops at the delivery's total deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		require.NoError(t, b.Progress(t.Context(), nodeA, string(d.ID), 1, 100, 100*time.Hour))
		require.True(t, expiry(b).Equal(b.Delivery(d.ID).Deadline))
	})

	t.Run("moves with a new notify too", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Exec("UPDATE pending SET expires_at = now() + interval '1 s'")
		b.Notify(d.ID, nodeB, "late")
		require.Greater(t, time.Until(expiry(b)), 4*minute)
	})

	t.Run("comes back with a new notify, when it was purged meanwhile", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "early")
		before, err := b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err)
		b.expire(d.ID)
		some, err := b.Purge(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 1, some.Pending)
		require.NoError(t, b.Progress(t.Context(), nodeA, string(d.ID), 1, 100, minute))
		b.dead(d.ID)
		b.Notify(d.ID, nodeA, "late")
		after, err := b.Fetchable(t.Context(), string(d.ID))
		require.NoError(t, err)
		require.Equal(t, before.Content, after.Content)
		require.Greater(t, time.Until(expiry(b)), 4*minute)
		require.True(t, stores.Scan[bool](b, "SELECT p.revision_hash = r.body_hash FROM pending p JOIN revisions r USING (site, name, revision)"))
	})

	t.Run("of an ended delivery stays ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.Deploy("1")
		require.NoError(t, b.Progress(t.Context(), nodeB, string(d.ID), 1, 1, minute))
		b.dead(d.ID)
	})
}

// N14, N15, N74
func TestPurge(t *testing.T) {
	t.Parallel()

	t.Run("takes what has expired and keeps delivery, hash and revision", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "secret")
		none, err := b.Purge(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, postgres.Purged{}, none)
		b.expire(d.ID)
		b.Exec("UPDATE fetch_tokens SET expires_at = now() - interval '1 s'")
		some, err := b.Purge(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, postgres.Purged{Pending: 1, Tokens: 1}, some)
		kept := b.Delivery(d.ID)
		require.Equal(t, fleet.DeliveryOpen, kept.State)
		require.Equal(t, stores.JSONOf(`{"a":1}`).Hash, kept.Revision.Content.Hash)
		require.Equal(t, d.Revision.Version, kept.Revision.Version)
	})

	t.Run("takes at most so many rows of each kind, the oldest first", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Exec(`INSERT INTO snapshot_tickets SELECT md5(i::text), 'plant', 'press', 'plant-b', 1, now() - make_interval(secs => i)
			FROM generate_series(1, 25) i`)
		b.Exec(`INSERT INTO fetch_tokens SELECT $1, 'plant-b', sha256(i::text::bytea), now() - make_interval(secs => i)
			FROM generate_series(1, 25) i`, d.ID)
		b.Exec(`INSERT INTO idempotency SELECT 'ann', i::text, 'h', '', now() - interval '25 hours' FROM generate_series(1, 25) i`)
		for _, want := range []int64{10, 10, 5, 0} {
			got, err := b.Purge(t.Context(), 10)
			require.NoError(t, err)
			require.Equal(t, postgres.Purged{Tickets: want, Tokens: want, Idempotency: want}, got)
		}
	})

	t.Run("takes each row once when two purge at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const rows = 40
		for i := range rows {
			name := "n" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			b.Put(`{"a":1}`, stores.Named(name))
			of := stores.SubjectOf(run1)
			of.Instance = fleet.InstanceName(name)
			_, err := b.Observe(t.Context(), of)
			require.NoError(t, err)
			c := stores.ClaimOf(run1, name)
			c.Subject = of
			_, err = b.Claim(t.Context(), c)
			require.NoError(t, err)
		}
		b.Exec("UPDATE pending SET expires_at = now() - interval '1 s'")
		counts := make(chan int64, 8)
		require.NoError(t, stores.AtOnce(8, func(int) error {
			p, err := b.Purge(t.Context(), 7)
			counts <- p.Pending
			return err
		}))
		var total int64
		for range cap(counts) {
			n := <-counts
			require.LessOrEqual(t, n, int64(7))
			total += n
		}
		require.EqualValues(t, rows-total, stores.Scan[int64](b, "SELECT count(*) FROM pending"))
	})
}
