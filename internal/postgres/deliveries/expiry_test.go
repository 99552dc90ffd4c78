package deliveries_test

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// lasts compares the rest of a row's life, which is one number of seconds, with what it should be.
func (b *bench) lasts(want time.Duration, sql string, args ...any) {
	b.T.Helper()
	rest := time.Duration(stores.Scan[float64](b, sql, args...) * float64(time.Second))
	require.InDelta(b.T, want.Seconds(), rest.Seconds(), 30, sql)
}

const (
	pendingLeft = "SELECT extract(epoch FROM expires_at - now())::float8 FROM pending WHERE deployment_id = $1"
	ticketLeft  = "SELECT extract(epoch FROM expires_at - now())::float8 FROM snapshot_tickets WHERE id = $1"
	tokenLeft   = "SELECT extract(epoch FROM max(expires_at) - now())::float8 FROM fetch_tokens WHERE deployment_id = $1"
)

// N20, N24, N66, N68, N84, N90: what opens a config lives as long as it was asked for, and no
// longer. A delivery's token lives until the delivery's deadline, for its pending row moves on.
func TestTokensAndTicketsAreShort(t *testing.T) {
	t.Parallel()

	t.Run("of a delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.lasts(5*minute, pendingLeft, d.ID)
		b.Notify(d.ID, nodeA, "secret")
		b.lasts(5*minute, pendingLeft, d.ID)
		b.lasts(time.Hour, tokenLeft, d.ID)
	})

	t.Run("of a snapshot ticket", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		sum := sha256.Sum256([]byte("ticket"))
		for range 2 { // made once more, it is as short
			w, err := b.Prepare(b.Ctx(), fleet.Prepare{Subject: stores.SubjectOf(run1), Ticket: unknownID, Node: nodeB, TTL: 2 * minute, TokenHash: sum[:]})
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(2*minute), w.Prepared.Deadline, minute/2)
			b.lasts(2*minute, ticketLeft, unknownID)
			b.lasts(2*minute, tokenLeft, unknownID)
			sum[0]++
		}
	})

	t.Run("of the tickets of a comparison", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		_, pass := b.BeginPass(nodeB, "1", "one")
		sum := sha256.Sum256([]byte("ticket"))
		made, err := b.MakeTickets(t.Context(), reconcile.TicketRequest{
			Pass: pass, Names: []fleet.InstanceName{press}, Life: 2 * minute, Tokens: [][]byte{sum[:]},
		})
		require.NoError(t, err)
		require.Len(t, made.Commands, 1)
		b.lasts(2*minute, ticketLeft, made.Commands[0].DeploymentID)
		b.lasts(2*minute, tokenLeft, made.Commands[0].DeploymentID)
	})

	t.Run("of a comparison, moved by its use, and never more than an hour after its start", func(t *testing.T) {
		t.Parallel()
		const left = "SELECT extract(epoch FROM expires_at - now())::float8 FROM reconciles WHERE id = $1"
		b := setup(t)
		sum := sha256.Sum256([]byte("one"))
		_, err := b.BeginReconcile(b.Ctx(), fleet.ReconcileStart{
			ID: stores.IDOf("1"), Node: nodeB, Reason: "request", Run: run1, TokenHash: sum[:], TokenLife: 2 * minute,
		})
		require.NoError(t, err)
		b.lasts(2*minute, left, stores.IDOf("1"))
		for _, use := range []struct{ life, want time.Duration }{{5 * minute, 5 * minute}, {minute, 5 * minute}, {100 * time.Hour, time.Hour}} {
			_, err = b.ReconcileOf(b.Ctx(), sum[:], use.life)
			require.NoError(t, err)
			b.lasts(use.want, left, stores.IDOf("1"))
		}
	})

	t.Run("of a batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(2)
		b.fleetOf(1, names...)
		b.release(telling(releaseOf(batchID(1), b.changes(names, "x")...)))
		b.lasts(time.Hour, tokenLeft, batchID(1))
		b.Exec("DELETE FROM fetch_tokens")
		b.tell(batchID(1), nodeA)
		b.lasts(time.Hour, tokenLeft, batchID(1))
		for _, edge := range []string{"min", "max"} { // a tenth is spared
			b.lasts(5*minute+minute/2, "SELECT extract(epoch FROM "+edge+"(expires_at) - now())::float8 FROM pending WHERE $1::text <> ''", batchID(1))
		}
	})

	t.Run("of a join token", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		sum := sha256.Sum256([]byte("join"))
		made, err := b.AddJoinToken(b.Ctx(), keyring.JoinToken{Hash: sum[:], Site: plant, Node: nodeA, CreatedBy: "ann"}, time.Hour)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), made.ExpiresAt, minute)
	})
}
