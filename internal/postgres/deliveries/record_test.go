package deliveries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N12, N13, N83, N89, X4
func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("of the active deploys the snapshot and owes it to the standby, at once or not at all", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "secret")
		require.True(t, b.DeployedRevision().IsZero(), "pending is not deployed")

		b.Exec(`CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no owed'; END $$`)
		b.Exec(`CREATE TRIGGER fail BEFORE INSERT ON owed FOR EACH ROW EXECUTE FUNCTION fail()`)
		_, err := b.Record(t.Context(), stores.RecordOf(d.ID, nodeA, d.Revision))
		stores.Refused(t, fleet.Internal, err)
		require.True(t, b.DeployedRevision().IsZero())
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM node_held"))
		b.Exec(`DROP TRIGGER fail ON owed`)

		seen := b.MustRecord(d, nodeA)
		require.Equal(t, d.Revision, seen.Snapshot)
		require.Equal(t, d.Revision, b.DeployedRevision())
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
		require.Equal(t, []fleet.OwedSeen{{Node: nodeB, Role: fleet.RoleStandby, Revision: d.Revision.Version}}, seen.Owed)
		require.Equal(t, fleet.TargetApplied, seen.Open.Active().State)
		require.Equal(t, "recorded", b.Delivery(d.ID).Phase)
	})

	t.Run("of the standby takes back what it was owed and deploys nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeB)
		require.True(t, b.DeployedRevision().IsZero())
		b.MustRecord(d, nodeA)
		b.MustRecord(d, nodeB)
		require.Empty(t, b.Owed())
	})

	t.Run("shows what each node holds", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		v, err := b.ViewInstance(t.Context(), pressKey)
		require.NoError(t, err)
		require.Len(t, v.Nodes, 2)
		require.Equal(t, nodeA, v.Nodes[0].Node)
		require.Equal(t, d.Revision.Version, v.Nodes[0].Version)
		require.Equal(t, stores.JSONOf(`{"a":1}`).Hash, v.Nodes[0].Hash)
		require.True(t, v.Nodes[0].Running)
		require.Zero(t, v.Nodes[1].Version)
		require.EqualValues(t, 1, v.Nodes[1].Owed)
		require.Equal(t, d.Revision, v.Snapshot)
		require.Equal(t, d.ID, v.Last.ID)
	})
}

// X13
func TestRecordAgain(t *testing.T) {
	t.Parallel()

	t.Run("changes nothing, whoever confirmed since", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.MustRecord(d, nodeA)
		b.MustRecord(d, nodeA)
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
		b.MustRecord(d, nodeB)
		b.MustRecord(d, nodeA)
		require.Empty(t, b.Owed(), "the standby has confirmed it")
		b.MustEnd(d, fleet.DeliverySucceeded)
		seen := b.MustRecord(d, nodeA)
		require.Empty(t, seen.Owed)
		require.Equal(t, fleet.DeliverySucceeded, b.Delivery(d.ID).State)
		b.MustRecord(d, nodeB)
		require.Empty(t, b.Owed())
	})

	t.Run("and late never lowers the snapshot, nor owes what is old", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.MustClaim(run1, "1")
		b.Notify(old.ID, nodeA, "old")
		b.Put(`{"a":2}`)
		d := b.Deploy("2")
		seen := b.MustRecord(old, nodeA)
		require.Equal(t, d.Revision.Version, seen.Snapshot.Version)
		require.Equal(t, d.Revision.Version, b.DeployedRevision().Version)
		require.Empty(t, b.Owed())
		v, err := b.ViewInstance(t.Context(), pressKey)
		require.NoError(t, err)
		require.Equal(t, d.Revision.Version, v.Nodes[0].Version, "what it held then is not what it holds now")
	})

	t.Run("and late deploys what was superseded in mid-flight, while nothing newer is deployed", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		old := b.MustClaim(run1, "1")
		b.Notify(old.ID, nodeA, "old")
		b.Put(`{"a":2}`)
		newer := b.MustClaim(run1, "2")
		seen := b.MustRecord(old, nodeA)
		require.Equal(t, old.Revision.Version, seen.Snapshot.Version)
		require.Equal(t, newer.ID, seen.Open.ID)
		require.Equal(t, fleet.TargetWaiting, seen.Open.Active().State)
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
		require.Equal(t, fleet.DeliverySuperseded, b.Delivery(old.ID).State)
		require.Equal(t, fleet.SettledApplied, b.Delivery(old.ID).SettledAs)
	})

	t.Run("at once by many leaves what one would", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		require.NoError(t, stores.AtOnce(16, func(i int) error {
			node := []fleet.NodeName{nodeA, nodeB}[i%2]
			_, err := b.Record(t.Context(), stores.RecordOf(d.ID, node, d.Revision))
			return err
		}))
		b.MustRecord(d, nodeB) // an answer of the standby may have come before the active's
		require.Empty(t, b.Owed())
		require.Equal(t, d.Revision, b.DeployedRevision())
	})

	t.Run("of the same revision, delivered again, owes it to the standby again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDeploy)
		d := b.MustClaim(run1, "2")
		b.MustRecord(d, nodeA)
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
	})
}

// X21, X13
func TestEpochMoved(t *testing.T) {
	t.Parallel()

	t.Run("nothing is recorded, nothing more is told, and the next claim is of the new epoch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`, stores.As(fleet.DurabilityAsync)).Operation
		d := b.MustClaim(run1, "1")
		b.Notify(d.ID, nodeA, "secret")
		b.MoveLease(nodeB)

		var stale []audit.Refusal
		b.OnRefusal(func(r audit.Refusal) { stale = append(stale, r) })
		seen, err := b.Record(t.Context(), stores.RecordOf(d.ID, nodeA, d.Revision))
		require.NoError(t, err)
		require.True(t, seen.Snapshot.IsZero())
		require.Equal(t, fleet.TargetNotified, seen.Open.Targets[0].State)
		require.Equal(t, nodeB, seen.Holder)
		require.EqualValues(t, 2, seen.Epoch)
		require.Empty(t, b.Owed())
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM node_held"))
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
		require.Equal(t, []audit.Refusal{{
			Door: "record", Identity: "node:" + string(nodeA), Reason: audit.StaleEpoch, Times: 1,
			What: "delivery " + string(d.ID) + " of " + stores.SubjectOf(run1).Key().String() + " at epoch 1; the lease is at 2",
		}}, stale)
		w, err := b.Prepare(t.Context(), fleet.Prepare{Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, TTL: minute})
		require.NoError(t, err)
		require.Nil(t, w.Prepared)

		next := b.MustClaim(run1, "2")
		require.Equal(t, nodeB, next.Node)
		b.MustRecord(next, nodeB)
		require.Equal(t, d.Revision.Version, b.DeployedRevision().Version)
		require.Equal(t, []string{"plant-a 1 due replicating"}, b.Owed(), "the new active owes itself nothing")
	})

	t.Run("the epoch never falls, also when a site had no node in between", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.MoveLease(nodeB)
		require.EqualValues(t, 2, stores.Scan[int64](b, "SELECT epoch FROM site_leases"))
		require.NoError(t, b.RevokeNode(t.Context(), nodeA)) // nobody decides there any more
		require.NoError(t, b.RevokeNode(t.Context(), nodeB))
		_, err := b.Declare(t.Context(), stores.WriteOf(stores.SiteKey), fleet.SiteSpec{})
		require.NoError(t, err)
		b.Put(`{"a":1}`)
		require.Empty(t, b.MustObserve(run1).Holder, "there is no active node")
		_, err = b.Claim(t.Context(), stores.ClaimOf(run1, "1"))
		stores.Refused(t, fleet.NotFound, err)
		b.PutSite(plant, nodeB, nodeA)
		require.Equal(t, nodeB, b.MustObserve(run1).Holder)
		require.Greater(t, b.MustClaim(run1, "2").Epoch, int64(2))
	})

	t.Run("a claim and a change of the lease exclude each other", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		tx, err := b.Raw.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = tx.Exec(t.Context(), "UPDATE site_leases SET holder = $1, epoch = epoch + 1, promised = epoch + 1", nodeB)
		require.NoError(t, err)
		done := make(chan fleet.InstanceSeen, 1)
		go func() {
			seen, err := b.Record(t.Context(), stores.RecordOf(d.ID, nodeA, d.Revision))
			if err == nil {
				done <- seen
			}
			close(done)
		}()
		b.WaitsForLock(1)
		require.NoError(t, tx.Commit(t.Context()))
		seen, ok := <-done
		require.True(t, ok)
		require.True(t, seen.Snapshot.IsZero(), "it was recorded for a node that had lost the lease")
	})
}

// N81, N87
func TestSettle(t *testing.T) {
	t.Parallel()

	// lost is a delivery whose answer never came.
	lost := func(b *bench, body, step string) *fleet.DeliverySeen {
		b.Put(body)
		d := b.MustClaim(run1, step)
		b.Notify(d.ID, nodeA, step)
		b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"), stores.Owing)
		return d
	}
	settle := func(b *bench, node fleet.NodeName, held fleet.Held) fleet.InstanceSeen {
		b.T.Helper()
		seen, err := b.Settle(b.Ctx(), fleet.Settle{Subject: stores.SubjectOf(run1), Node: node, Held: held})
		require.NoError(b.T, err)
		return seen
	}

	t.Run("as applied promotes what the active turns out to hold", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := lost(b, `{"a":1}`, "1")
		require.Equal(t, fleet.DeliveryUnknown, b.Delivery(d.ID).State)
		require.Empty(t, b.Delivery(d.ID).SettledAs)
		require.Equal(t, []fleet.Version{d.Revision.Version}, b.MustObserve(run1).Unsettled)
		require.Equal(t, []string{"plant-a 1 parked no_answer"}, b.Owed())

		seen := settle(b, nodeA, stores.Holding(d.Revision))
		require.Equal(t, d.Revision, seen.Snapshot)
		require.Empty(t, seen.Unsettled)
		require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, fleet.DeliveryUnknown, b.Delivery(d.ID).State, "how it ended stays")
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed(), "the active has confirmed")
	})

	t.Run("as not applied by what the active holds instead", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		before := b.Deploy("0")
		d := lost(b, `{"a":1}`, "1")
		seen := settle(b, nodeA, stores.Holding(before.Revision))
		require.Equal(t, before.Revision, seen.Snapshot)
		require.Empty(t, seen.Unsettled)
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, []string{"plant-a 2 parked no_answer"}, b.Owed(), "it still should")
	})

	t.Run("as not applied by an active that never heard of the name", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := lost(b, `{"a":1}`, "1")
		require.True(t, settle(b, nodeA, fleet.Held{}).Snapshot.IsZero())
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(d.ID).SettledAs)
		require.Zero(t, stores.Scan[int](b, "SELECT count(*) FROM node_held"))
	})

	t.Run("says nothing by what another node holds", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := lost(b, `{"a":1}`, "1")
		require.Len(t, settle(b, nodeB, stores.Holding(d.Revision)).Unsettled, 1)
		require.Empty(t, b.Delivery(d.ID).SettledAs)
		require.True(t, b.DeployedRevision().IsZero())
	})

	t.Run("of several takes each by its own number, and the same number of another era as another", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one := lost(b, `{"a":1}`, "1")
		two := lost(b, `{"a":2}`, "2")
		three := lost(b, `{"a":3}`, "3")
		held := stores.Holding(two.Revision)
		held.Era, held.HighWater.Era = 7, 7
		require.Len(t, b.MustObserve(run1).Unsettled, 3)
		settle(b, nodeA, held)
		for _, d := range []*fleet.DeliverySeen{one, two, three} {
			require.Equal(t, fleet.SettledNotApplied, b.Delivery(d.ID).SettledAs)
		}
	})

	t.Run("of several promotes the one that is held", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		one := lost(b, `{"a":1}`, "1")
		two := lost(b, `{"a":2}`, "2")
		three := lost(b, `{"a":3}`, "3")
		require.Equal(t, two.Revision.Version, settle(b, nodeA, stores.Holding(two.Revision)).Snapshot.Version)
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(one.ID).SettledAs)
		require.Equal(t, fleet.SettledApplied, b.Delivery(two.ID).SettledAs)
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(three.ID).SettledAs)
		require.Equal(t, []string{"plant-a 3 parked no_answer", "plant-b 2 due replicating"}, b.Owed())
	})

	t.Run("comes also with the record of the next delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := lost(b, `{"a":1}`, "1")
		b.Turn(fleet.OperationDeploy)
		again := b.MustClaim(run1, "2")
		b.MustRecord(again, nodeA)
		require.Equal(t, fleet.SettledApplied, b.Delivery(d.ID).SettledAs)
		require.Equal(t, []string{"plant-b 1 due replicating"}, b.Owed())
	})

	t.Run("by the record of a new holder owes that holder nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		lost(b, `{"a":1}`, "1")
		b.MoveLease(nodeB)
		b.Turn(fleet.OperationDeploy)
		d := b.MustClaim(run1, "2")
		require.Equal(t, nodeB, d.Node)
		seen := b.MustRecord(d, nodeB)
		for _, o := range seen.Owed {
			require.NotEqual(t, nodeB, o.Node, "it has just applied it")
		}
	})

	t.Run("of a delete that was applied takes the object away", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		b.Turn(fleet.OperationDelete)
		d := b.MustClaim(run1, "2")
		b.Notify(d.ID, nodeA, "2")
		b.MustEnd(d, fleet.DeliveryUnknown, stores.Because("no_answer"), stores.Owing)
		_, err := b.GetObject(t.Context(), pressKey)
		require.NoError(t, err, "nobody knows yet")
		require.Equal(t, d.Revision.Version, settle(b, nodeA, stores.Holding(d.Revision)).Snapshot.Version)
		_, err = b.GetObject(t.Context(), pressKey)
		stores.Refused(t, fleet.NotFound, err)
		require.True(t, stores.Scan[bool](b, "SELECT deleted FROM subjects"))
		require.Equal(t, []string{"plant-b 2 due replicating"}, b.Owed(), "the standby still has to forget it")
	})
}
