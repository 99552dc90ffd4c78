package deliveries_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// N18
func TestNumbers(t *testing.T) {
	t.Parallel()

	t.Run("have no gap, and go on over delete and re-create", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		next := int64(0)
		is := func(out postgres.Started) {
			t.Helper()
			next++
			require.Equal(t, next, out.Operation.Revision)
		}
		is(b.Put(`{"a":1}`))
		is(b.Turn(fleet.OperationDisable))
		is(b.Turn(fleet.OperationEnable))
		b.Deploy("1")
		is(b.Turn(fleet.OperationDelete))
		b.Deploy("2")
		is(b.Put(`{"a":1}`))
		is(b.Put(`{"a":2}`))
		b.Deploy("3")
		is(b.Turn(fleet.OperationRollback))
		require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7},
			stores.Scan[[]int64](b, "SELECT array_agg(revision ORDER BY revision) FROM revisions"))
	})

	t.Run("have no gap whoever else writes, fails or only tries", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const writers = 24
		changes := make([]deliveries.InstanceChange, writers)
		for i := range changes {
			changes[i] = b.ChangeOf(fmt.Sprintf(`{"a":%d}`, i))
			changes[i].DryRun = i%4 == 1
			if i%4 == 2 {
				changes[i].IfMatch = 1 << 40 // nobody ever read that
			}
		}
		require.NoError(t, stores.AtOnce(writers, func(i int) error {
			_, err := b.PutInstance(t.Context(), changes[i])
			if i%4 == 2 && fleet.KindOf(err) == fleet.Precondition {
				return nil
			}
			return err
		}))
		require.Equal(t, []int64{12, 12, 1, 12}, stores.Scan[[]int64](b, `SELECT ARRAY[count(*), max(revision), min(revision),
			(SELECT last_revision FROM subjects)] FROM revisions`))
	})

	t.Run("are each name's own", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		require.EqualValues(t, 1, b.Put(`{"a":1}`, stores.Named("other")).Operation.Revision)
	})

	t.Run("of enabling and disabling carry the same hash, of a delete none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Turn(fleet.OperationDisable)
		b.Turn(fleet.OperationEnable)
		b.Turn(fleet.OperationDelete)
		hash := stores.JSONOf(`{"a":1}`).Hash
		for i, want := range []fleet.Revision{
			{Action: fleet.ActionDeploy, Content: fleet.Content{Hash: hash}, Enabled: true},
			{Action: fleet.ActionDisable, Content: fleet.Content{Hash: hash}},
			{Action: fleet.ActionEnable, Content: fleet.Content{Hash: hash}, Enabled: true},
			{Action: fleet.ActionDelete},
		} {
			got, err := b.RevisionOf(t.Context(), pressKey, int64(i+1))
			require.NoError(t, err)
			require.Equal(t, want.Action, got.Action)
			require.Equal(t, want.Content.Hash, got.Content.Hash)
			require.Equal(t, want.Enabled, got.Enabled)
		}
	})
}

// X13, N21, N105
func TestClaim(t *testing.T) {
	t.Parallel()

	t.Run("writes the delivery, its pending row and its targets before anybody is told", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		out := b.Put(`{"a":2}`)
		d := b.MustClaim(run1, "2")
		require.EqualValues(t, 2, d.Revision.Version.Revision)
		require.Equal(t, nodeA, d.Node)
		require.EqualValues(t, 1, d.Epoch)
		require.Equal(t, []fleet.TargetSeen{
			{Node: nodeA, Role: fleet.RoleActive, State: fleet.TargetWaiting},
			{Node: nodeB, Role: fleet.RoleStandby, State: fleet.TargetWaiting},
		}, d.Targets)
		require.Equal(t, string(d.ID), stores.Scan[string](b, "SELECT deployment_id FROM pending"))
		require.Equal(t, d.ID, b.Operation(out.Operation.ID).Delivery)

		kept := b.Delivery(d.ID)
		require.Equal(t, "ann", kept.RequestedBy)
		require.Equal(t, "because", kept.Why)
		require.EqualValues(t, 1, kept.FromRevision)
		require.EqualValues(t, 1, kept.FromGeneration)
		require.EqualValues(t, 2, kept.Generation)
		require.Equal(t, run1, kept.RunID)
		require.Equal(t, "instance.plant.press", kept.WorkflowID)
	})

	t.Run("again in the same step gives the same delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		again, err := b.Claim(t.Context(), stores.ClaimOf(run1, "1"))
		require.NoError(t, err)
		require.Equal(t, d.ID, again.Open.ID)
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("again after the run lost the subject mints nothing and deletes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.MustClaim(run1, "1")
		newer := b.MustClaim(run2, "1")
		seen, err := b.Claim(t.Context(), stores.ClaimOf(run1, "1"))
		require.NoError(t, err)
		require.Equal(t, newer.ID, seen.Open.ID, "it sees what is open now")
		require.Equal(t, string(newer.ID), stores.Scan[string](b, "SELECT deployment_id FROM pending"))
		require.Equal(t, 2, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("of a run that does not speak for the subject any more is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.MustObserve(run1)
		d := b.MustClaim(run2, "1")
		_, err := b.Claim(t.Context(), stores.ClaimOf(run1, "1"))
		stores.Refused(t, fleet.Conflict, err)
		require.Equal(t, d.ID, b.MustObserve(run2).Open.ID)
		require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("of nothing that was ever released is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.Claim(t.Context(), stores.ClaimOf(run1, "1"))
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("does not take a failing database for a site without an active node", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		d := b.MustClaim(run1, "1")
		b.Exec("ALTER TABLE site_leases RENAME TO elsewhere")
		_, err := b.Claim(t.Context(), stores.ClaimOf(run1, "2"))
		stores.Refused(t, fleet.Internal, err)
		_, err = b.Prepare(t.Context(), fleet.Prepare{Subject: stores.SubjectOf(run1), Delivery: d.ID, Node: nodeA, TTL: minute})
		stores.Refused(t, fleet.Internal, err)
	})

	t.Run("leaves workers out", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		spec := stores.TwoNodes(nodeA, nodeB)
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: "plant-w", Role: fleet.RoleWorker})
		_, err := b.Declare(t.Context(), stores.WriteOf(stores.SiteKey), spec)
		require.NoError(t, err)
		b.Put(`{"a":1}`)
		require.Len(t, b.MustClaim(run1, "1").Targets, 2)
	})

	t.Run("speaks to the holder of the lease, whatever its configured role", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Exec("UPDATE site_leases SET holder = $1, epoch = 5, promised = 5", nodeB)
		d := b.MustClaim(run1, "1")
		require.Equal(t, nodeB, d.Node)
		require.EqualValues(t, 5, d.Epoch)
		require.Equal(t, []fleet.TargetSeen{
			{Node: nodeB, Role: fleet.RoleActive, State: fleet.TargetWaiting},
			{Node: nodeA, Role: fleet.RoleStandby, State: fleet.TargetWaiting},
		}, d.Targets)
		require.Equal(t, fleet.RoleActive, b.Notify(d.ID, nodeB, "b").Command.Role)
		require.Equal(t, fleet.RoleStandby, b.Notify(d.ID, nodeA, "a").Command.Role)
	})
}

// N16, N17, N18, N74
func TestSupersede(t *testing.T) {
	t.Parallel()

	t.Run("leaves one pending row and one open delivery under 50 claimers", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		changes := make([]deliveries.InstanceChange, 10)
		for i := range changes {
			changes[i] = b.ChangeOf(fmt.Sprintf(`{"a":%d}`, i+1))
		}
		b.Exec(`CREATE TABLE seen (pending bigint, open bigint)`)
		b.Exec(`CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO seen SELECT (SELECT count(*) FROM pending), (SELECT count(*) FROM deliveries WHERE state = 'open');
			RETURN NULL; END $$`)
		b.Exec(`CREATE CONSTRAINT TRIGGER look AFTER INSERT ON pending DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()`)
		b.MustObserve(run1)
		require.NoError(t, stores.AtOnce(60, func(i int) error {
			if i < len(changes) {
				_, err := b.PutInstance(t.Context(), changes[i])
				return err
			}
			_, err := b.Claim(t.Context(), stores.ClaimOf(run1, fmt.Sprint(i)))
			return err
		}))
		last := b.MustClaim(run1, "last")
		require.EqualValues(t, 11, last.Revision.Version.Revision)
		require.Equal(t, []int64{51, 1, 1}, stores.Scan[[]int64](b, "SELECT ARRAY[count(*), max(pending), max(open)] FROM seen"))
		require.Equal(t, string(last.ID), stores.Scan[string](b, "SELECT string_agg(deployment_id, ',') FROM pending"))
		require.Equal(t, 51, stores.Scan[int](b, "SELECT max(attempt) FROM deliveries"))
		require.Equal(t, 50, stores.Scan[int](b, "SELECT count(*) FROM deliveries WHERE state = 'superseded' AND ended_at IS NOT NULL"))
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM deliveries a JOIN deliveries b ON a.attempt < b.attempt
			WHERE a.revision > b.revision`), "attempts go on in the order of revisions")
	})

	t.Run("cannot be got round: the constraints hold by themselves", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.MustClaim(run1, "1")
		const copied = `INSERT INTO deliveries SELECT (jsonb_populate_record(d, '{"id":"00000000000000000000000000000001","claim":"x","attempt":9}')).* FROM deliveries d`
		_, err := b.Raw.Exec(t.Context(), copied)
		require.ErrorContains(t, err, "one_open_delivery")
		_, err = b.Raw.Exec(t.Context(), `UPDATE deliveries SET state = 'failed'`)
		require.NoError(t, err)
		b.Exec(copied)
		_, err = b.Raw.Exec(t.Context(), `INSERT INTO pending SELECT (jsonb_populate_record(p,
			'{"deployment_id":"00000000000000000000000000000001"}')).* FROM pending p`)
		require.ErrorContains(t, err, "pending_site_name_key")
	})

	t.Run("settles what the active had recorded as applied, and what nobody was told as not", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		recorded := b.MustClaim(run1, "1")
		b.Notify(recorded.ID, nodeA, "1")
		b.MustRecord(recorded, nodeA)
		b.Put(`{"a":2}`)
		untold := b.MustClaim(run1, "2")
		b.Put(`{"a":3}`)
		told := b.MustClaim(run1, "3")
		b.Notify(told.ID, nodeA, "3")
		b.Put(`{"a":4}`)
		b.MustClaim(run1, "4")

		require.Equal(t, fleet.SettledApplied, b.Delivery(recorded.ID).SettledAs)
		require.Equal(t, fleet.SettledNotApplied, b.Delivery(untold.ID).SettledAs)
		require.Empty(t, b.Delivery(told.ID).SettledAs, "only the node knows")
		for _, d := range []*fleet.DeliverySeen{recorded, untold, told} {
			require.Equal(t, fleet.DeliverySuperseded, b.Delivery(d.ID).State)
			require.NotNil(t, b.Delivery(d.ID).EndedAt)
		}
		require.Equal(t, []fleet.Version{told.Revision.Version}, b.MustObserve(run1).Unsettled)
		require.Equal(t, recorded.Revision.Version, b.DeployedRevision().Version)
	})

	t.Run("ends the operations of older revisions, and keeps which delivery was theirs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		older := b.Put(`{"a":1}`).Operation
		d := b.MustClaim(run1, "1")
		newer := b.Put(`{"a":2}`).Operation
		require.Equal(t, fleet.OperationRunning, b.Operation(older.ID).State)
		b.MustClaim(run1, "2")
		ended := b.Operation(older.ID)
		require.Equal(t, fleet.OperationSuperseded, ended.State)
		require.Equal(t, "newer_revision", ended.Reason)
		require.NotNil(t, ended.EndedAt)
		require.Equal(t, d.ID, ended.Delivery)
		require.Equal(t, fleet.OperationRunning, b.Operation(newer.ID).State)
	})

	t.Run("by the same revision for another holder ends no operation", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		b.MustClaim(run1, "1")
		b.MoveLease(nodeB)
		d := b.MustClaim(run1, "2")
		require.Equal(t, nodeB, d.Node)
		require.EqualValues(t, 2, d.Epoch)
		require.Equal(t, fleet.OperationRunning, b.Operation(op.ID).State)
		require.Equal(t, d.ID, b.Operation(op.ID).Delivery)
	})
}

// X2, X22
func TestOutbox(t *testing.T) {
	t.Parallel()

	t.Run("keeps the wake until the entity has read what it is about", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Put(`{"a":2}`)
		waiting, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.press"}, waiting)
		seen := b.MustObserve(run1)
		require.Equal(t, 2, seen.Asked)
		require.EqualValues(t, 2, seen.Desired.Version.Revision)
		waiting, err = b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Empty(t, waiting)
	})

	t.Run("keeps the trace of the request that asked first", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		for _, trace := range []string{"1", "2"} {
			of := propagation.MapCarrier{"traceparent": "00-" + strings.Repeat(trace, 32) + "-b7ad6b7169203331-01"}
			_, err := b.PutInstance(propagation.TraceContext{}.Extract(t.Context(), of), b.ChangeOf(`{"b":`+trace+`}`))
			require.NoError(t, err)
		}
		trace, err := b.WakeTrace(t.Context(), "instance.plant.press")
		require.NoError(t, err)
		require.Equal(t, "00-"+strings.Repeat("1", 32)+"-b7ad6b7169203331-01", trace)
		b.MustObserve(run1)
		trace, err = b.WakeTrace(t.Context(), "instance.plant.press")
		require.NoError(t, err)
		require.Empty(t, trace, "who comes later has a trace of its own")
	})

	t.Run("lists only what waits for longer than asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Put(`{"a":1}`, stores.Named("old"))
		b.Exec("UPDATE outbox SET created_at = now() - interval '10 s' WHERE subject = 'instance.plant.old'")
		waiting, err := b.WaitingWakes(t.Context(), 5*minute/60, 10)
		require.NoError(t, err)
		require.Equal(t, []string{"instance.plant.old"}, waiting)
	})

	t.Run("never loses what is written while the entity reads", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		const writers = 30
		changes := make([]deliveries.InstanceChange, writers)
		for i := range changes {
			changes[i] = b.ChangeOf(fmt.Sprintf(`{"a":%d}`, i+1))
		}
		require.NoError(t, stores.AtOnce(2*writers, func(i int) error {
			if i < writers {
				_, err := b.PutInstance(t.Context(), changes[i])
				return err
			}
			seen, err := b.Observe(t.Context(), stores.SubjectOf(run1))
			if err != nil {
				return err
			}
			waits, err := b.WaitingWakes(t.Context(), 0, 1)
			if err == nil && len(waits) == 0 && seen.Desired.IsZero() {
				return fmt.Errorf("the entity saw nothing and nothing wakes it")
			}
			return err
		}))
		seen := b.MustObserve(run1)
		require.EqualValues(t, writers+1, seen.Desired.Version.Revision)
		require.Equal(t, writers+1, seen.Asked)
	})

	t.Run("a newer run takes the open operations over", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		op := b.Put(`{"a":1}`).Operation
		b.MustObserve(run1)
		require.Equal(t, run1, b.Operation(op.ID).EntityRun)
		require.Equal(t, "build-1", b.Operation(op.ID).EntityBuild)
		b.MustObserve(run2)
		require.Equal(t, run2, b.Operation(op.ID).EntityRun)
	})
}

// N60, X4, X21: a delivery follows its active to a higher epoch as the same attempt, as in the first seconds of a new pair.
func TestClaimFollowsTheLease(t *testing.T) {
	t.Parallel()
	told := func(b *bench, d *fleet.DeliverySeen, node fleet.NodeName) {
		b.Notify(d.ID, node, "secret "+string(node))
	}
	says := func(b *bench, d *fleet.DeliverySeen, reason fleet.Kind) {
		told(b, d, nodeA)
		b.MustMiss(d.ID, nodeA, fleet.TargetFailed, reason)
	}
	for _, c := range []struct {
		name   string
		before func(b *bench, d *fleet.DeliverySeen)
		to     fleet.NodeName
		states []fleet.TargetState // none if it is superseded
	}{
		{"one that no node was notified of", func(*bench, *fleet.DeliverySeen) {
		}, nodeA, []fleet.TargetState{fleet.TargetWaiting, fleet.TargetWaiting}},
		{"one that the node refused, as it did not hold the lease yet", func(b *bench, d *fleet.DeliverySeen) {
			says(b, d, fleet.Stale)
		}, nodeA, []fleet.TargetState{fleet.TargetWaiting, fleet.TargetWaiting}},
		{"one that the standby is at", func(b *bench, d *fleet.DeliverySeen) {
			b.MustRecord(d, nodeA)
			told(b, d, nodeB)
		}, nodeA, []fleet.TargetState{fleet.TargetApplied, fleet.TargetNotified}},
		{"not one that the active may be at", func(b *bench, d *fleet.DeliverySeen) { told(b, d, nodeA) }, nodeA, nil},
		{"not one that the active failed", func(b *bench, d *fleet.DeliverySeen) { says(b, d, fleet.ApplyFailed) }, nodeA, nil},
		{"not past an epoch of another node", func(b *bench, _ *fleet.DeliverySeen) {
			b.MoveLease(nodeB)
		}, nodeA, nil},
		{"not to another node", func(b *bench, d *fleet.DeliverySeen) { says(b, d, fleet.Stale) }, nodeB, nil},
		{"not to another revision", func(b *bench, _ *fleet.DeliverySeen) { b.Put(`{"a":2}`) }, nodeA, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.Put(`{"a":1}`)
			first := b.MustClaim(run1, "1")
			c.before(b, first)
			b.MoveLease(c.to)
			next := b.MustClaim(run1, "2")
			require.Equal(t, next, b.MustClaim(run1, "2"), "the same claim again changes nothing")
			if c.states == nil {
				require.NotEqual(t, first.ID, next.ID)
				require.Equal(t, fleet.DeliverySuperseded, b.Delivery(first.ID).State)
				return
			}
			require.Equal(t, first.ID, next.ID)
			require.Equal(t, first.Epoch+1, next.Epoch)
			require.Equal(t, c.states, []fleet.TargetState{next.Targets[0].State, next.Targets[1].State})
			require.Equal(t, 1, stores.Scan[int](b, "SELECT count(*) FROM deliveries"))
			require.Equal(t, first.Epoch+1, b.Notify(first.ID, nodeB, "new").Command.Epoch)
			b.MustRecord(first, nodeA)
			b.MustRecord(first, nodeB)
			require.EqualValues(t, 1, b.DeployedRevision().Version.Revision)
			require.Empty(t, b.Owed())
		})
	}
}
