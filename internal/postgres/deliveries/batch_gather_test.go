package deliveries_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) gather(id fleet.BatchID) deliveries.BatchGathered {
	b.T.Helper()
	out, err := b.GatherBatch(b.Ctx(), deliveries.BatchGather{
		ID: id, Site: plant, Workflow: "deliver." + string(plant), Run: "gather-run", Build: "b1", Deadline: time.Hour, TTL: 5 * minute,
	})
	require.NoError(b.T, err)
	return out
}

// outbox counts what nobody has taken yet.
func (b *bench) outbox() int64 {
	return stores.Scan[int64](b, `SELECT count(DISTINCT subject) FROM outbox`)
}

// N98, N16, N78, X2, X6, X25
func TestGatherBatch(t *testing.T) {
	t.Parallel()
	setupPuts := func(t *testing.T, n int) (*bench, []postgres.Started) {
		t.Helper()
		b := setup(t)
		var all []postgres.Started
		for i := range n {
			all = append(all, b.Put(fmt.Sprintf(`{"a":%d}`, i), stores.Named(fmt.Sprintf("g%d", i))))
		}
		return b, all
	}

	t.Run("delivers all that was asked for, and ends each operation", func(t *testing.T) {
		t.Parallel()
		b, all := setupPuts(t, 3)
		id := batchID(1)
		for most, want := range map[int]int{2: 2, 9: 3} {
			waiting, err := b.Waiting(t.Context(), plant, most)
			require.NoError(t, err)
			require.Equal(t, want, waiting)
		}
		got := b.gather(id)
		require.Equal(t, 3, got.Claimed)
		require.Empty(t, got.Left)
		require.Zero(t, b.outbox())
		op := b.Operation(all[0].Operation.ID)
		require.Equal(t, "gather-run", op.EntityRun)
		require.NotEmpty(t, op.Delivery)
		for _, node := range got.Nodes {
			b.apply(id, node)
		}
		require.Equal(t, 3, b.endBatch(id).Succeeded)
		for _, s := range all {
			require.Equal(t, fleet.OperationSucceeded, b.Operation(s.Operation.ID).State)
		}
		require.Zero(t, b.gather(batchID(2)).Claimed, "nothing waits any more")
	})
	t.Run("answers a repeat as the first", func(t *testing.T) {
		t.Parallel()
		b, _ := setupPuts(t, 2)
		first := b.gather(batchID(1))
		b.Put(`{"late":1}`, stores.Named("g9"))
		require.Equal(t, first.BatchReleased, b.gather(batchID(1)).BatchReleased)
		require.Equal(t, 1, b.gather(batchID(2)).Claimed)
	})
	t.Run("leaves to their entities what starts something, what is cancelled, and what is under way", func(t *testing.T) {
		t.Parallel()
		b, all := setupPuts(t, 2)
		b.Put(`{"a":1}`, stores.Named("runs"), stores.Running("press"))
		_, err := b.CancelOperation(t.Context(), all[0].Operation.ID)
		require.NoError(t, err)
		first := b.gather(batchID(1))
		require.Equal(t, 1, first.Claimed)
		require.ElementsMatch(t, []string{fleet.InstanceSubject(plant, "g0"), fleet.InstanceSubject(plant, "runs")}, first.Left)
		again, err := b.TurnInstance(t.Context(), deliveries.InstanceTurn{
			Write: postgres.Write{Request: postgres.Request{Actor: "ann", Limit: time.Hour}, Key: keyOf("g1")}, Kind: fleet.OperationDeploy,
		})
		require.NoError(t, err)
		require.Zero(t, b.gather(batchID(2)).Claimed, "the same revision is under way")
		for _, node := range first.Nodes {
			b.apply(batchID(1), node)
		}
		b.endBatch(batchID(1))
		require.Equal(t, fleet.OperationSucceeded, b.Operation(again.Operation.ID).State, "the batch served it too")
	})
	t.Run("takes disables and deletes of what starts nothing", func(t *testing.T) {
		t.Parallel()
		b, _ := setupPuts(t, 2)
		for _, node := range b.gather(batchID(1)).Nodes {
			b.apply(batchID(1), node)
		}
		b.endBatch(batchID(1))
		for name, kind := range map[fleet.InstanceName]fleet.OperationKind{"g0": fleet.OperationDisable, "g1": fleet.OperationDelete} {
			_, err := b.TurnInstance(t.Context(), deliveries.InstanceTurn{
				Write: postgres.Write{Request: postgres.Request{Actor: "ann", Limit: time.Hour}, Key: keyOf(name)}, Kind: kind,
			})
			require.NoError(t, err)
		}
		got := b.gather(batchID(2))
		require.Equal(t, 2, got.Claimed)
		for _, node := range got.Nodes {
			b.apply(batchID(2), node)
		}
		require.Equal(t, 2, b.endBatch(batchID(2)).Succeeded)
		_, err := b.GetObject(t.Context(), keyOf("g1"))
		stores.Refused(t, fleet.NotFound, err)
	})
	t.Run("a newer write takes its instance out, and is gathered next", func(t *testing.T) {
		t.Parallel()
		b, all := setupPuts(t, 2)
		got := b.gather(batchID(1))
		newer := b.Put(`{"newer":1}`, stores.Named("g0"))
		require.Equal(t, 1, b.gather(batchID(2)).Claimed)
		require.Equal(t, fleet.OperationSuperseded, b.Operation(all[0].Operation.ID).State)
		for _, id := range []fleet.BatchID{batchID(1), batchID(2)} {
			for _, node := range got.Nodes {
				if b.tell(id, node) != nil {
					require.NoError(t, b.RecordBatch(t.Context(), id, node, takenAll(b.items(id, node))))
				}
			}
			b.endBatch(id)
		}
		require.Equal(t, fleet.OperationSucceeded, b.Operation(newer.Operation.ID).State)
		require.Equal(t, fleet.OperationSucceeded, b.Operation(all[1].Operation.ID).State)
	})
	t.Run("a batch that is lost hands its instances back to their entities", func(t *testing.T) {
		t.Parallel()
		b, all := setupPuts(t, 2)
		b.gather(batchID(1))
		b.loseBatch(batchID(1))
		require.EqualValues(t, 2, b.outbox())
		require.Equal(t, fleet.OperationRunning, b.Operation(all[0].Operation.ID).State, "it is still wanted")
		require.Equal(t, 2, b.gather(batchID(2)).Claimed)
	})
	t.Run("who looked before it was claimed does not take it for lost", func(t *testing.T) {
		t.Parallel()
		b, all := setupPuts(t, 1)
		b.gather(batchID(1))
		looked := deliveries.OpenSubject{Site: plant, Instance: "g0", Run: "gather-run"}
		require.NoError(t, b.CloseLost(t.Context(), looked, fleet.OperationFailed, "workflow_lost"))
		require.Equal(t, fleet.OperationRunning, b.Operation(all[0].Operation.ID).State)
		require.Equal(t, "open", stores.Scan[string](b, `SELECT state FROM deliveries`))
		b.loseBatch(batchID(1))
		require.NoError(t, b.CloseLost(t.Context(), looked, fleet.OperationFailed, "workflow_lost"))
		require.Equal(t, fleet.OperationFailed, b.Operation(all[0].Operation.ID).State)
	})
	t.Run("many at once claim each instance once", func(t *testing.T) {
		t.Parallel()
		b, _ := setupPuts(t, 20)
		var all sync.WaitGroup
		claimed := make([]int, 8)
		for i := range claimed {
			all.Go(func() {
				out, err := b.GatherBatch(b.Ctx(), deliveries.BatchGather{
					ID: batchID(i + 1), Site: plant, Workflow: "w", Run: fmt.Sprint("run-", i), Deadline: time.Hour, TTL: 5 * minute,
				})
				if err == nil {
					claimed[i] = out.Claimed
				}
			})
		}
		all.Wait()
		sum := 0
		for _, n := range claimed {
			sum += n
		}
		require.Equal(t, 20, sum)
		require.EqualValues(t, 20, stores.Scan[int64](b, `SELECT count(*) FROM deliveries`))
	})
	t.Run("a site without an active node is left to the entities, which say so", func(t *testing.T) {
		t.Parallel()
		b, _ := setupPuts(t, 1)
		b.Exec(`UPDATE site_leases SET dropped = true`)
		got := b.gather(batchID(1))
		require.Zero(t, got.Claimed)
		require.Len(t, got.Left, 1)
	})
}

// N97, X25: a row of an operation or a target that somebody else changes just now is waited for, not left out.
func TestBatchWaitsForRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := b.instances(3)
	for _, name := range names {
		b.Put(`{"a":1}`, stores.Named(string(name)))
	}
	id := batchID(1)
	require.Equal(t, 3, b.gather(id).Claimed)
	// while runs a step that has to wait for a change that is not committed yet.
	while := func(change string, step func() error) {
		t.Helper()
		tx, err := b.Raw.Begin(t.Context())
		require.NoError(t, err)
		tag, err := tx.Exec(t.Context(), change)
		require.NoError(t, err)
		require.EqualValues(t, 3, tag.RowsAffected())
		done := make(chan error, 1)
		go func() { done <- step() }()
		b.WaitsForLock(1)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, <-done)
	}
	require.NotNil(t, b.tell(id, nodeA))
	items := b.items(id, nodeA)
	while("UPDATE delivery_nodes SET fetched = 1 WHERE node = 'plant-a'", func() error { return b.RecordBatch(t.Context(), id, nodeA, takenAll(items)) })
	require.EqualValues(t, 3, stores.Scan[int64](b, "SELECT count(*) FROM delivery_nodes WHERE node = 'plant-a' AND state = 'applied'"))
	b.apply(id, nodeB)
	while("UPDATE operations SET cancel_requested = true WHERE state = 'running'", func() error { _, err := b.EndBatch(t.Context(), id); return err })
	require.EqualValues(t, 3, stores.Scan[int64](b, "SELECT count(*) FROM operations WHERE state = 'succeeded'"))
}
