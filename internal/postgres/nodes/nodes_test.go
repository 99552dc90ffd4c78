package nodes_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestEnrol(t *testing.T) {
	t.Parallel()

	t.Run("takes a join token once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		require.Nil(t, b.Node(nodeA).EnrolledAt)
		e := b.JoinToken(nodeA, "secret")
		w, err := b.Enrol(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, nodes.Welcome{Region: "test", Role: fleet.RoleActive, Epoch: 1, First: true}, w)
		require.Equal(t, e.SigningKey, b.Node(nodeA).SigningKey)
		require.NotNil(t, b.Node(nodeA).EnrolledAt)
		e.SigningKey = append([]byte{9}, e.SigningKey[1:]...)
		_, err = b.Enrol(t.Context(), e)
		stores.Refused(t, fleet.Unauthenticated, err)
	})

	t.Run("says the same again to the same token and keys, and to nothing else", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		e := b.JoinToken(nodeA, "secret")
		told, err := b.Enrol(t.Context(), e)
		require.NoError(t, err)
		before := b.Node(nodeA)
		again := func(edits ...func(*nodes.Enrolment)) error {
			mine := e
			for _, edit := range edits {
				edit(&mine)
			}
			w, err := b.Enrol(t.Context(), mine)
			if err == nil {
				require.Equal(t, told, w)
			}
			return err
		}
		for range 2 {
			require.NoError(t, again())
		}
		other := append([]byte{9}, e.SigningKey[1:]...)
		for _, edit := range []func(*nodes.Enrolment){
			func(e *nodes.Enrolment) { e.JoinTokenHash = make([]byte, 32) },
			func(e *nodes.Enrolment) { e.Node = nodeB },
			func(e *nodes.Enrolment) { e.Site = "elsewhere" },
			func(e *nodes.Enrolment) { e.SigningKey = other },
			func(e *nodes.Enrolment) { e.SealingKey = other },
		} {
			stores.Refused(t, fleet.Unauthenticated, again(edit))
		}
		require.Equal(t, before, b.Node(nodeA))
		b.Exec("UPDATE join_tokens SET expires_at = now() - interval '1 s'")
		stores.Refused(t, fleet.Unauthenticated, again())
		b.Exec("UPDATE join_tokens SET expires_at = now() + interval '1 h'")
		require.NoError(t, again())
		require.NoError(t, b.RevokeNode(t.Context(), nodeA))
		stores.Refused(t, fleet.Unauthenticated, again())
	})

	t.Run("says nothing to a token whose key was replaced, also not to the new key", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		old, newer := b.JoinToken(nodeA, "old"), b.JoinToken(nodeA, "newer")
		for _, e := range []nodes.Enrolment{old, newer} {
			_, err := b.Enrol(t.Context(), e)
			require.NoError(t, err)
		}
		_, err := b.Enrol(t.Context(), old)
		stores.Refused(t, fleet.Unauthenticated, err)
		mixed := newer
		mixed.JoinTokenHash = old.JoinTokenHash
		_, err = b.Enrol(t.Context(), mixed)
		stores.Refused(t, fleet.Unauthenticated, err)
		require.Equal(t, newer.SigningKey, b.Node(nodeA).SigningKey)
	})

	t.Run("knows that another key voted before, also when the answer was lost", func(t *testing.T) { // X21
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		b.MustEnrol(nodeA)
		second := b.JoinToken(nodeA, "after the disk died")
		for range 2 {
			w, err := b.Enrol(t.Context(), second)
			require.NoError(t, err)
			require.False(t, w.First)
		}
		third := b.JoinToken(nodeA, "another token for the same key")
		third.SigningKey, third.SealingKey = second.SigningKey, second.SealingKey
		w, err := b.Enrol(t.Context(), third)
		require.NoError(t, err)
		require.False(t, w.First)
	})

	t.Run("knows that another key voted before, also one that was taken back", func(t *testing.T) { // X21
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		_, err := b.Enrol(t.Context(), b.JoinToken(nodeA, "first"))
		require.NoError(t, err)
		require.NoError(t, b.RevokeNode(t.Context(), nodeA))
		again := b.JoinToken(nodeA, "second")
		again.SigningKey = append([]byte{9}, again.SigningKey[1:]...)
		w, err := b.Enrol(t.Context(), again)
		require.NoError(t, err)
		require.False(t, w.First)
	})

	t.Run("takes it once also from many at once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		e := b.JoinToken(nodeA, "secret")
		won := make(chan struct{}, 8)
		require.NoError(t, stores.AtOnce(cap(won), func(i int) error {
			mine := e
			mine.SigningKey = append([]byte{byte(i)}, e.SigningKey[1:]...)
			_, err := b.Enrol(t.Context(), mine)
			if fleet.KindOf(err) == fleet.Unauthenticated {
				return nil
			}
			won <- struct{}{}
			return err
		}))
		require.Len(t, won, 1)
	})

	t.Run("refuses a wrong, a late and another node's token, and uses none up", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		e := b.JoinToken(nodeA, "secret")
		for _, edit := range []func(*nodes.Enrolment){
			func(e *nodes.Enrolment) { e.JoinTokenHash = make([]byte, 32) },
			func(e *nodes.Enrolment) { e.Node = nodeB },
			func(e *nodes.Enrolment) { e.Site = "elsewhere" },
		} {
			bad := e
			edit(&bad)
			_, err := b.Enrol(t.Context(), bad)
			stores.Refused(t, fleet.Unauthenticated, err)
		}
		b.Exec("UPDATE join_tokens SET expires_at = now() - interval '1 s'")
		_, err := b.Enrol(t.Context(), e)
		stores.Refused(t, fleet.Unauthenticated, err)
		b.Exec("UPDATE join_tokens SET expires_at = now() + interval '1 h'")
		_, err = b.Enrol(t.Context(), e)
		require.NoError(t, err)
	})

	t.Run("again replaces the keys", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		before := b.Node(nodeA).SigningKey
		e := b.JoinToken(nodeA, "after the disk died")
		_, err := b.Enrol(t.Context(), e)
		require.NoError(t, err)
		require.NotEqual(t, before, b.Node(nodeA).SigningKey)
		require.Equal(t, e.SigningKey, b.Node(nodeA).SigningKey)
		b.Put(`{"a":1}`)
		require.Equal(t, e.SealingKey, b.Notify(b.MustClaim(run1, "1").ID, nodeA, "t").SealingKey, "tokens are sealed to the new one")
	})

	t.Run("wants a declared node", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.AddJoinToken(t.Context(), keyring.JoinToken{Hash: make([]byte, 32), Site: plant, Node: "stranger"}, time.Hour)
		stores.Refused(t, fleet.NotFound, err)
		e := b.JoinToken(nodeB, "secret")
		b.PutSite(plant, nodeA, "")
		_, err = b.Enrol(t.Context(), e)
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("is what a delivery waits for", func(t *testing.T) { // X4, X8
		t.Parallel()
		b := bare(t)
		b.PutSite(plant, nodeA, nodeB)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		w, err := b.Prepare(t.Context(), fleet.Prepare{Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, TTL: minute})
		require.NoError(t, err)
		require.Nil(t, w.Prepared)
		require.True(t, w.Seen.Open.Active().Unenrolled())
		says := func() string {
			return stores.Scan[string](b, "SELECT state || ': ' || reason || ': ' || message FROM delivery_nodes WHERE node = $1", nodeA)
		}
		require.Equal(t, "waiting: unavailable: waiting for the node to enrol: make a join token and start the node with it", says())
		_, err = b.Enrol(t.Context(), b.JoinToken(nodeA, "secret"))
		require.NoError(t, err)
		w, err = b.Prepare(t.Context(), fleet.Prepare{Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, TTL: minute, TokenHash: make([]byte, 32)})
		require.NoError(t, err)
		require.NotNil(t, w.Prepared)
		require.Equal(t, "notified: : ", says())
	})
}

// X21
func TestSiteNodes(t *testing.T) {
	t.Parallel()

	t.Run("belong to one site, also when two declare them at once", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		const sites = 6
		won := make(chan fleet.SiteName, sites)
		require.NoError(t, stores.AtOnce(sites, func(i int) error {
			site := fleet.SiteName(fmt.Sprintf("site-%d", i))
			_, err := b.Declare(t.Context(), stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}), stores.TwoNodes(nodeA, ""))
			if fleet.KindOf(err) == fleet.Conflict {
				return nil
			}
			won <- site
			return err
		}))
		require.Len(t, won, 1)
		require.Equal(t, <-won, b.Node(nodeA).Site)
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM site_leases"))
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM objects"))
	})

	t.Run("may move to another site once removed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.PutSite(plant, nodeA, "")
		b.PutSite("other", nodeB, "")
		require.EqualValues(t, "other", b.Node(nodeB).Site)
	})

	t.Run("take the lease by votes only, by a higher epoch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.EqualValues(t, 1, b.Node(nodeA).Epoch)
		b.PutSite(plant, nodeA, nodeB)
		require.EqualValues(t, 1, b.Node(nodeA).Epoch, "nothing moved")
		b.PutSite(plant, nodeB, nodeA)
		require.EqualValues(t, 1, b.Node(nodeA).Epoch, "declaring moves nothing")
		b.MoveLease(nodeB)
		b.MoveLease(nodeA)
		require.EqualValues(t, 3, b.Node(nodeA).Epoch)
	})
}

func reportOf(node fleet.NodeName, start string, held map[fleet.InstanceName]fleet.Revision) nodes.NodeReport {
	r := nodes.NodeReport{Node: node, StartID: start}
	for name, rev := range held {
		r.Instances = append(r.Instances, fleet.NodeInstance{Instance: name, Held: stores.Holding(rev)})
	}
	return r
}

// N54, N55
func TestNodeStart(t *testing.T) {
	t.Parallel()

	report := func(b *bench, start string, held map[fleet.InstanceName]fleet.Revision) {
		b.T.Helper()
		_, err := b.HeldBy(b.Ctx(), reportOf(nodeB, start, held))
		require.NoError(b.T, err)
	}
	ready := func(b *bench, start string) []string {
		b.T.Helper()
		require.NoError(b.T, b.NodeReady(b.Ctx(), nodeB, start))
		wake, err := b.ServeOwed(b.Ctx(), nodeB, time.Now().Add(time.Hour), 10)
		require.NoError(b.T, err)
		return wake
	}
	compared := func(b *bench) map[fleet.InstanceName]int64 {
		b.T.Helper()
		out := map[fleet.InstanceName]int64{}
		raw := stores.Scan[[]byte](b, "SELECT coalesce(jsonb_object_agg(name, revision), '{}') FROM node_held WHERE node = $1", nodeB)
		require.NoError(b.T, json.Unmarshal(raw, &out))
		return out
	}
	// two revisions, the second deployed and held by both nodes.
	two := func(t *testing.T) (*bench, fleet.Revision) {
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		return b, b.Deploy("2").Revision
	}

	t.Run("makes what the node is owed due, and wakes its subjects", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.MustRecord(b.MustClaim(run1, "1"), nodeA)
		b.MustMiss("", nodeB, fleet.TargetFailed, fleet.Unavailable)
		b.Exec("DELETE FROM outbox")
		require.Empty(t, b.MustObserve(run1).Owed)
		require.Equal(t, []string{"instance.plant.press"}, ready(b, "s1"))
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.press"}, waiting)
		require.Len(t, b.MustObserve(run1).Owed, 1)
		require.Empty(t, ready(b, "s1"), "answered again, it is due already")
		require.NotNil(t, b.Node(nodeB).StartedAt)
	})

	t.Run("says what it holds in pages, in any order, and again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		held := map[fleet.InstanceName]fleet.Revision{}
		for i := range 3 {
			name := fleet.InstanceName(fmt.Sprintf("n%d", i))
			b.Put(`{"a":1}`, stores.Named(string(name)))
			rev, err := b.RevisionOf(t.Context(), fleet.InstanceKey(plant, name), 1)
			require.NoError(t, err)
			held[name] = rev
		}
		for range 2 {
			for name, rev := range held {
				report(b, "s1", map[fleet.InstanceName]fleet.Revision{name: rev})
			}
		}
		ready(b, "s1")
		require.Equal(t, 3, stores.Scan[int](b, "SELECT count(*) FROM node_held WHERE node = $1", nodeB))
		require.EqualValues(t, 3, b.Node(nodeB).Instances)
	})

	t.Run("with a lost store shows what is missing", func(t *testing.T) {
		t.Parallel()
		b, _ := two(t)
		require.Equal(t, map[fleet.InstanceName]int64{press: 2}, compared(b))
		report(b, "s1", nil)
		require.Equal(t, map[fleet.InstanceName]int64{press: 2}, compared(b), "the pages are not complete")
		ready(b, "s1")
		require.Empty(t, compared(b))
		wake, err := b.Owe(t.Context(), nodeB, press, b.DeployedRevision().Version)
		require.NoError(t, err)
		require.Equal(t, "instance.plant.press", wake)
		require.Len(t, b.MustObserve(run1).Owed, 1)
	})

	t.Run("with an older store shows what is older", func(t *testing.T) {
		t.Parallel()
		b, _ := two(t)
		old, err := b.RevisionOf(t.Context(), stores.PressKey, 1)
		require.NoError(t, err)
		report(b, "", map[fleet.InstanceName]fleet.Revision{press: old})
		require.Equal(t, map[fleet.InstanceName]int64{press: 2}, compared(b), "a late report takes nothing back")
		report(b, "s1", map[fleet.InstanceName]fleet.Revision{press: old})
		ready(b, "s1")
		require.Equal(t, map[fleet.InstanceName]int64{press: 1}, compared(b))
	})

	t.Run("keeps what was recorded between its pages", func(t *testing.T) {
		t.Parallel()
		b, rev := two(t)
		old, err := b.RevisionOf(t.Context(), stores.PressKey, 1)
		require.NoError(t, err)
		report(b, "s1", nil)
		_, err = b.Record(t.Context(), stores.RecordOf("", nodeB, rev))
		require.NoError(t, err)
		report(b, "s1", map[fleet.InstanceName]fleet.Revision{press: old}) // this page was written before that
		ready(b, "s1")
		require.Equal(t, map[fleet.InstanceName]int64{press: 2}, compared(b))
	})

	t.Run("of another id than the pages forgets nothing", func(t *testing.T) {
		t.Parallel()
		b, _ := two(t)
		report(b, "s1", nil)
		ready(b, "s0")
		require.Equal(t, map[fleet.InstanceName]int64{press: 2}, compared(b))
	})

	t.Run("of a node that nobody declared is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.HeldBy(t.Context(), reportOf("stranger", "s1", nil))
		stores.Refused(t, fleet.NotFound, err)
	})
}

// X27, X21
func TestLogs(t *testing.T) {
	t.Parallel()
	const piece, keep = 64 << 10, int64(1 << 20)
	running := func(t *testing.T) (b *bench, add func(offset int64, data []byte) error, text func() string) {
		t.Helper()
		b = setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		on := b.Node(nodeA)
		add = func(offset int64, data []byte) error {
			return b.AppendLog(t.Context(), on, press, offset, data)
		}
		return b, add, func() (all string) {
			chunks, err := b.ReadLogs(t.Context(), plant, press, nodeA, 0)
			require.NoError(t, err)
			for _, c := range chunks {
				all += string(c.Data)
			}
			return all
		}
	}
	t.Run("the newest of it is kept, each piece once", func(t *testing.T) {
		t.Parallel()
		b, add, _ := running(t)
		at := int64(0)
		for range 40 {
			require.NoError(t, add(at, stores.BodyBytes(piece)))
			require.NoError(t, add(at, stores.BodyBytes(piece)), "sent again")
			at += piece
		}
		require.Equal(t, keep, stores.Scan[int64](b, "SELECT sum(length(data)) FROM instance_logs"))
		chunks, err := b.ReadLogs(t.Context(), plant, press, nodeA, at-piece)
		require.NoError(t, err)
		require.Equal(t, []nodes.LogChunk{{Node: nodeA, Offset: at - piece, Data: stores.BodyBytes(piece)}}, chunks)
	})
	t.Run("a piece that comes again and is longer adds what is new", func(t *testing.T) {
		t.Parallel()
		_, add, text := running(t)
		require.NoError(t, add(5, []byte("one ")))
		require.NoError(t, add(5, []byte("one two ")))
		require.NoError(t, add(7, []byte("e two ")))
		require.NoError(t, add(13, []byte("three")))
		require.Equal(t, "one two three", text())
	})
	t.Run("what overlaps is bounded by its bytes", func(t *testing.T) {
		t.Parallel()
		b, add, _ := running(t)
		for i := range int64(40) {
			data := stores.BodyBytes(piece)
			data[0] = byte(i)
			require.NoError(t, add(i, data))
		}
		require.LessOrEqual(t, stores.Scan[int64](b, "SELECT sum(length(data)) FROM instance_logs"), keep)
	})
	t.Run("a jump removes nothing, and what comes at the true offset is kept", func(t *testing.T) {
		t.Parallel()
		_, add, text := running(t)
		require.NoError(t, add(0, []byte("true ")))
		stores.Refused(t, fleet.Invalid, add(math.MaxInt64, []byte("x")))
		stores.Refused(t, fleet.Invalid, add(-1, []byte("x")))
		require.NoError(t, add(1<<53, []byte("forged ")))
		require.NoError(t, add(5, []byte("words ")))
		require.NoError(t, add(0, []byte("again ")), "a program that was removed counts from 0")
		require.NoError(t, add(6, []byte("and on")))
		require.Equal(t, "true forged words again and on", text())
	})
	t.Run("nothing is kept of what the node does not hold", func(t *testing.T) {
		t.Parallel()
		b, _, _ := running(t)
		stores.Refused(t, fleet.NotFound, b.AppendLog(t.Context(), b.Node(nodeA), "ghost", 0, []byte("x")))
		said := reportOf(nodeA, "", map[fleet.InstanceName]fleet.Revision{"ghost": {}})
		_, _ = b.HeldBy(t.Context(), said)
		stores.Refused(t, fleet.NotFound, b.AppendLog(t.Context(), b.Node(nodeA), "ghost", 0, []byte("x")))
		require.Zero(t, stores.Scan[int64](b, "SELECT count(*) FROM instance_logs"))
	})
}

func TestAPITokens(t *testing.T) {
	t.Parallel()
	b := bare(t)
	hash := stores.JSONOf("token")
	sum := []byte(hash.Hash[:32])
	made, err := b.AddAPIToken(t.Context(), keyring.APIToken{Hash: sum, Role: "operator", Project: stores.Project, Note: "ci", CreatedBy: "ann"})
	require.NoError(t, err)
	again, err := b.AddAPIToken(t.Context(), keyring.APIToken{Hash: sum, Role: "admin", Note: "mine", CreatedBy: "eve"})
	require.NoError(t, err)
	require.Equal(t, made.ID, again.ID)
	require.Equal(t, "operator", again.Role, "the same token never gains a role")
	found, err := b.APITokenByHash(t.Context(), sum)
	require.NoError(t, err)
	require.Equal(t, made.ID, found.ID)
	require.NoError(t, b.RevokeAPIToken(t.Context(), made.ID))
	_, err = b.APITokenByHash(t.Context(), sum)
	stores.Refused(t, fleet.Unauthenticated, err)
	stores.Refused(t, fleet.NotFound, b.RevokeAPIToken(t.Context(), made.ID))
	past := time.Now().Add(-time.Minute)
	_, err = b.AddAPIToken(t.Context(), keyring.APIToken{Hash: []byte(stores.JSONOf("old").Hash[:32]), Role: "viewer", CreatedBy: "ann", ExpiresAt: &past})
	require.NoError(t, err)
	_, err = b.APITokenByHash(t.Context(), []byte(stores.JSONOf("old").Hash[:32]))
	stores.Refused(t, fleet.Unauthenticated, err)
}
