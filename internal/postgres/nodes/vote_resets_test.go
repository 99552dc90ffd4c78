package nodes_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// forged writes what a node could say before there was a bound.
func (b *bench) forged() {
	b.T.Helper()
	b.Exec(`UPDATE site_leases SET promised = $1, promised_to = 'plant-b'`, int64(math.MaxInt64-1))
}

// X20, X21: the region's vote begins above all epochs that nobody forged.
func TestResetVotes(t *testing.T) {
	t.Parallel()
	const margin = 1 << 10
	reset := func(b *bench, epoch int64) nodes.VoteReset {
		b.T.Helper()
		r, err := b.ResetVotes(b.Ctx(), plant, epoch, "admin")
		require.NoError(b.T, err)
		return r
	}
	t.Run("of no site", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.ResetVotes(t.Context(), "nowhere", 0, "admin")
		stores.Refused(t, fleet.NotFound, err)
	})
	t.Run("it frees the lease, and counts as cast", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeB)
		was := b.vote().Vote
		b.forged()
		r := reset(b, 0)
		require.Equal(t, nodes.VoteReset{Site: plant, Number: 1<<20 + 1, Promised: math.MaxInt64 - 1, Epoch: was.Epoch + margin}, r)
		v := b.vote()
		require.Equal(t, nodes.Vote{Promised: r.Epoch, Epoch: r.Epoch, Counter: 1, TTL: was.TTL}, v.Vote)
		require.Equal(t, r.Number, v.Resets)
		require.False(t, v.Vote.Unvoted(), "servers wait a TTL")
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT count(*) FROM events WHERE kind = 'site' AND actor = 'admin'"))
		l, err := b.LeaseOf(t.Context(), plant)
		require.NoError(t, err)
		require.True(t, l.Released)
		again := reset(b, 0)
		require.Equal(t, r.Number+1, again.Number)
		require.Equal(t, r.Epoch+margin, again.Epoch, "epochs that were not forged never fall")
		require.EqualValues(t, 50, reset(b, 50).Epoch)
	})
	t.Run("what was delivered counts where the whole lease was forged", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{}`)
		b.Deploy("applied")
		b.Exec(`UPDATE deliveries SET epoch = 77`)
		b.forged()
		b.Exec(`UPDATE site_leases SET epoch = promised, ttl = '1 hour'`)
		require.EqualValues(t, 77+margin, reset(b, 0).Epoch)
		require.Equal(t, time.Minute, b.vote().Vote.TTL, "a forged TTL blocks nobody")
	})
	t.Run("a vote that waits for the node that decided alone waits on", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.PutSite(plant, nodeA, "")
		require.NoError(t, b.FollowVote(t.Context(), plant, nodeA, 5, time.Second))
		b.PutSite(plant, nodeA, nodeB)
		r := reset(b, 0)
		require.True(t, r.Lost)
		require.True(t, b.vote().Vote.Lost, "that node and the region with the new one would be two majorities")
		require.NoError(t, b.FollowVote(t.Context(), plant, nodeA, r.Epoch+1, time.Second))
		require.False(t, b.vote().Vote.Lost)
	})
	t.Run("a restored region goes on above the numbers that nodes followed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := reset(b, 0)
		b.Exec(`UPDATE site_leases SET resets = 0`)
		b.RaiseEra()
		require.Greater(t, reset(b, 0).Number, r.Number)
	})
	t.Run("its nodes hear of it and say what they had", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		of := func() fleet.Membership {
			all, err := b.MembershipsOf(t.Context(), []fleet.NodeName{nodeA})
			require.NoError(t, err)
			return all[nodeA]
		}
		before := of()
		r := reset(b, 0)
		after := of()
		require.NotEqual(t, before.Mark, after.Mark)
		require.Equal(t, []int64{r.Number, r.Epoch}, []int64{after.Resets, after.ResetEpoch})
		b.Exec(`UPDATE nodes SET counters = jsonb_build_object('lease_resets', $1::bigint, 'lease_reset_from', 9000) WHERE name = 'plant-a'`, r.Number)
		require.NoError(t, b.RevokeNode(t.Context(), nodeB))
		seen, err := b.NodesReset(t.Context(), plant)
		require.NoError(t, err)
		require.Equal(t, []nodes.NodeReset{
			{Node: nodeA, Enrolled: true, Number: r.Number, From: 9000}, {Node: nodeB, Enrolled: true, Revoked: true},
		}, seen)
	})
}

// X21: where the region's numbers were forged, no number of a node overflows what it compares with.
func TestFollowVoteOfForged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.PutSite(plant, nodeA, "")
	b.forged()
	stores.Refused(t, fleet.Precondition, b.FollowVote(t.Context(), plant, nodeA, 1, time.Second))
	b.Exec(`UPDATE site_leases SET promised = 1`)
	stores.Refused(t, fleet.Invalid, b.FollowVote(t.Context(), plant, nodeA, math.MaxInt64, time.Second))
	require.EqualValues(t, 1, b.vote().Vote.Promised)
}
