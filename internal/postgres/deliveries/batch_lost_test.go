package deliveries_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X25
func TestLoseBatch(t *testing.T) {
	t.Parallel()
	const taken, gone = "unknown applied recorded", "unknown  closed"
	for at, want := range []struct {
		delivery string
		owed     []string
	}{
		{gone, []string{"plant-a 1 due workflow_terminated"}},
		{gone, []string{"plant-a 1 due workflow_terminated"}},
		{taken, []string{"plant-b 1 due replicating"}},
		{taken, []string{"plant-b 1 due replicating"}},
		{taken, []string{}},
	} {
		t.Run(fmt.Sprintf("settles each instance as a lost delivery after step %d", at), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			id, names := b.started(2)
			steps := []func(){
				func() { b.tell(id, nodeA) },
				func() {
					require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, takenAll(b.items(id, nodeA))))
				},
				func() { b.tell(id, nodeB) },
				func() {
					require.NoError(t, b.RecordBatch(t.Context(), id, nodeB, takenAll(b.items(id, nodeB))))
				},
			}
			for _, step := range steps[:at] {
				step()
			}
			for range 2 {
				b.loseBatch(id)
			}
			state := stores.Scan[string](b, "SELECT state || ' ' || coalesce(settled_as, '') FROM deliveries WHERE name = $1", names[0])
			require.Contains(t, want.delivery, state)
			require.Equal(t, want.owed, b.owedOf(names[0]))
			require.Equal(t, "waiting 1 0 1 workflow_terminated", b.target(names[0]))
			require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM pending"))
			require.Equal(t, "lost workflow_terminated", stores.Scan[string](b, "SELECT state || ' ' || reason FROM batches"))
			wakes, err := b.WaitingWakes(t.Context(), 0, 10)
			require.NoError(t, err)
			require.Len(t, wakes, 2)
			require.Equal(t, fleet.BatchEnded{Failed: 2}, b.endBatch(id), "it stays lost")
			out := b.deliver(releaseOf(batchID(2), deliveries.BatchChange{Instance: names[0], Generation: 2, Revision: 1}))
			if at == len(steps) {
				require.Zero(t, out.Succeeded, "nothing is left to do")
			} else {
				require.Equal(t, 1, out.Succeeded)
			}
			require.Contains(t, b.target(names[0]), "succeeded 1 0 ")
			require.Empty(t, b.owedOf(names[0]))
		})
	}

	t.Run("fails targets that nobody takes again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(2)
		b.Exec("UPDATE fleet_targets SET tries = 5 WHERE name = $1", names[0])
		b.loseBatch(id)
		require.Equal(t, "failed 1 0 5 workflow_terminated", b.target(names[0]))
		require.Equal(t, "waiting 1 0 1 workflow_terminated", b.target(names[1]))
		b.release(releaseOf(batchID(2), deliveries.BatchChange{Instance: names[1], Generation: 2, Revision: 1}))
		b.Exec("UPDATE fleet_runs SET state = 'cancelled', ended_at = now()")
		b.loseBatch(batchID(2))
		require.Equal(t, "failed 1 0 2 workflow_terminated", b.target(names[1]))
	})

	t.Run("is for those of the list whose run is gone, or that are late", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(5)
		for i, item := range b.changes(names, "new") {
			b.release(alone(releaseOf(batchID(i+1), item)))
		}
		b.endBatch(batchID(1))
		b.Exec("UPDATE batches SET deadline_at = now() - interval '1 s' WHERE id = $1", batchID(3))
		var ids []fleet.BatchID
		var after postgres.Place
		for {
			page, err := b.OpenBatches(t.Context(), after, 0, 2)
			require.NoError(t, err)
			for _, o := range page {
				ids = append(ids, o.ID)
				require.Equal(t, o.ID == batchID(3), o.Overdue)
				require.Equal(t, "batch-run", o.Run)
				after = o.Place()
			}
			if len(page) < 2 {
				break
			}
		}
		require.Equal(t, []fleet.BatchID{batchID(2), batchID(3), batchID(4), batchID(5)}, ids)
		young, err := b.OpenBatches(t.Context(), postgres.Place{}, time.Hour, 10)
		require.NoError(t, err)
		require.Empty(t, young)
	})

	t.Run("leaves the sweep of instances nothing while it is open", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		b.release(alone(releaseOf(batchID(1), b.changeTo(press, `{"a":0}`))))
		require.Empty(t, b.openSubjects(0))
		require.Equal(t, batchID(1), b.MustObserve(run1).Open.Batch)
		b.loseBatch(batchID(1))
		require.Len(t, b.openSubjects(0), 1)
		b.Deploy("1")
		require.Empty(t, b.openSubjects(0))
	})
}

// N17, X23
func TestBatchesAtOnce(t *testing.T) {
	t.Parallel()

	t.Run("of the same instances leave one delivery open of each", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(60)
		const batches = 6
		releases := make([]deliveries.BatchRelease, batches)
		for n := range releases {
			items := b.changes(names, fmt.Sprint("b", n))
			for i := range items {
				items[i].Generation = 1
			}
			releases[n] = alone(releaseOf(batchID(n+1), items...))
		}
		var claimed [batches]int
		require.NoError(t, stores.AtOnce(batches, func(n int) error {
			out, err := b.ReleaseBatch(t.Context(), releases[n])
			claimed[n] = out.Claimed
			return err
		}))
		all := 0
		for _, n := range claimed {
			all += n
		}
		require.Equal(t, len(names), all, "each was changed once, from what it was")
		require.EqualValues(t, len(names), stores.Scan[int64](b, "SELECT count(*) FROM deliveries WHERE state = 'open'"))
	})

	t.Run("of one fleet change take each target once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(30)
		b.fleetOf(1, names...)
		items := b.changes(names, "new")
		require.NoError(t, stores.AtOnce(4, func(n int) error {
			_, err := b.ReleaseBatch(t.Context(), releaseOf(batchID(n+1), items...))
			return err
		}))
		require.EqualValues(t, 30, stores.Scan[int64](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("under one id are one, whatever each was made of", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(8)
		items := b.changes(names, "new")
		var out [8]deliveries.BatchReleased
		require.NoError(t, stores.AtOnce(8, func(n int) (err error) {
			out[n], err = b.ReleaseBatch(t.Context(), alone(releaseOf(batchID(1), items[n])))
			return err
		}))
		for _, o := range out {
			require.Equal(t, out[0], o)
		}
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT count(*) FROM deliveries"))
	})

	t.Run("and single deliveries never wait for each other in a circle", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(40)
		for _, name := range names {
			b.Put(`{"a":0}`, stores.Named(string(name)))
		}
		const rounds = 4
		batch := func(n int) error {
			for round := range rounds {
				id := batchID(1000*n + round + 1)
				items := make([]deliveries.BatchChange, len(names))
				for i, name := range names {
					o, err := b.GetObject(t.Context(), keyOf(name))
					if err != nil {
						return err
					}
					content := stores.JSONOf(`{"a":0}`)
					spec := fleet.InstanceSpec{Config: &content, Enabled: round%2 == 0, Durability: fleet.DurabilitySync}
					items[i] = deliveries.BatchChange{Instance: name, Generation: o.Generation, Spec: spec, Content: content}
				}
				if err := b.serveBatch(alone(releaseOf(id, items...))); err != nil {
					return err
				}
			}
			return nil
		}
		single := func(n int) error {
			for round := range rounds {
				for i := range names {
					name := names[(i*7+n)%len(names)]
					if err := b.serveAlone(name, fmt.Sprint(n, "/", round)); err != nil {
						return err
					}
				}
			}
			return nil
		}
		require.NoError(t, stores.AtOnce(5, func(n int) error {
			if n < 2 {
				return batch(n + 1)
			}
			if n < 4 {
				return single(n)
			}
			for range 10 {
				if _, _, err := b.EndOverdue(t.Context(), 10); err != nil {
					return err
				}
				if _, err := b.Purge(t.Context(), 100); err != nil {
					return err
				}
			}
			return nil
		}))
		require.EqualValues(t, 0, stores.Scan[int64](b, `SELECT count(*) FROM (SELECT name FROM deliveries WHERE state = 'open' GROUP BY name
			HAVING count(*) > 1) twice`))
	})
}

// serveBatch takes a batch all the way, whatever others do meanwhile.
func (b *bench) serveBatch(r deliveries.BatchRelease) error {
	out, err := b.ReleaseBatch(b.Ctx(), r)
	if err != nil {
		return err
	}
	for _, node := range out.Nodes {
		_, err := b.PrepareBatch(b.Ctx(), fleet.BatchPrepare{
			ID: r.ID, Node: node, Tries: 3, TTL: minute, TokenHash: []byte(stores.JSONOf(string(r.ID) + string(node)).Hash)[:32],
		})
		if err != nil {
			return err
		}
		items, err := b.BatchItems(b.Ctx(), r.ID, node)
		if err != nil {
			return err
		}
		if err := b.RecordBatch(b.Ctx(), r.ID, node, takenAll(items)); err != nil {
			return err
		}
	}
	_, err = b.EndBatch(b.Ctx(), r.ID)
	return err
}

// serveAlone claims, records and ends one instance.
func (b *bench) serveAlone(name fleet.InstanceName, step string) error {
	of := fleet.Subject{Site: plant, Instance: name, Run: "run-" + string(name) + step[:1]}
	if _, err := b.Observe(b.Ctx(), of); err != nil {
		return err
	}
	c := stores.ClaimOf(of.Run, step)
	c.Subject = of
	seen, err := b.Claim(b.Ctx(), c)
	if fleet.KindOf(err) == fleet.Conflict && err != nil {
		return nil // another run speaks for it by now
	}
	if err != nil || seen.Open == nil {
		return err
	}
	r := stores.RecordOf(seen.Open.ID, nodeA, seen.Open.Revision)
	r.Subject = of
	if _, err := b.Record(b.Ctx(), r); err != nil {
		return err
	}
	_, err = b.End(b.Ctx(), fleet.End{
		Subject: of, Delivery: seen.Open.ID, State: fleet.DeliverySucceeded, Operation: fleet.OperationSucceeded,
	})
	return err
}

// N98
func TestBatch500(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, names := b.started(fleet.MaxBatchItems)
	b.apply(id, nodeA)
	b.apply(id, nodeB)
	require.Equal(t, fleet.BatchEnded{Succeeded: len(names)}, b.endBatch(id))
	require.EqualValues(t, len(names), stores.Scan[int64](b, "SELECT count(*) FROM fleet_targets WHERE state = 'succeeded'"))
	require.EqualValues(t, 2*len(names), stores.Scan[int64](b, "SELECT count(*) FROM events WHERE kind = 'instance' AND type IN ('updated', 'status')"))
}
