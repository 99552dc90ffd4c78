package reconcile_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) setVersion() fleet.SetVersion {
	b.T.Helper()
	v, err := b.SetVersion(b.Ctx(), stores.Plant)
	require.NoError(b.T, err)
	return v
}

func (b *bench) expected() map[fleet.InstanceName]fleet.ExpectedInstance {
	b.T.Helper()
	set, err := b.ExpectedSet(b.Ctx(), stores.Plant)
	require.NoError(b.T, err)
	require.Len(b.T, set.Instances, set.Count)
	out := map[fleet.InstanceName]fleet.ExpectedInstance{}
	for _, e := range set.Instances {
		out[e.Instance] = e
	}
	return out
}

// N33, N79, X28
func TestExpectedSet(t *testing.T) {
	t.Parallel()

	t.Run("lists what is deployed and what is on its way, but no tombstone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		require.Empty(t, b.expected())
		first := b.setVersion()
		b.Put(`{"a":1}`)
		require.Empty(t, b.expected(), "what is only desired is not expected of a node")
		d := b.MustClaim(run1, "1")
		require.Equal(t, map[fleet.InstanceName]fleet.ExpectedInstance{press: {Instance: press, InFlight: true}}, b.expected())
		b.MustRecord(d, nodeA)
		b.MustRecord(d, nodeB)
		b.MustEnd(d, fleet.DeliverySucceeded)
		content := stores.JSONOf(`{"a":1}`)
		require.Equal(t, map[fleet.InstanceName]fleet.ExpectedInstance{
			press: {Instance: press, RevisionHash: content.Hash, Era: 1, Revision: 1, Enabled: true},
		}, b.expected())
		deployed := b.setVersion()
		require.True(t, deployed.Newer(first), "%s after %s", deployed, first)

		b.Turn(fleet.OperationDelete)
		require.Equal(t, deployed, b.setVersion(), "a wish changes nothing")
		b.Deploy("2")
		require.Empty(t, b.expected())
		require.True(t, b.setVersion().Newer(deployed))
	})

	t.Run("says that an unknown delivery is under way", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Put(`{"a":2}`)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "a")
		b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"))
		require.True(t, b.expected()[press].InFlight)
		require.EqualValues(t, 1, b.expected()[press].Revision)
		_, err := b.Settle(t.Context(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: nodeA, Held: fleet.Held{}})
		require.NoError(t, err)
		require.False(t, b.expected()[press].InFlight)
	})

	t.Run("is numbered once by each transaction that changes it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for i := range 8 {
			b.Put(`{"a":1}`, stores.Named(fmt.Sprintf("n%d", i)))
		}
		b.Exec(`INSERT INTO snapshots SELECT site, name, revision, 'x', 1 FROM revisions`)
		require.EqualValues(t, 1, b.setVersion().Number)
		var group errgroup.Group
		for i := range 8 {
			group.Go(func() error {
				_, err := b.Raw.Exec(b.Ctx(), `UPDATE snapshots SET epoch = epoch + 1 WHERE name = $1`, fmt.Sprintf("n%d", i))
				return err
			})
		}
		require.NoError(t, group.Wait())
		require.EqualValues(t, 9, b.setVersion().Number)
		b.RaiseEra()
		require.Equal(t, fleet.SetVersion{Era: 2, Number: 9}, b.setVersion())
	})
}

// N84, N86
func TestReconcileToken(t *testing.T) {
	t.Parallel()

	t.Run("opens one comparison, until it ends or another begins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		open := func(token string) error {
			sum := sha256.Sum256([]byte(token))
			_, err := b.ReconcileOf(t.Context(), sum[:], time.Minute)
			return err
		}
		stores.Refused(t, fleet.Unauthenticated, open("one"))
		begun, pass := b.BeginPass(nodeB, "1", "one")
		require.Equal(t, &fleet.ReconcileCommand{ID: stores.IDOf("1"), Site: stores.Plant, Role: fleet.RoleStandby, Epoch: 1}, begun.Command)
		require.Equal(t, reconcile.Pass{ID: stores.IDOf("1"), Node: nodeB, Site: stores.Plant}, pass)
		b.BeginPass(nodeB, "1", "one again")
		stores.Refused(t, fleet.Unauthenticated, open("one"))
		_, other := b.BeginPass(nodeA, "2", "two")
		require.Equal(t, nodeA, other.Node)
		require.NoError(t, open("one again"), "each node has its own")
		b.BeginPass(nodeB, "3", "three")
		stores.Refused(t, fleet.Unauthenticated, open("one again"))
		require.NoError(t, b.EndReconcile(t.Context(), fleet.ReconcileEnd{ID: stores.IDOf("3"), Node: nodeB, State: fleet.OperationSucceeded}))
		stores.Refused(t, fleet.Unauthenticated, open("three"))
		b.Exec(`UPDATE reconciles SET expires_at = now() WHERE node = $1`, nodeA)
		stores.Refused(t, fleet.Unauthenticated, open("two"))
	})

	t.Run("is not given to a node that cannot be told", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Exec(`UPDATE nodes SET revoked_at = now() WHERE name = $1`, nodeB)
		begun, err := b.BeginReconcile(t.Context(), fleet.ReconcileStart{ID: stores.IDOf("1"), Node: nodeB, TokenHash: make([]byte, 32)})
		require.NoError(t, err)
		require.Nil(t, begun.Command)
		require.Equal(t, "node_not_enrolled", begun.Why)
		_, err = b.BeginReconcile(t.Context(), fleet.ReconcileStart{ID: stores.IDOf("1"), Node: "stranger", TokenHash: make([]byte, 32)})
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("serves the operations that were asked for by then, and no later ones", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ask := func() postgres.Operation {
			op, err := b.AskReconcile(t.Context(), nodes.ReconcileRequest{Request: postgres.Request{Project: stores.Project, Actor: "ann", Limit: time.Minute}, Node: nodeB})
			require.NoError(t, err)
			return op
		}
		first := ask()
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"node.plant-b"}, waiting)
		begun, _ := b.BeginPass(nodeB, "1", "one")
		later := ask()
		end := fleet.ReconcileEnd{ID: stores.IDOf("1"), Node: nodeB, By: begun.By, State: fleet.OperationSucceeded, Reason: "reconciled"}
		for range 2 {
			require.NoError(t, b.EndReconcile(t.Context(), end))
		}
		require.Equal(t, fleet.OperationSucceeded, b.Operation(first.ID).State)
		require.Equal(t, fleet.OperationRunning, b.Operation(later.ID).State)
	})
}

// N55, N58, N84: a ticket is for what is deployed now, for the node that asked.
func TestMakeTickets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 3 {
		b.Put(fmt.Sprintf(`{"a":%d}`, i), stores.Named(fmt.Sprintf("n%d", i)))
	}
	b.Exec(`INSERT INTO snapshots SELECT site, name, revision, 'x', 1 FROM revisions`)
	b.Put(`{"a":9}`)
	b.MustClaim(run1, "1")
	b.Exec(`INSERT INTO snapshots SELECT site, name, revision, 'x', 1 FROM revisions WHERE name = 'press'`)
	_, pass := b.BeginPass(nodeB, "1", "one")
	hash := func(i byte) []byte { sum := sha256.Sum256([]byte{i}); return sum[:] }
	made, err := b.MakeTickets(t.Context(), reconcile.TicketRequest{
		Pass: pass, Names: []fleet.InstanceName{"gone", "n2", press, "n0"}, Life: time.Minute,
		Tokens: [][]byte{hash(0), hash(1), hash(2), hash(3)},
	})
	require.NoError(t, err)
	require.Len(t, made.Commands, 2, "neither what is gone nor what is on its way")
	for i, cmd := range made.Commands {
		require.Equal(t, map[fleet.InstanceName]int{"n2": 1, "n0": 3}[cmd.Instance], made.Order[i])
		require.Equal(t, fleet.RoleStandby, cmd.Role)
		found, err := b.Fetchable(t.Context(), cmd.DeploymentID)
		require.NoError(t, err)
		require.Equal(t, cmd.Revision.Content.Hash, found.Content.Hash)
		require.Equal(t, []deliveries.FetchToken{{Node: nodeB, Hash: hash(byte(made.Order[i]))}}, found.Tokens)
	}
	none, err := b.MakeTickets(t.Context(), reconcile.TicketRequest{Pass: pass, Names: []fleet.InstanceName{"gone"}, Tokens: [][]byte{hash(0)}, Life: time.Minute})
	require.NoError(t, err)
	require.Empty(t, none.Commands)
}

// N101: what a node reports as it is deployed is not owed any more; anything else stays owed.
func TestReportConfirmsWhatIsOwed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Put(`{"a":1}`)
	d := b.MustClaim(run1, "1")
	b.MustRecord(d, nodeA)
	b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
	require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
	other := d.Revision
	other.Content.Hash = stores.JSONOf("other").Hash
	b.Report(nodeB, other)
	require.Len(t, b.Owed(), 1)
	b.Report(nodeB, d.Revision)
	require.Empty(t, b.Owed())

	b.Put(`{"a":2}`) // owed to the active and not deployed: only its delivery can confirm that
	failing := b.MustClaim(run1, "2")
	b.MustEnd(failing, fleet.DeliveryFailed, stores.Because("communication"), stores.Owing)
	require.Len(t, b.Owed(), 1)
	b.Report(nodeA, failing.Revision)
	require.Len(t, b.Owed(), 1)
}

// X12: only nodes that drifted are started, and those not compared for long.
func TestNodesToReconcile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	shard := reconcile.NodeShard{Shards: 1, Full: time.Hour, Lost: time.Hour}
	due := func() []fleet.NodeName {
		t.Helper()
		nodes, err := b.NodesToReconcile(t.Context(), shard, "", 10)
		require.NoError(t, err)
		return nodes
	}
	require.Empty(t, due(), "no node has started")
	for _, n := range []fleet.NodeName{nodeA, nodeB} {
		require.NoError(t, b.NodeReady(t.Context(), n, "s1"))
	}
	require.Equal(t, []fleet.NodeName{nodeA, nodeB}, due(), "they were never compared")
	for i, n := range []fleet.NodeName{nodeA, nodeB} {
		id := fmt.Sprint(i)
		b.BeginPass(n, id, id)
		require.NoError(t, b.EndReconcile(t.Context(), fleet.ReconcileEnd{ID: stores.IDOf(id), Node: n, State: fleet.OperationSucceeded}))
	}
	require.Empty(t, due())
	b.Put(`{"a":1}`)
	b.Deploy("1")
	require.Empty(t, due(), "both hold it")
	b.Exec(`UPDATE node_held SET revision = 0 WHERE node = $1`, nodeB)
	require.Equal(t, []fleet.NodeName{nodeB}, due())
	shard.Settle = time.Hour
	require.Empty(t, due(), "what was just deployed may still be told")
	shard.Settle = 0
	_, err := b.Owe(t.Context(), nodeB, press, b.DeployedRevision().Version)
	require.NoError(t, err)
	require.Empty(t, due(), "it is owed, and that is served by itself")
	b.Exec(`DELETE FROM owed`)
	b.Put(`{"a":2}`)
	b.MustClaim(run1, "2")
	require.Empty(t, due(), "something is on its way")
	b.Exec(`UPDATE nodes SET seen_at = now() - interval '2 hours'`)
	require.Empty(t, due(), "it is compared when it comes back")

	seen := map[fleet.NodeName]int{}
	b.Exec(`UPDATE nodes SET seen_at = now()`)
	b.Exec(`DELETE FROM reconciles`)
	for s := range 3 {
		shard.Shard, shard.Shards = s, 3
		for _, n := range due() {
			seen[n]++
		}
	}
	require.Equal(t, map[fleet.NodeName]int{nodeA: 1, nodeB: 1}, seen, "each node is in one shard")
}

func extra(name fleet.InstanceName, revision int64) fleet.Extra {
	return fleet.Extra{Instance: name, Version: fleet.Version{Era: 1, Revision: revision}, Hash: stores.JSONOf("x").Hash}
}

func (b *bench) orphans(node fleet.NodeName) map[fleet.InstanceName]string {
	b.T.Helper()
	list, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: node}, "", 100)
	require.NoError(b.T, err)
	out := map[fleet.InstanceName]string{}
	for _, o := range list {
		out[o.Instance] = o.Reason
	}
	return out
}

// approve lets node b drop what waits there: those named, or all. It is by who sees all: instances are let go by no other.
func (b *bench) approve(names ...fleet.InstanceName) {
	b.T.Helper()
	_, err := b.ApproveOrphans(b.Ctx(), reconcile.OrphanApproval{
		Request: postgres.Request{Actor: "ann", Limit: time.Minute}, Node: nodeB, All: len(names) == 0, Instances: names,
	})
	require.NoError(b.T, err)
}

// N57, N86, X3, X28
func TestConfirmAbsent(t *testing.T) {
	t.Parallel()

	t.Run("gives the tombstone, up to the cap of the pass", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var extras []fleet.Extra
		for i := range 12 {
			name := fmt.Sprintf("n%02d", i)
			b.Put(`{"a":1}`, stores.Named(name))
			b.Exec(`INSERT INTO revisions (site, name, revision, era, action, enabled, durability, generation, spec, created_by)
				VALUES ('plant', $1, 2, 1, 'delete', false, 'sync', 1, '{}', 'ann')`, name)
			b.Exec(`UPDATE subjects SET last_revision = 2, desired_revision = 2, deleted = true WHERE name = $1`, name)
			b.Exec(`INSERT INTO snapshots VALUES ('plant', $1, 2, 'x', 1)`, name)
			extras = append(extras, extra(fleet.InstanceName(name), 1))
		}
		_, pass := b.BeginPass(nodeB, "1", "one")
		first, err := b.ConfirmAbsent(t.Context(), pass, extras[:1])
		require.NoError(t, err)
		rest, err := b.ConfirmAbsent(t.Context(), pass, extras[1:])
		require.NoError(t, err)
		require.Len(t, first.Drop, 1)
		require.Len(t, rest.Drop, decide.DropCap(0)-1, "the cap is of the pass, not of the call")
		require.Equal(t, fleet.Revision{Version: fleet.Version{Era: 1, Revision: 2}, Action: fleet.ActionDelete}, first.Drop[0].Revision)
		require.Equal(t, map[fleet.InstanceName]string{"n10": fleet.OrphanOverCap, "n11": fleet.OrphanOverCap}, b.orphans(nodeB))

		require.NoError(t, b.ReportReconcile(t.Context(), pass, fleet.ReconcileReport{Dropped: 10, Waiting: 2}))
		_, second := b.BeginPass(nodeB, "2", "two")
		again, err := b.ConfirmAbsent(t.Context(), second, extras[10:])
		require.NoError(t, err)
		require.Empty(t, again.Drop, "what waits for an operator does not go pass by pass")

		b.approve("n11")
		_, third := b.BeginPass(nodeB, "3", "three")
		last, err := b.ConfirmAbsent(t.Context(), third, extras[10:])
		require.NoError(t, err)
		require.Len(t, last.Drop, 1)
		require.Equal(t, fleet.InstanceName("n11"), last.Drop[0].Instance)
		require.Equal(t, []fleet.Differs{{Instance: "n10", Why: fleet.OrphanOverCap}}, last.Wait)

		_, fourth := b.BeginPass(nodeB, "4", "four")
		require.NoError(t, b.ReportReconcile(t.Context(), fourth, fleet.ReconcileReport{}))
		require.Empty(t, b.orphans(nodeB), "what a whole pass does not find waits no more")
	})

	t.Run("keeps what a refused set did not look at listed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, pass := b.BeginPass(nodeB, "1", "one")
		_, err := b.ConfirmAbsent(t.Context(), pass, []fleet.Extra{extra("stray", 3)})
		require.NoError(t, err)
		_, later := b.BeginPass(nodeB, "2", "two")
		require.NoError(t, b.ReportReconcile(t.Context(), later, fleet.ReconcileReport{Refused: decide.SetOlder}))
		require.Len(t, b.orphans(nodeB), 1)
	})

	t.Run("lists a name that the region never knew, and buries it when an operator says so", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, pass := b.BeginPass(nodeB, "1", "one")
		ask := func(held int64) fleet.Absence {
			out, err := b.ConfirmAbsent(t.Context(), pass, []fleet.Extra{extra("stray", held)})
			require.NoError(t, err)
			return out
		}
		require.Equal(t, []fleet.Differs{{Instance: "stray", Why: fleet.OrphanNeverKnown}}, ask(3).Wait)
		b.approve()
		require.Empty(t, ask(4).Drop, "another revision than the one that was approved")
		b.approve()
		drop := ask(4).Drop
		require.Len(t, drop, 1)
		require.Equal(t, fleet.Version{Era: 1, Revision: 5}, drop[0].Revision.Version)
		started := b.Put(`{"a":1}`, stores.Named("stray"))
		require.EqualValues(t, 6, started.Operation.Revision, "the name's numbers go on above it")
	})

	t.Run("keeps what is expected, under way, owed or not recorded", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, pass := b.BeginPass(nodeB, "1", "one")
		why := func() string {
			t.Helper()
			out, err := b.ConfirmAbsent(t.Context(), pass, []fleet.Extra{extra(press, 1)})
			require.NoError(t, err)
			require.Len(t, out.Keep, 1)
			return out.Keep[0].Why
		}
		b.Put(`{"a":1}`)
		require.Equal(t, "not_recorded", why())
		d := b.MustClaim(run1, "1")
		require.Equal(t, "under_way", why())
		b.MustRecord(d, nodeA)
		b.MustEnd(d, fleet.DeliveryFailed, stores.Because("not_replicated"))
		require.Equal(t, "owed", why())
		b.Report(nodeB, d.Revision)
		require.Equal(t, "expected", why())
	})
}
