package nodes_test

import (
	"encoding/json"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) vote() nodes.SiteVote {
	b.T.Helper()
	v, err := b.VoteOf(b.Ctx(), plant)
	require.NoError(b.T, err)
	return v
}

// cast writes what edit makes of the vote as it is.
func (b *bench) cast(edit func(*nodes.Vote)) bool {
	b.T.Helper()
	was := b.vote()
	now := was.Vote
	edit(&now)
	written, err := b.CastVote(b.Ctx(), nodes.VoteChange{Site: plant, Was: was.Vote, Now: now}, "test")
	require.NoError(b.T, err)
	return written
}

func renewalOf(v nodes.SiteVote) nodes.VoteChange {
	now := v.Vote
	now.Counter++
	return nodes.VoteChange{Site: v.Site, Was: v.Vote, Now: now}
}

// X21, X23
func TestVotes(t *testing.T) {
	t.Parallel()

	t.Run("begin with whom the site declares, by nobody's vote", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		v := b.vote()
		require.True(t, v.Vote.Unvoted())
		require.Equal(t, nodes.SiteVote{Site: plant, Pair: []fleet.NodeName{nodeA, nodeB}, Vote: nodes.Vote{Promised: 1, Epoch: 1}}, v)
		all, err := b.Votes(t.Context())
		require.NoError(t, err)
		require.Equal(t, []nodes.SiteVote{v}, all)
		l, err := b.LeaseOf(t.Context(), plant)
		require.NoError(t, err)
		require.Equal(t, nodeA, l.Holder, "instances can be released before any node ran")
		require.False(t, l.Voted)
	})

	t.Run("are read back as they were cast", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for _, want := range []nodes.Vote{
			{Promised: 2, PromisedTo: nodeB, Epoch: 1},
			{Promised: 2, PromisedTo: nodeB, Holder: nodeB, Epoch: 2, Counter: 1, TTL: 15 * time.Second},
			{Promised: 2, PromisedTo: nodeB, Holder: nodeB, Epoch: 2, Counter: 2, TTL: 333 * time.Millisecond, Target: nodeA},
			{Promised: 2, Epoch: 2, Counter: 3, TTL: 333 * time.Millisecond},
			{Promised: 9, Epoch: 2, Counter: 3, TTL: 333 * time.Millisecond, Lost: true},
			{Promised: 9, PromisedTo: nodeA, Holder: nodeA, Epoch: 9, Counter: 1, TTL: 3 * time.Second},
		} {
			require.True(t, b.cast(func(v *nodes.Vote) { *v = want }))
			require.Equal(t, want, b.vote().Vote)
		}
	})

	t.Run("are not written over what they did not go by", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeA)
		for _, edit := range []func(*nodes.Vote){
			func(v *nodes.Vote) { v.Promised++ }, func(v *nodes.Vote) { v.PromisedTo = nodeB }, func(v *nodes.Vote) { v.Holder = nodeB },
			func(v *nodes.Vote) { v.Holder = "" }, func(v *nodes.Vote) { v.Epoch-- }, func(v *nodes.Vote) { v.Counter-- },
			func(v *nodes.Vote) { v.TTL++; v.TTL += time.Microsecond }, func(v *nodes.Vote) { v.Target = nodeB }, func(v *nodes.Vote) { v.Lost = true },
		} {
			c := renewalOf(b.vote())
			edit(&c.Was)
			written, err := b.CastVote(t.Context(), c, "test")
			require.NoError(t, err)
			require.False(t, written, "%+v", c)
			if !c.Renews() {
				continue
			}
			sites, err := b.RenewVotes(t.Context(), []nodes.VoteChange{c})
			require.NoError(t, err)
			require.Empty(t, sites, "%+v", c)
		}
	})

	t.Run("of two servers at once, one is written", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other, err := store.Open(t.Context(), b.URL, "test")
		require.NoError(t, err)
		t.Cleanup(other.Close)
		for range 20 {
			was := b.vote()
			var won atomic.Int32
			require.NoError(t, stores.AtOnce(8, func(i int) error {
				s, to := b.Store, nodeA
				if i%2 == 0 {
					s, to = other, nodeB
				}
				written, err := s.CastVote(t.Context(), stores.Granted(was, to), "node:"+string(to))
				if written {
					won.Add(1)
				}
				return err
			}))
			require.EqualValues(t, 1, won.Load())
		}
	})

	t.Run("that move the lease bring the new holder what is owed, and tell so", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("unavailable"), stores.Owing)
		require.Equal(t, []string{"plant-a 1 parked unavailable"}, b.Owed())
		b.Exec("DELETE FROM outbox")
		begun := b.Feed(postgres.Cursor{})
		b.MoveLease(nodeB)
		require.Equal(t, []string{"plant-b 1 due unavailable"}, b.Owed())
		require.Equal(t, []string{"instance.plant.press"}, stores.Scan[[]string](b, "SELECT array_agg(subject) FROM outbox"))
		events := b.Feed(begun[len(begun)-1].Cursor)
		require.Len(t, events, 1)
		var before, after fleet.LeaseState
		require.NoError(t, json.Unmarshal(events[0].Before, &before))
		require.NoError(t, json.Unmarshal(events[0].After, &after))
		require.Equal(t, fleet.LeaseState{Holder: nodeA, Epoch: 1}, before)
		require.Equal(t, fleet.LeaseState{Holder: nodeB, Epoch: 2}, after)
		require.Equal(t, stores.SiteKey, events[0].Key)
		require.Equal(t, "node:plant-b", events[0].Actor)
		b.cast(func(v *nodes.Vote) { v.Holder = "" })
		l, err := b.LeaseOf(t.Context(), plant)
		require.NoError(t, err)
		require.True(t, l.Released)
		require.Equal(t, nodeB, l.Holder)
	})

	t.Run("of a thousand sites are renewed by one statement, past one that is locked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const sites = 1000
		b.Exec(`INSERT INTO nodes (name, site, role) SELECT format('s%s-%s', i, r), 's' || i, CASE r WHEN 'a' THEN 'active' ELSE 'standby' END
			FROM generate_series(1, $1::int) i, unnest(ARRAY['a', 'b']) r`, sites)
		b.Exec(`INSERT INTO site_leases (site, holder, epoch, promised, counter, ttl) SELECT 's' || i, format('s%s-a', i), 1, 1, 1, '15 s'
			FROM generate_series(1, $1::int) i`, sites)
		b.Exec("ANALYZE")
		held, err := b.Raw.Begin(t.Context())
		require.NoError(t, err)
		_, err = held.Exec(t.Context(), "SELECT FROM site_leases WHERE site = 's7' FOR SHARE")
		require.NoError(t, err)
		for round := range 3 {
			begun := time.Now()
			rows, err := b.Votes(t.Context())
			require.NoError(t, err)
			read := time.Since(begun)
			var all []nodes.VoteChange
			for _, v := range rows {
				if v.Vote.Holder != "" {
					all = append(all, renewalOf(v))
				}
			}
			require.Len(t, all, sites)
			begun = time.Now()
			written, err := b.RenewVotes(t.Context(), all)
			require.NoError(t, err)
			require.Len(t, written, sites-1)
			require.NotContains(t, written, fleet.SiteName("s7"))
			t.Logf("round %d: %d votes read in %s, %d renewed in %s", round, len(rows), read, len(written), time.Since(begun))
		}
		require.NoError(t, held.Rollback(t.Context()))
		require.EqualValues(t, 4*(sites-1)+1, stores.Scan[int64](b, "SELECT sum(counter)::bigint FROM site_leases"))
	})

	t.Run("are lost with a new era, and when a site's second node comes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeB)
		_, err := postgres.RaiseEra(t.Context(), b.URL, "test")
		require.NoError(t, err)
		v := b.vote().Vote
		require.True(t, v.Lost)
		require.Empty(t, v.PromisedTo, "no epoch that it promised is granted anew")

		alone := setup(t)
		alone.PutSite(plant, nodeA, "")
		require.False(t, alone.vote().Vote.Lost)
		alone.PutSite(plant, nodeA, nodeB)
		require.True(t, alone.vote().Vote.Lost, "its node may have decided alone")
	})
}

// X21: a declaration says who may be first, and no more.
func TestDeclaringMovesNoLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := func() string {
		return stores.Scan[string](b, "SELECT format('%s %s', holder, epoch) FROM site_leases")
	}
	b.PutSite(plant, nodeB, nodeA)
	require.Equal(t, "plant-a 1", holder())
	b.PutSite(plant, nodeB, "plant-c")
	require.Equal(t, "plant-b 2", holder(), "nobody votes for a holder that was only declared")
	b.MoveLease("plant-c")
	b.PutSite(plant, nodeB, nodeA)
	require.Equal(t, "plant-c 3", holder(), "its lease runs out, or it is moved")
}

// X21: a site of one node decides by itself.
func TestFollowVote(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	b := setup(t)
	stores.Refused(t, fleet.Denied, b.FollowVote(t.Context(), plant, nodeA, 5, ttl))
	stores.Refused(t, fleet.NotFound, b.FollowVote(t.Context(), "nowhere", nodeA, 5, ttl))
	b.PutSite(plant, nodeA, "")
	stores.Refused(t, fleet.Denied, b.FollowVote(t.Context(), plant, nodeB, 5, ttl))
	require.NoError(t, b.FollowVote(t.Context(), plant, nodeA, 5, ttl))
	require.NoError(t, b.FollowVote(t.Context(), plant, nodeA, 5, ttl), "already so")
	stores.Refused(t, fleet.Precondition, b.FollowVote(t.Context(), plant, nodeA, 4, ttl))
	stores.Refused(t, fleet.Invalid, b.FollowVote(t.Context(), plant, nodeA, 5+fleet.MaxEpochJump+1, ttl))
	stores.Refused(t, fleet.Invalid, b.FollowVote(t.Context(), plant, nodeA, math.MaxInt64, ttl))
	require.Equal(t, "plant-a 5 5", stores.Scan[string](b, "SELECT format('%s %s %s', holder, epoch, promised) FROM site_leases"))
	require.False(t, b.vote().Vote.Unvoted())

	b.PutSite(plant, nodeA, nodeB)
	require.True(t, b.vote().Vote.Lost, "it may have gone on while the region was away")
	stores.Refused(t, fleet.Denied, b.FollowVote(t.Context(), plant, nodeB, 9, ttl))
	require.NoError(t, b.FollowVote(t.Context(), plant, nodeA, 5, ttl), "the one that decided alone says what it holds")
	require.Equal(t, nodes.Vote{Promised: 5, PromisedTo: nodeA, Holder: nodeA, Epoch: 5, Counter: 2, TTL: ttl}, b.vote().Vote)
	stores.Refused(t, fleet.Denied, b.FollowVote(t.Context(), plant, nodeA, 6, ttl))
}

// N60, X8, X20, X23
func TestAskFailover(t *testing.T) {
	t.Parallel()
	ask := func(b *bench, edits ...func(*nodes.FailoverRequest)) (postgres.Operation, error) {
		in := nodes.FailoverRequest{Request: postgres.Request{Actor: "ann", Limit: time.Hour}, Site: plant}
		for _, edit := range edits {
			edit(&in)
		}
		return b.AskFailover(b.Ctx(), in)
	}
	to := func(n fleet.NodeName) func(*nodes.FailoverRequest) {
		return func(r *nodes.FailoverRequest) { r.To = n }
	}
	look := func(b *bench, edits ...func(*fleet.FailoverLook)) fleet.FailoverSeen {
		in := fleet.FailoverLook{Site: plant, Run: run1, Build: "build-1"}
		for _, edit := range edits {
			edit(&in)
		}
		seen, err := b.SeeFailover(b.Ctx(), in)
		require.NoError(b.T, err)
		return seen
	}

	t.Run("opens an operation towards the other node, served until it ends", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeA)
		op, err := ask(b, func(r *nodes.FailoverRequest) { r.Force = true })
		require.NoError(t, err)
		require.Equal(t, nodeB, op.Node)
		require.True(t, op.Forced)
		require.Equal(t, "site.plant", op.Subject)
		seen := look(b, func(l *fleet.FailoverLook) { l.To, l.Reason, l.Message = nodeB, "forced", "it waits" })
		require.Equal(t, op.ID, seen.Operation)
		require.True(t, seen.Force)
		require.Equal(t, []any{nodeA, int64(2), nodeB}, []any{seen.Holder, seen.Epoch, seen.To})
		require.Equal(t, []fleet.NodeName{nodeA, nodeB}, seen.Voters)
		require.True(t, seen.Away, "the target is not on the link")
		id := b.linked(nodeB)
		require.False(t, look(b).Away)
		b.ends(id, fleet.HeartbeatLapsed)
		require.True(t, look(b).Away)
		got := b.Operation(op.ID)
		require.Equal(t, []string{"forced", "it waits", run1}, []string{got.Reason, got.Message, got.EntityRun})
		open, err := b.OpenEntities(t.Context(), fleet.EntitySite, "", 0, 10)
		require.NoError(t, err)
		require.Equal(t, []postgres.OpenEntity{{Subject: "site.plant", Run: run1}}, open)
		end := fleet.FailoverEnd{Site: plant, To: nodeB, State: fleet.OperationFailed, Reason: "deadline"}
		require.NoError(t, b.EndFailover(t.Context(), end))
		end.State = fleet.OperationSucceeded
		require.NoError(t, b.EndFailover(t.Context(), end), "the same end twice")
		require.Equal(t, fleet.OperationFailed, b.Operation(op.ID).State)
		require.Empty(t, look(b).Operation)
	})

	t.Run("sees whether the holder can be there, and whether it renews", func(t *testing.T) { // X5
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeA)
		_, err := ask(b)
		require.NoError(t, err)
		before := look(b)
		require.True(t, before.HolderAway)
		require.False(t, before.There.Before(before.At), "there is no server that it could speak to")
		require.Positive(t, before.TTL)
		b.cast(func(v *nodes.Vote) { v.Counter++ })
		require.Equal(t, before.Counter+1, look(b).Counter)

		id := b.linked(nodeA)
		b.LinkSince("40 seconds")
		now := look(b)
		require.False(t, now.HolderAway)
		require.InDelta(t, 10, now.At.Sub(now.There).Seconds(), 5)
		b.MustDrain(stores.DrainOf(nodeA, 600))
		require.NoError(t, b.AskConnections(t.Context(), nodeA, []fleet.ConnectionID{id}))
		require.NoError(t, b.MoveConnections(t.Context(), drainServer, nodes.ConnectionMoves{Acked: map[fleet.ConnectionID]int{id: 0}}))
		require.False(t, look(b).HolderAway, "one that drains can be asked")
		b.ends(id, fleet.StreamClosed)
		require.True(t, look(b).HolderAway)
	})

	t.Run("the newest word counts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first, err := ask(b, to(nodeB))
		require.NoError(t, err)
		same, err := ask(b, to(nodeB))
		require.NoError(t, err)
		require.Equal(t, fleet.OperationRunning, b.Operation(first.ID).State)
		back, err := ask(b, to(nodeA))
		require.NoError(t, err)
		require.Equal(t, fleet.OperationSuperseded, b.Operation(first.ID).State)
		require.Equal(t, fleet.OperationSuperseded, b.Operation(same.ID).State)
		require.Equal(t, back.ID, look(b).Operation)
	})

	t.Run("a key and a door ask once, a dry run not at all", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		keyed := func(r *nodes.FailoverRequest) { r.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")} }
		_, err := ask(b, func(r *nodes.FailoverRequest) { r.DryRun = true })
		require.NoError(t, err)
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM operations"))
		var ids [4]fleet.OperationID
		require.NoError(t, stores.AtOnce(len(ids), func(i int) error {
			op, err := ask(b, keyed)
			ids[i] = op.ID
			return err
		}))
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		door := func(r *nodes.FailoverRequest) { r.Door = postgres.Door{Workflow: "any", Run: "r"} }
		one, err := ask(b, door)
		require.NoError(t, err)
		two, err := ask(b, door)
		require.NoError(t, err)
		require.Equal(t, one.ID, two.ID)
	})

	t.Run("refuses whom nobody can vote for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := ask(b, to("stranger"))
		stores.Refused(t, fleet.Invalid, err)
		_, err = ask(b, func(r *nodes.FailoverRequest) { r.Site = "nowhere" })
		stores.Refused(t, fleet.NotFound, err)
		_, err = ask(b, func(r *nodes.FailoverRequest) { r.Project = "another" })
		stores.Refused(t, fleet.NotFound, err)
		b.Exec("UPDATE nodes SET revoked_at = now() WHERE name = $1", nodeB)
		_, err = ask(b)
		stores.Refused(t, fleet.IllegalState, err)
		b.PutSite(plant, nodeA, "")
		_, err = ask(b)
		stores.Refused(t, fleet.IllegalState, err)
	})

	t.Run("is cancelled by its entity", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op, err := ask(b)
		require.NoError(t, err)
		_, err = b.CancelOperation(t.Context(), op.ID)
		require.NoError(t, err)
		require.True(t, look(b).Cancelled)
	})

	t.Run("finds declared actives that could have the lease back", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		spec := stores.TwoNodes(nodeA, nodeB)
		spec.AutoFailback = true
		_, err := b.Declare(t.Context(), stores.WriteOf(stores.SiteKey), spec)
		require.NoError(t, err)
		found := func() []fleet.Failback {
			all, err := b.Failbacks(t.Context(), 0, 1, "", 10)
			require.NoError(t, err)
			return all
		}
		require.Empty(t, found(), "it holds it")
		b.MoveLease(nodeB)
		b.Exec("UPDATE nodes SET enrolled_at = now() - interval '2 h', started_at = now() - interval '2 h', seen_at = now()")
		require.Zero(t, found()[0].Up, "it is not on the link")
		id := b.linked(nodeA)
		require.Less(t, found()[0].Up, time.Minute, "it has only come back")
		b.Exec("UPDATE connections SET registered_at = now() - interval '3 h', active_at = now() - interval '1 h' WHERE id = $1", string(id))
		got := found()
		require.Len(t, got, 1)
		require.Equal(t, []any{plant, nodeA, nodeB, true, true, false}, []any{got[0].Site, got[0].Node, got[0].Holder, got[0].Ready, got[0].Level, got[0].UnderWay})
		require.InDelta(t, time.Hour.Seconds(), got[0].Up.Seconds(), 60)
		b.Exec("UPDATE nodes SET started_at = now() - interval '5 min'")
		require.InDelta(t, 300, found()[0].Up.Seconds(), 60, "its agent has started since")
		b.ends(id, fleet.StreamFailed)
		require.Zero(t, found()[0].Up)
		_, err = ask(b)
		require.NoError(t, err)
		require.True(t, found()[0].UnderWay)
	})
}

// X21: an operator's force, where a restored region has nobody left to hear.
func TestForceVote(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stores.Refused(t, fleet.IllegalState, b.ForceVote(t.Context(), plant, 9, "admin"))
	stores.Refused(t, fleet.NotFound, b.ForceVote(t.Context(), "nowhere", 9, "admin"))
	b.RaiseEra()
	require.True(t, b.vote().Vote.Lost)
	require.NoError(t, b.ForceVote(t.Context(), plant, 9, "admin"))
	v := b.vote().Vote
	require.False(t, v.Lost)
	require.EqualValues(t, 9, v.Promised)
	require.False(t, v.Unvoted(), "nobody moves its record without votes")
	stores.Refused(t, fleet.IllegalState, b.ForceVote(t.Context(), plant, 10, "admin"))
	require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT count(*) FROM events WHERE kind = 'site' AND actor = 'admin'"))

	b.RaiseEra()
	require.NoError(t, b.ForceVote(t.Context(), plant, 2, "admin"))
	require.EqualValues(t, 9, b.vote().Vote.Promised, "it never goes down")
}

// X21: a site of one node decides alone, so moving it takes a revocation.
func TestOnlyNodeIsNotReplaced(t *testing.T) {
	t.Parallel()
	put := func(b *bench, nodes ...fleet.SiteNode) error {
		_, err := b.Declare(b.Ctx(), stores.WriteOf(stores.SiteKey), fleet.SiteSpec{Nodes: nodes})
		return err
	}
	alone := func(name fleet.NodeName) fleet.SiteNode { return fleet.SiteNode{Name: name, Role: fleet.RoleActive} }
	worker := fleet.SiteNode{Name: nodeA, Role: fleet.RoleWorker}
	lone := func(t *testing.T) *bench {
		t.Helper()
		b := setup(t)
		require.NoError(t, put(b, alone(nodeA)))
		b.Exec("UPDATE nodes SET enrolled_at = now() WHERE name = $1", nodeA)
		return b
	}
	t.Run("by another, nor made a worker, while its key is valid", func(t *testing.T) {
		t.Parallel()
		b := lone(t)
		for _, nodes := range [][]fleet.SiteNode{
			{alone(nodeB)}, {alone(nodeB), worker}, {alone(nodeB), {Name: "plant-c", Role: fleet.RoleStandby}}, {},
		} {
			err := put(b, nodes...)
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, "is the only voter of site plant")
		}
		require.Equal(t, []fleet.NodeName{nodeA}, b.vote().Pair)
		require.NoError(t, put(b, alone(nodeA), fleet.SiteNode{Name: nodeB, Role: fleet.RoleStandby}), "it may get a peer")
		require.NoError(t, put(b, alone(nodeB)), "and then go, as one of two")
	})
	t.Run("until it was revoked", func(t *testing.T) {
		t.Parallel()
		b := lone(t)
		require.NoError(t, b.RevokeNode(b.Ctx(), nodeA))
		require.NoError(t, put(b, alone(nodeB)))
	})
	t.Run("unless it never enrolled", func(t *testing.T) {
		t.Parallel()
		b := lone(t)
		b.Exec("UPDATE nodes SET enrolled_at = NULL WHERE name = $1", nodeA)
		require.NoError(t, put(b, alone(nodeB)))
	})
}

// X21: the nodes of a pair decide without their region, so new ones come one by one.
func TestPairIsNotReplacedAtOnce(t *testing.T) {
	t.Parallel()
	node := func(name fleet.NodeName, role fleet.Role) fleet.SiteNode {
		return fleet.SiteNode{Name: name, Role: role}
	}
	const nodeC, nodeD = "plant-c", "plant-d"
	put := func(b *bench, nodes ...fleet.SiteNode) error {
		_, err := b.Declare(b.Ctx(), stores.WriteOf(stores.SiteKey), fleet.SiteSpec{Nodes: nodes})
		return err
	}
	others := []fleet.SiteNode{node(nodeC, fleet.RoleActive), node(nodeD, fleet.RoleStandby)}
	enrolled := func(t *testing.T, names ...fleet.NodeName) *bench {
		t.Helper()
		b := setup(t)
		require.NoError(t, put(b, node(nodeA, fleet.RoleActive), node(nodeB, fleet.RoleStandby)))
		b.Exec("UPDATE nodes SET enrolled_at = CASE WHEN name = ANY($1) THEN now() END", names)
		return b
	}
	t.Run("while a key of them is valid", func(t *testing.T) {
		t.Parallel()
		for _, names := range [][]fleet.NodeName{{nodeA, nodeB}, {nodeB}} {
			b := enrolled(t, names...)
			for _, nodes := range [][]fleet.SiteNode{
				others, {others[0]}, {}, append([]fleet.SiteNode{node(nodeA, fleet.RoleWorker), node(nodeB, fleet.RoleWorker)}, others...),
			} {
				err := put(b, nodes...)
				stores.Refused(t, fleet.IllegalState, err)
				require.ErrorContains(t, err, "no current voter of site plant would remain")
				require.ErrorContains(t, err, string(nodeB))
			}
			require.Equal(t, []fleet.NodeName{nodeA, nodeB}, b.vote().Pair)
		}
	})
	t.Run("one after the other they are", func(t *testing.T) {
		t.Parallel()
		b := enrolled(t, nodeA, nodeB)
		require.NoError(t, put(b, node(nodeA, fleet.RoleActive), others[1]))
		require.NoError(t, put(b, others...))
	})
	t.Run("and when all that have keys were revoked", func(t *testing.T) {
		t.Parallel()
		b := enrolled(t, nodeA, nodeB)
		require.NoError(t, b.RevokeNode(b.Ctx(), nodeA))
		stores.Refused(t, fleet.IllegalState, put(b, others...))
		require.NoError(t, b.RevokeNode(b.Ctx(), nodeB))
		require.NoError(t, put(b, others...))
	})
	t.Run("unless none ever enrolled", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, put(enrolled(t), others...))
	})
}
