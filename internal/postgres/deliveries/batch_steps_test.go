package deliveries_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// started has a batch of n claimed at the plant.
func (b *bench) started(n int, edits ...func(*deliveries.BatchChange)) (fleet.BatchID, []fleet.InstanceName) {
	b.T.Helper()
	names := b.instances(n)
	b.fleetOf(1, names...)
	require.Equal(b.T, n, b.release(releaseOf(batchID(1), b.changes(names, "new", edits...)...)).Claimed)
	return batchID(1), names
}

func digestOf(items []fleet.BatchItem) fleet.Hash { return fleet.BatchDigest(items) }

// N98, N20
func TestPrepareBatch(t *testing.T) {
	t.Parallel()

	t.Run("names what the node will be handed, whatever happens in between", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(4)
		told := b.tell(id, nodeA)
		items := b.items(id, nodeA)
		b.Put(`{"newer":1}`, stores.Named(string(names[0])))
		r := alone(releaseOf(batchID(2), b.changeTo(names[1], `{"newest":1}`)))
		require.Equal(t, 1, b.release(r).Claimed)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, []fleet.BatchResult{taken(items[2])}))
		b.Exec("UPDATE pending SET expires_at = now() - interval '1 s' WHERE name = $1", names[3])
		after := b.items(id, nodeA)
		require.Equal(t, told.Command.Digest, digestOf(after))
		require.Len(t, after, told.Command.Count)
		gone := []bool{}
		for _, i := range after {
			gone = append(gone, i.Gone)
		}
		require.Equal(t, []bool{false, true, true, true}, gone)
	})

	t.Run("tells again only of what is missing, so many times", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, _ := b.started(4)
		b.tell(id, nodeA)
		items := b.items(id, nodeA)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, []fleet.BatchResult{
			taken(items[0]), refusedBy(items[1], fleet.ApplyFailed), refusedBy(items[2], fleet.Communication),
		}))
		second := b.tell(id, nodeA)
		require.Equal(t, 2, second.Command.Count)
		again := b.items(id, nodeA)
		require.Equal(t, second.Command.Digest, digestOf(again))
		require.Equal(t, items[2].DeploymentID, again[0].DeploymentID)
		require.Equal(t, items[3].DeploymentID, again[1].DeploymentID)
		require.NotNil(t, b.tell(id, nodeA))
		require.Nil(t, b.tell(id, nodeA), "three times are enough")
		require.Equal(t, 1, b.tell(id, nodeB).Command.Count, "the standby gets what the active has")
	})

	t.Run("tells again who does not hold the lease just now, and not who is ahead", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(2)
		b.tell(id, nodeA)
		items := b.items(id, nodeA)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, []fleet.BatchResult{
			refusedBy(items[0], fleet.Stale), refusedBy(items[1], fleet.Stale),
		}))
		b.Exec(`INSERT INTO node_held (site, name, node, era, revision, enabled, deleted, running, high_era, high_revision)
			VALUES ($1, $2, $3, 1, 1, true, false, true, 1, 99)`, plant, names[1], nodeA)
		require.Equal(t, 1, b.tell(id, nodeA).Command.Count)
		require.Equal(t, items[0].DeploymentID, b.items(id, nodeA)[0].DeploymentID)
	})

	t.Run("tells nobody once the right has moved", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, _ := b.started(2)
		b.MoveLease(nodeB)
		require.Nil(t, b.tell(id, nodeA))
		require.Nil(t, b.tell(id, nodeB))
	})

	t.Run("waits for a node that has not enrolled, as long as for one that is down (X4, X8)", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(2)
		b.Exec("UPDATE nodes SET revoked_at = now() WHERE name = $1", nodeA)
		says := func() string {
			return stores.Scan[string](b, `SELECT string_agg(DISTINCT n.state || ': ' || n.reason || ': ' || n.message, '; ')
				FROM delivery_nodes n JOIN deliveries d ON d.id = n.delivery_id WHERE n.node = $1 AND d.batch_id = $2`, nodeA, id)
		}
		require.Equal(t, &fleet.BatchNotify{Wait: time.Second}, b.tell(id, nodeA))
		require.Equal(t, "waiting: unavailable: waiting for the node to enrol: make a join token and start the node with it", says())
		b.Exec("UPDATE batches SET created_at = created_at - interval '1 min'")
		require.Equal(t, &fleet.BatchNotify{Wait: 5 * time.Second}, b.tell(id, nodeA))
		b.Exec("UPDATE nodes SET revoked_at = NULL WHERE name = $1", nodeA)
		require.Equal(t, 2, b.tell(id, nodeA).Command.Count)
		require.Equal(t, "notified: : ", says())

		b.Exec("UPDATE nodes SET revoked_at = now() WHERE name = $1", nodeA)
		b.Exec("UPDATE batches SET created_at = created_at - interval '1 min'")
		require.Nil(t, b.tell(id, nodeA), "two minutes are enough")
		require.Equal(t, 2, b.endBatch(id).Failed)
		require.Equal(t, "failed 1 0 1 unavailable", b.target(names[0]))
		require.Equal(t, "node plant-a has not enrolled: make a join token and start the node with it; then it is delivered",
			stores.Scan[string](b, "SELECT message FROM deliveries WHERE name = $1", names[0]))
		require.EqualValues(t, 2, stores.Scan[int64](b, "SELECT count(*) FROM owed WHERE NOT due AND reason = 'unavailable'"))
	})

	t.Run("marks what it told, and keeps it fetchable", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(1)
		b.Exec("UPDATE pending SET expires_at = now() + interval '1 s'")
		b.tell(id, nodeA)
		require.Equal(t, "notified", stores.Scan[string](b, "SELECT phase FROM deliveries WHERE name = $1", names[0]))
		require.True(t, stores.Scan[bool](b, "SELECT expires_at > now() + interval '1 min' FROM pending"))
		_, err := b.PrepareBatch(t.Context(), fleet.BatchPrepare{ID: batchID(77), Node: nodeA, Tries: 3})
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("offers again what was purged meanwhile, and no more", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(3)
		b.tell(id, nodeA)
		items := b.items(id, nodeA)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, []fleet.BatchResult{
			taken(items[0]), refusedBy(items[1], fleet.Communication), refusedBy(items[2], fleet.Stale),
		}))
		b.Exec("UPDATE pending SET expires_at = now() - interval '1 s' WHERE name <> $1", names[2])
		some, err := b.Purge(t.Context(), 10)
		require.NoError(t, err)
		require.EqualValues(t, 2, some.Pending)
		second := b.tell(id, nodeA)
		require.Equal(t, 2, second.Command.Count)
		require.EqualValues(t, 2, stores.Scan[int64](b, "SELECT count(*) FROM pending WHERE expires_at > now() + interval '1 min'"))
		for _, item := range b.items(id, nodeA) {
			require.False(t, item.Gone, item.Instance)
		}
		b.dead(fleet.DeliveryID(items[0].DeploymentID))
		found, err := b.Fetchable(t.Context(), items[1].DeploymentID)
		require.NoError(t, err)
		require.Equal(t, items[1].Revision.Content, found.Content)
	})
}

// N91
func TestBatchFetch(t *testing.T) {
	t.Parallel()

	t.Run("is opened by the batch's tokens alone, also for one item", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, _ := b.started(2)
		sum := sha256.Sum256([]byte("token"))
		_, err := b.PrepareBatch(t.Context(), fleet.BatchPrepare{ID: id, Node: nodeA, Tries: 3, TTL: minute, TokenHash: sum[:]})
		require.NoError(t, err)
		tokens, err := b.BatchTokens(t.Context(), id)
		require.NoError(t, err)
		want := []deliveries.FetchToken{{Node: nodeA, Hash: sum[:]}}
		require.Equal(t, want, tokens)
		item := b.items(id, nodeA)[0]
		found, err := b.Fetchable(t.Context(), item.DeploymentID)
		require.NoError(t, err)
		require.Equal(t, want, found.Tokens)
		require.Equal(t, item.Revision.Content, found.Content)
		b.loseBatch(id)
		_, err = b.BatchTokens(t.Context(), id)
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.Fetchable(t.Context(), item.DeploymentID)
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.BatchTokens(t.Context(), batchID(77))
		stores.Refused(t, fleet.NotFound, err)
	})

	t.Run("gives the bodies of what the node was told of and can still be fetched", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(3)
		hashes := make([]fleet.Hash, len(names))
		for i := range names {
			hashes[i] = stores.JSONOf(fmt.Sprintf(`{"a":%d,"to":"new"}`, i)).Hash
		}
		require.Empty(t, b.bodiesOf(id, nodeA, hashes...), "not told yet")
		b.tell(id, nodeA)
		require.Len(t, b.bodiesOf(id, nodeA, append(hashes, hashes...)...), 3)
		require.Empty(t, b.bodiesOf(id, nodeB, hashes...))
		require.Empty(t, b.bodiesOf(id, nodeA, stores.JSONOf(`{"a":0}`).Hash), "of another revision")
		b.Exec("UPDATE pending SET expires_at = now() - interval '1 s' WHERE name = $1", names[0])
		b.release(alone(releaseOf(batchID(2), b.changeTo(names[1], `{"newest":1}`))))
		require.Equal(t, map[fleet.Hash]string{hashes[2]: `{"a":2,"to":"new"}`}, b.bodiesOf(id, nodeA, hashes...))
	})

	t.Run("gives by tickets what the node holds tickets for", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":1}`)
		b.Deploy("1")
		hash := stores.JSONOf(`{"a":1}`).Hash
		fetch := func(node fleet.NodeName) (got []string) {
			require.NoError(t, b.TicketBodies(t.Context(), plant, node, []fleet.Hash{hash, stores.JSONOf("no").Hash}, func(_ fleet.Hash, body []byte) error {
				got = append(got, string(body))
				return nil
			}))
			return got
		}
		require.Empty(t, fetch(nodeB))
		b.Exec(`INSERT INTO snapshot_tickets (id, site, name, node, revision, expires_at)
			VALUES ($1, $2, $3, $4, 1, now() + interval '1 min')`, batchID(1), plant, press, nodeB)
		require.Equal(t, []string{`{"a":1}`}, fetch(nodeB))
		require.Empty(t, fetch(nodeA))
		b.Exec("UPDATE snapshot_tickets SET expires_at = now() - interval '1 s'")
		require.Empty(t, fetch(nodeB))
	})
}

func TestPutBodies(t *testing.T) {
	t.Parallel()

	t.Run("stores each once, in the order given, whoever else does", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var bodies [][]byte
		for i := range 40 {
			bodies = append(bodies, fmt.Appendf(nil, `{"n":%d}`, i%30))
		}
		large := stores.BodyBytes(fleet.MaxBatchBody + 5)
		bodies = append(bodies, large, []byte{})
		require.NoError(t, stores.AtOnce(8, func(i int) error {
			mine := append([][]byte{}, bodies...)
			if i%2 == 1 { // the other way round
				for l, r := 0, len(mine)-1; l < r; l, r = l+1, r-1 {
					mine[l], mine[r] = mine[r], mine[l]
				}
			}
			if i == 7 {
				_, err := b.PutBody(t.Context(), project, bodies[3])
				return err
			}
			hashes, err := b.PutBodies(t.Context(), project, mine)
			for n, h := range hashes {
				if h != stores.JSONOf(string(mine[n])).Hash {
					return fmt.Errorf("%d has another hash", n)
				}
			}
			return err
		}))
		require.Equal(t, []int64{32, 32, 32}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM bodies WHERE hash IS NOT NULL),
			(SELECT count(*) FROM body_projects), (SELECT count(*) FROM body_chunks)]`))
		size, err := b.BodySize(t.Context(), project, stores.JSONOf(string(large)).Hash)
		require.NoError(t, err)
		require.EqualValues(t, len(large), size)
	})

	t.Run("keeps what is there already from being collected", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.PutBodies(t.Context(), project, [][]byte{[]byte(`{"a":1}`)})
		require.NoError(t, err)
		b.Age("30 h")
		_, err = b.PutBodies(t.Context(), project, [][]byte{[]byte(`{"a":1}`)})
		require.NoError(t, err)
		require.Zero(t, b.Collect(fleet.CollectBodies))
		b.Age("30 h")
		require.EqualValues(t, 1, b.Collect(fleet.CollectBodies))
		_, err = b.PutBodies(t.Context(), project, nil)
		require.NoError(t, err)
	})
}

// N98, X13
func TestRecordBatch(t *testing.T) {
	t.Parallel()

	t.Run("quarantines one bad item with its reason", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(5)
		b.tell(id, nodeA)
		results := takenAll(b.items(id, nodeA))
		results[2] = refusedBy(b.items(id, nodeA)[2], fleet.HashMismatch)
		results[3].Reason, results[3].Message = "made up", "a\x00b"
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, results))
		b.apply(id, nodeB)
		require.Equal(t, fleet.BatchEnded{Succeeded: 3, Failed: 2}, b.endBatch(id))
		require.Equal(t, "failed 1 0 1 hash_mismatch", b.target(names[2]))
		require.Equal(t, "failed 1 0 1 internal", b.target(names[3]))
		require.Equal(t, "succeeded 1 0 1 ", b.target(names[4]))
	})

	t.Run("refuses what is not of the batch, named twice, or staged though it was not asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, _ := b.started(2)
		b.tell(id, nodeA)
		items := b.items(id, nodeA)
		other := taken(items[0])
		other.DeploymentID = string(batchID(9))
		misnamed := taken(items[0])
		misnamed.Instance = items[1].Instance
		for _, bad := range [][]fleet.BatchResult{
			{taken(items[0]), other}, {misnamed}, {taken(items[0]), taken(items[0])}, {stagedBy(items[0])},
		} {
			stores.Refused(t, fleet.Invalid, b.RecordBatch(t.Context(), id, nodeA, bad))
		}
		stores.Refused(t, fleet.NotFound, b.RecordBatch(t.Context(), batchID(9), nodeA, nil))
		require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM snapshots"))
	})

	t.Run("records nothing once the right has moved", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(2)
		b.tell(id, nodeA)
		results := takenAll(b.items(id, nodeA))
		b.MoveLease(nodeB)
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, results))
		require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM snapshots"))
		require.Equal(t, 2, b.endBatch(id).Failed)
		require.Equal(t, "waiting 1 0 1 lease_moved", b.target(names[0]))
		require.Equal(t, []string{"plant-b 1 due lease_moved"}, b.owedOf(names[0]))
		wakes, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		require.Len(t, wakes, 2)
	})

	t.Run("takes what comes after the end as a single record does", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		id, names := b.started(1)
		b.tell(id, nodeA)
		results := takenAll(b.items(id, nodeA))
		b.endBatch(id)
		require.Equal(t, "failed 1 0 1 no_answer", b.target(names[0]))
		require.NoError(t, b.RecordBatch(t.Context(), id, nodeA, results))
		require.Equal(t, "applied", stores.Scan[string](b, "SELECT settled_as FROM deliveries"))
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT revision FROM snapshots"))
	})
}

func (b *bench) owedOf(name fleet.InstanceName) []string {
	b.T.Helper()
	return stores.Scan[[]string](b, `SELECT coalesce(array_agg(format('%s %s %s %s', node, revision,
		CASE WHEN due THEN 'due' ELSE 'parked' END, reason) ORDER BY node), '{}') FROM owed WHERE name = $1`, name)
}

// N100
func TestStagedBatch(t *testing.T) {
	t.Parallel()

	// stagedAll has a batch fetched by both nodes and ended.
	stagedAll := func(b *bench, names []fleet.InstanceName) {
		b.fleetOf(1, names...)
		out := b.release(staging(releaseOf(batchID(1), b.changes(names, "new")...)))
		for _, node := range out.Nodes {
			require.True(b.T, b.tell(batchID(1), node).Command.Stage)
			var results []fleet.BatchResult
			for _, i := range b.items(batchID(1), node) {
				results = append(results, stagedBy(i))
			}
			for range 2 {
				require.NoError(b.T, b.RecordBatch(b.Ctx(), batchID(1), node, results))
			}
		}
		for range 2 {
			require.Equal(b.T, fleet.BatchEnded{Staged: len(names)}, b.endBatch(batchID(1)))
		}
	}

	t.Run("is fetched now and deployed by a second delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(3)
		stagedAll(b, names)
		require.Equal(t, "staged 1 0 1 ", b.target(names[0]))
		require.Equal(t, []int64{0, 0, 0, 0}, stores.Scan[[]int64](b, `SELECT ARRAY[(SELECT count(*) FROM snapshots), (SELECT count(*) FROM owed),
			(SELECT count(*) FROM pending), (SELECT count(*) FROM under_way)]`))
		require.Empty(t, b.openSubjects(0))
		require.Empty(t, b.observeAll(names))
		items := make([]deliveries.BatchChange, len(names))
		for i, name := range names {
			items[i] = deliveries.BatchChange{Instance: name, Generation: 2, Revision: 1}
		}
		require.Equal(t, 3, b.deliver(releaseOf(batchID(2), items...)).Succeeded)
		require.Equal(t, "succeeded 1 0 2 ", b.target(names[0]))
		require.Equal(t, []string{"staged not_applied", "succeeded "}, stores.Scan[[]string](b, `SELECT array_agg(state || ' ' ||
			coalesce(settled_as, '') ORDER BY attempt) FROM deliveries WHERE name = $1`, names[0]))
	})

	t.Run("gives way to a single delivery", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		b.Deploy("1")
		stagedAll(b, []fleet.InstanceName{press})
		b.Put(`{"newer":1}`)
		b.Deploy("2")
		require.Equal(t, []string{"succeeded ", "staged not_applied", "succeeded "}, stores.Scan[[]string](b, `SELECT array_agg(state || ' ' ||
			coalesce(settled_as, '') ORDER BY attempt) FROM deliveries`))
		require.Zero(t, b.release(releaseOf(batchID(2), deliveries.BatchChange{Instance: press, Generation: 3, Revision: 2})).Claimed)
		require.Equal(t, "superseded 2 1 1 newer_revision", b.target(press))
	})

	t.Run("owes nothing when it fails, and asks nobody", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(3)
		b.fleetOf(1, names...)
		b.release(staging(releaseOf(batchID(1), b.changes(names, "new")...)))
		b.tell(batchID(1), nodeA)
		items := b.items(batchID(1), nodeA)
		require.NoError(t, b.RecordBatch(t.Context(), batchID(1), nodeA, []fleet.BatchResult{
			refusedBy(items[0], fleet.Communication), stagedBy(items[1]),
		}))
		require.Equal(t, fleet.BatchEnded{Failed: 3}, b.endBatch(batchID(1)))
		require.Equal(t, "failed 1 0 1 communication", b.target(names[0]))
		require.Equal(t, "failed 1 0 1 not_replicated", b.target(names[1]))
		require.Equal(t, "failed 1 0 1 no_answer", b.target(names[2]))
		require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM owed"))
		require.EqualValues(t, 3, stores.Scan[int64](b, "SELECT count(*) FROM deliveries WHERE settled_as = 'not_applied'"))
	})

	t.Run("lost in the middle goes back to wait", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		names := b.instances(2)
		b.fleetOf(1, names...)
		b.release(staging(releaseOf(batchID(1), b.changes(names, "new")...)))
		b.tell(batchID(1), nodeA)
		b.loseBatch(batchID(1))
		require.Equal(t, "waiting 1 0 1 workflow_terminated", b.target(names[0]))
		require.EqualValues(t, 2, stores.Scan[int64](b, "SELECT count(*) FROM deliveries WHERE state = 'unknown' AND settled_as = 'not_applied'"))
		require.EqualValues(t, 0, stores.Scan[int64](b, "SELECT count(*) FROM owed"))
	})

	t.Run("keeps its revision and body while it waits", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.Put(`{"a":0}`)
		b.Deploy("1")
		stagedAll(b, []fleet.InstanceName{press})
		b.Age("400 days")
		b.Exec("UPDATE batches SET created_at = created_at - interval '400 days', ended_at = ended_at - interval '400 days'")
		b.CollectAll()
		require.True(t, b.Stored(`{"a":0,"to":"new"}`))
		require.Equal(t, []int64{1, 2}, b.Numbers("revisions"))
		require.EqualValues(t, 1, stores.Scan[int64](b, "SELECT count(*) FROM batches"))
	})
}

// observeAll gives those whose entity has something to do.
func (b *bench) observeAll(names []fleet.InstanceName) []fleet.InstanceName {
	b.T.Helper()
	var out []fleet.InstanceName
	for _, name := range names {
		seen, err := b.Observe(b.Ctx(), fleet.Subject{Site: plant, Instance: name, Run: run1})
		require.NoError(b.T, err)
		if seen.Open != nil || len(seen.Owed)+len(seen.Unsettled)+seen.Asked > 0 {
			out = append(out, name)
		}
	}
	return out
}

// Retention
func TestCollectBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, _ := b.started(1)
	b.apply(id, nodeA)
	b.apply(id, nodeB)
	b.endBatch(id)
	open := batchID(2)
	b.release(alone(releaseOf(open, b.changeTo("i000", `{"open":1}`))))
	b.Exec("UPDATE batches SET ended_at = ended_at - interval '31 days'")
	require.Zero(t, b.Collect(fleet.CollectBatches), "its delivery is kept")
	b.Exec("UPDATE deliveries SET batch_id = '' WHERE batch_id = $1", id)
	require.EqualValues(t, 1, b.Collect(fleet.CollectBatches))
	require.Equal(t, string(open), stores.Scan[string](b, "SELECT id FROM batches"))
}
