package deployments_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// named lists what the set of a node says of replicas: true for those that are to run.
func (b *bench) named(n fleet.NodeName) map[fleet.ReplicaID]bool {
	b.T.Helper()
	set, err := b.NodeReplicas(b.Ctx(), n)
	require.NoError(b.T, err)
	require.Len(b.T, set.Replicas, set.Count)
	out := map[fleet.ReplicaID]bool{}
	for _, r := range set.Replicas {
		out[r.ID] = r.Run
	}
	return out
}

// complete has a node say all that it has, by the set of now.
func (b *bench) complete(n fleet.NodeName, said ...fleet.ReplicaStatus) {
	b.T.Helper()
	set, err := b.NodeReplicas(b.Ctx(), n)
	require.NoError(b.T, err)
	b.reports(fleet.ReplicasReport{
		Node: n, Set: fleet.SetVersion{Era: set.Era, Number: set.Version}, Complete: true, Whole: true, Replicas: said,
	})
}

func (b *bench) reports(r fleet.ReplicasReport) {
	b.T.Helper()
	_, err := b.ReplicasReported(b.Ctx(), r)
	require.NoError(b.T, err)
}

// orphanReplicas are those that wait on a node, with why.
func (b *bench) orphanReplicas(n fleet.NodeName) map[fleet.ReplicaID]string {
	b.T.Helper()
	list, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: n}, "", 100)
	require.NoError(b.T, err)
	out := map[fleet.ReplicaID]string{}
	for _, o := range list {
		require.Empty(b.T, o.Instance)
		out[o.Replica] = o.Reason
	}
	return out
}

func stopped(id fleet.ReplicaID) fleet.ReplicaStatus {
	return fleet.ReplicaStatus{ID: id, Phase: fleet.PhaseStopped, Health: fleet.HealthNotChecked}
}

// ghost is a replica that runs and of which the region knows nothing.
func ghost(id fleet.ReplicaID) fleet.ReplicaStatus {
	s := healthy(id)
	s.Deployment, s.Revision = "lost", 4
	return s
}

// lateEnd is a deployment of which one replica on a node ended without that node's word.
func lateEnd(t *testing.T) (*bench, fleet.ReplicaID) {
	t.Helper()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	id := b.on(nodeA)[0].ID
	b.disconnect(nodeA)
	require.NoError(t, b.RemoveReplica(b.Ctx(), stores.WriteOf(webKey), id))
	b.Exec(`UPDATE replicas SET stop_by = now() - interval '1 s' WHERE id = $1`, id)
	b.visits()
	require.Equal(t, fleet.ReplicaTerminated, b.replica(id).State)
	return b, id
}

// F57, X3, X5, S53: what ended without its node's word is named to it as one to end, whatever becomes of its
// row, until the node says that nothing of it runs.
func TestTombstones(t *testing.T) {
	t.Parallel()

	t.Run("stay until the node says that it has ended", func(t *testing.T) {
		t.Parallel()
		b, id := lateEnd(t)
		require.Equal(t, map[fleet.ReplicaID]bool{id: false}, b.named(nodeA))
		b.tells(nodeA, healthy(id))
		require.Equal(t, map[fleet.ReplicaID]bool{id: false}, b.named(nodeA), "it is told to end it already")
		require.Empty(t, b.orphanReplicas(nodeA))
		_, before, err := b.NodeSetVersion(b.Ctx(), nodeA)
		require.NoError(t, err)
		for range 2 {
			b.tells(nodeA, stopped(id))
			require.Empty(t, b.named(nodeA))
		}
		_, after, err := b.NodeSetVersion(b.Ctx(), nodeA)
		require.NoError(t, err)
		require.Equal(t, before+1, after, "the node may forget it, which it is told once")
	})

	t.Run("stay when the row is collected, or the name is declared again elsewhere", func(t *testing.T) {
		t.Parallel()
		b, id := lateEnd(t)
		b.Exec(`DELETE FROM replicas WHERE id = $1`, id)
		require.Equal(t, map[fleet.ReplicaID]bool{id: false}, b.named(nodeA))
		require.Empty(t, b.orphanReplicas(nodeA))
	})

	t.Run("go with a complete report that lacks it, by a set of this era that named it", func(t *testing.T) {
		t.Parallel()
		b, id := lateEnd(t)
		set, err := b.NodeReplicas(b.Ctx(), nodeA)
		require.NoError(t, err)
		r := fleet.ReplicasReport{Node: nodeA, Complete: true, Whole: true}
		for _, older := range []fleet.SetVersion{{Era: set.Era, Number: set.Version - 1}, {Era: set.Era - 1, Number: set.Version}} {
			r.Set = older
			if older.Era == 0 {
				b.Exec(`UPDATE region SET era = 2`)
				r.Set.Era = 1
			}
			b.reports(r)
			require.Contains(t, b.named(nodeA), id, "by set %s it may not know of it", r.Set)
		}
		b.reports(fleet.ReplicasReport{Node: nodeA, Complete: true, Set: fleet.SetVersion{Era: 2, Number: set.Version}})
		require.Contains(t, b.named(nodeA), id, "what an earlier agent left may be hidden still")
		b.complete(nodeA)
		require.Empty(t, b.named(nodeA))
	})

	t.Run("are given to a node that ended all that it ran, for what it means to run again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.connect(nodeB)
		connection := b.connect(nodeA)
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		b.tells(nodeA, ghost("00000000000a"))
		b.Exec(`UPDATE replicas SET state = 'TERMINATING', stop_by = now() WHERE id = $1`, id) // which its node did not hear
		_, err := b.NodeStopped(b.Ctx(), connection, "node:"+string(nodeA))
		require.NoError(t, err)
		require.Equal(t, fleet.ReplicaTerminated, b.replica(id).State)
		require.Equal(t, map[fleet.ReplicaID]bool{id: false}, b.named(nodeA))
		require.Len(t, b.orphanReplicas(nodeA), 1)
	})

	t.Run("are given for what was to run on a node that ended it, when that is replaced", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.connect(nodeB)
		connection := b.connect(nodeA)
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		_, err := b.NodeStopped(b.Ctx(), connection, "node:"+string(nodeA))
		require.NoError(t, err)
		b.visits()
		require.Equal(t, fleet.ReplicaTerminated, b.replica(id).State)
		require.Equal(t, map[fleet.ReplicaID]bool{id: false}, b.named(nodeA), "its node may start it again by itself")
	})

	t.Run("are kept for a node that was revoked or removed, as long as records are", func(t *testing.T) {
		t.Parallel()
		for _, gone := range []string{"revoked_at", "removed_at"} {
			b := setup(t).deployable()
			b.putDeployment()
			b.settles()
			id := b.on(nodeA)[0].ID
			b.Exec(`UPDATE nodes SET `+gone+` = now() WHERE name = $1`, nodeA)
			b.disconnect(nodeA)
			b.visits()
			require.Equal(t, fleet.ReplicaTerminated, b.replica(id).State)
			b.tells(nodeA, ghost("00000000000a"))
			b.Collect(fleet.CollectDeployments)
			require.Contains(t, b.named(nodeA), id)
			require.Len(t, b.orphanReplicas(nodeA), 1)
			b.Exec(`UPDATE replica_tombstones SET since = since - interval '10 years'`)
			b.Exec(`UPDATE orphan_replicas SET since = since - interval '10 years'`)
			b.Collect(fleet.CollectDeployments)
			require.Empty(t, b.named(nodeA))
			require.Empty(t, b.orphanReplicas(nodeA))
		}
	})

	t.Run("are as many as a set has room for, those that are to run come first", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		b.Exec(`INSERT INTO replica_tombstones (node, replica, deployment, stop_seconds, listed)
			SELECT $1, lpad(to_hex(i), 12, '0'), 'web', 5, 1 FROM generate_series(1, $2) i`, nodeA, fleet.MaxNodeReplicas)
		set, err := b.NodeReplicas(b.Ctx(), nodeA)
		require.NoError(t, err)
		require.Len(t, set.Replicas, fleet.MaxNodeReplicas)
		require.True(t, set.Replicas[0].Run)
		require.Equal(t, fleet.NodeReplica{ID: set.Replicas[1].ID, Deployment: "web", StopSeconds: 5}, set.Replicas[1])
		b.tells(nodeA, stopped(set.Replicas[1].ID))
		again, err := b.NodeReplicas(b.Ctx(), nodeA)
		require.NoError(t, err)
		require.NotEqual(t, set.Replicas[1].ID, again.Replicas[1].ID)
		require.Len(t, again.Replicas, fleet.MaxNodeReplicas, "the rest is named then")
	})

	t.Run("are not needed for what its node ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		require.NoError(t, b.RemoveReplica(b.Ctx(), stores.WriteOf(webKey), id))
		b.visits()
		require.Equal(t, false, b.named(nodeA)[id])
		b.tells(nodeA, stopped(id))
		require.NotContains(t, b.named(nodeA), id)
	})

	t.Run("name what exited before its node was told to end it", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		id := b.on(nodeA)[0].ID
		b.tells(nodeA, exited(id))
		b.visits()
		require.Equal(t, fleet.ReplicaTerminated, b.replica(id).State)
		require.Contains(t, b.named(nodeA), id)
		b.tells(nodeA, stopped(id))
		require.NotContains(t, b.named(nodeA), id)
	})
}

// approveReplicas lets node a end what waits there.
func (b *bench) approveReplicas(edits ...func(*reconcile.OrphanApproval)) (*postgres.Operation, error) {
	b.T.Helper()
	in := reconcile.OrphanApproval{
		Request: postgres.Request{Actor: "ann", Limit: time.Minute}, Node: nodeA, Why: "ticket 4711",
	}
	for _, edit := range edits {
		edit(&in)
	}
	return b.ApproveOrphans(b.Ctx(), in)
}

// F57, X3, X28: a node's replica that the region does not have there runs on and waits for an operator, unless
// the region ended it itself.
func TestUnlistedReplicas(t *testing.T) {
	t.Parallel()
	const one, two = fleet.ReplicaID("00000000000a"), fleet.ReplicaID("00000000000b")

	t.Run("that the region never knew wait, and end when an operator says so", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		bare := ghost(one)
		bare.Deployment, bare.Revision = "", 0
		b.tells(nodeA, bare) // what was told first knew less
		for range 2 {        // and are listed once
			b.complete(nodeA, ghost(one), ghost(two))
			require.Equal(t, map[fleet.ReplicaID]string{one: fleet.OrphanNeverKnown, two: fleet.OrphanNeverKnown}, b.orphanReplicas(nodeA))
			require.Empty(t, b.named(nodeA))
		}
		list, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: nodeA}, "", 1)
		require.NoError(t, err)
		require.Equal(t, []any{one, fleet.DeploymentName("lost"), int64(4)}, []any{list[0].Replica, list[0].Deployment, list[0].Version.Revision})
		list, err = b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: nodeA}, "replica/"+string(one), 1)
		require.NoError(t, err)
		require.Len(t, list, 1, "the second page")
		require.Equal(t, []any{two, fleet.DeploymentName("lost"), int64(4)}, []any{list[0].Replica, list[0].Deployment, list[0].Version.Revision})
		require.EqualValues(t, 2, b.Node(nodeA).Orphans)
		backlogs, err := b.Backlogs(b.Ctx())
		require.NoError(t, err)
		require.EqualValues(t, 2, backlogs["orphans"].Count)

		key := postgres.Idempotency{Key: "once", Hash: make([]byte, 32)}
		let := func(in *reconcile.OrphanApproval) { in.Replicas, in.Idempotency = []fleet.ReplicaID{two}, key }
		_, err = b.approveReplicas(let, func(in *reconcile.OrphanApproval) { in.Replicas = append(in.Replicas, "00000000000c") })
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.approveReplicas(let, func(in *reconcile.OrphanApproval) { in.DryRun = true })
		require.NoError(t, err)
		require.Empty(t, b.named(nodeA))
		op, err := b.approveReplicas(let)
		require.NoError(t, err)
		require.Nil(t, op, "no instance is dropped: there is nothing to compare")
		require.Equal(t, map[fleet.ReplicaID]bool{two: false}, b.named(nodeA))
		require.EqualValues(t, 1, b.Node(nodeA).Orphans)
		require.Equal(t, "ticket 4711", stores.Scan[string](b, `SELECT after ->> 'why' FROM events WHERE kind = 'node' ORDER BY seq DESC LIMIT 1`))

		b.complete(nodeA, ghost(one), ghost(two)) // it has not heard of it yet
		require.Equal(t, map[fleet.ReplicaID]bool{two: false}, b.named(nodeA))
		b.tells(nodeA, stopped(two))
		require.Empty(t, b.named(nodeA))
		require.Equal(t, map[fleet.ReplicaID]string{one: fleet.OrphanNeverKnown}, b.orphanReplicas(nodeA))
		_, err = b.approveReplicas(let)
		require.NoError(t, err, "the same request")

		_, err = b.approveReplicas(func(in *reconcile.OrphanApproval) { in.All = true })
		require.NoError(t, err)
		require.Equal(t, map[fleet.ReplicaID]bool{one: false}, b.named(nodeA))
		b.reports(fleet.ReplicasReport{Node: nodeA, Complete: true})
		require.Len(t, b.orphanReplicas(nodeA), 1, "its node may not see it yet")
		b.complete(nodeA)
		require.Empty(t, b.orphanReplicas(nodeA), "its node has it no more")
		_, err = b.approveReplicas(func(in *reconcile.OrphanApproval) { in.All = true })
		stores.Refused(t, fleet.IllegalState, err)
	})

	t.Run("are shown to a project, and ended by it, where they are of its own deployments", func(t *testing.T) { // X17
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		own := ghost(one)
		own.Deployment = web
		b.tells(nodeA, own, ghost(two))
		list, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: nodeA, Project: project}, "", 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, one, list[0].Replica)
		as := func(in *reconcile.OrphanApproval) { in.Project = project }
		_, err = b.approveReplicas(as, func(in *reconcile.OrphanApproval) { in.Replicas = []fleet.ReplicaID{two} })
		stores.Refused(t, fleet.NotFound, err)
		_, err = b.approveReplicas(as, func(in *reconcile.OrphanApproval) { in.All = true })
		require.NoError(t, err)
		require.Contains(t, b.named(nodeA), one)
		require.NotContains(t, b.named(nodeA), two)
	})

	t.Run("of a name that is another project's by now are not shown as theirs", func(t *testing.T) { // X10, X17
		t.Parallel()
		b, told := lateEnd(t)
		b.connect(nodeA)
		left := ghost(one)
		left.Deployment, left.Revision = web, 1
		b.tells(nodeA, left, healthy(told))
		every := false
		uncounted := func() (ids []fleet.ReplicaID) {
			all, err := b.UncountedReplicas(b.Ctx(), deployments.UncountedFilter{Deployment: web, Every: every}, 10)
			require.NoError(t, err)
			for _, u := range all {
				ids = append(ids, u.ID)
			}
			return ids
		}
		listed := func(of fleet.ProjectName) int {
			all, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: nodeA, Project: of}, "", 10)
			require.NoError(t, err)
			return len(all)
		}
		require.ElementsMatch(t, []fleet.ReplicaID{told, one}, uncounted())
		require.Equal(t, 1, listed(project))

		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 0 }))
		_, err := b.turnDeployment(fleet.OperationDestroy)
		require.NoError(t, err)
		for range 5 {
			b.visits()
			b.obey(nodeB)
			b.tells(nodeA, left)
			b.Exec(`UPDATE replicas SET stop_by = now() - interval '1 s' WHERE state = 'TERMINATING'`)
		}
		require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
		b.DeclareProject("blue")
		b.putDeployment(func(p *deployments.DeploymentPut) { p.Project = "blue" })
		b.tells(nodeA, left, healthy(told))
		require.Empty(t, uncounted())
		require.Equal(t, []int{0, 1}, []int{listed("blue"), listed("")})
		every = true // X28
		require.Equal(t, []fleet.ReplicaID{one}, uncounted(), "who sees all is told")
		every = false
		_, err = b.approveReplicas(func(in *reconcile.OrphanApproval) { in.All = true })
		require.NoError(t, err)
		require.Contains(t, b.named(nodeA), one)
		require.Contains(t, b.named(nodeA), told, "it goes on ending")
		require.Empty(t, uncounted())

		newer := ghost(two)
		newer.Deployment, newer.Revision = web, 99
		b.tells(nodeA, newer)
		require.Equal(t, []fleet.ReplicaID{two}, uncounted(), "made since the backup: it is theirs")
		require.Equal(t, 1, listed("blue"))
	})

	t.Run("of another node are no live ones here", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		elsewhere := b.on(nodeB)[0].ID
		b.tells(nodeA, healthy(elsewhere)) // a machine that was copied
		require.Equal(t, map[fleet.ReplicaID]string{elsewhere: fleet.OrphanNeverKnown}, b.orphanReplicas(nodeA))
		require.Equal(t, fleet.ReplicaHealthy, b.replica(elsewhere).State)
	})

	t.Run("that the region ended are ended again, as many in one pass as the cap says", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment()
		b.settles()
		const many = 12
		var ids []fleet.ReplicaID
		var said []fleet.ReplicaStatus
		for i := range many {
			id := fleet.ReplicaID(fmt.Sprintf("%012x", i))
			b.Exec(`INSERT INTO replicas SELECT (jsonb_populate_record(r, jsonb_build_object('id', $1::text, 'state', 'TERMINATED',
				'phase', 'stopped', 'ended_at', now()))).* FROM replicas r WHERE r.node = $2 AND r.ended_at IS NULL`, id, nodeA)
			ids, said = append(ids, id), append(said, healthy(id))
		}
		said[0] = exited(ids[0])
		live := b.on(nodeA)
		said = append(said, healthy(live[len(live)-1].ID))
		b.complete(nodeA, said...) // a machine that was set back
		waits := b.orphanReplicas(nodeA)
		require.Equal(t, map[fleet.ReplicaID]string{ids[11]: fleet.OrphanOverCap}, waits, "ten that run, and one that does not")
		named := b.named(nodeA)
		require.Len(t, named, 12)
		require.NotContains(t, named, ids[11])
		require.EqualValues(t, 10, stores.Scan[int64](b, `SELECT sum(times) FROM deployment_history WHERE reason = 'came_back'`))
		b.complete(nodeA, said...)
		require.NotContains(t, b.named(nodeA), ids[11], "it does not go pass by pass")

		_, err := b.approveReplicas(func(in *reconcile.OrphanApproval) { in.Replicas = ids[11:] })
		require.NoError(t, err)
		require.Contains(t, b.named(nodeA), ids[11])
	})
}
