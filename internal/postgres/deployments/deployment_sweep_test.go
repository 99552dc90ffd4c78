package deployments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// due lists what the sweep would wake.
func (b *bench) dueDeployments() []fleet.DeploymentName {
	b.T.Helper()
	out, err := b.DeploymentsDue(b.Ctx(), deployments.DeploymentShard{Shards: 1}, "", 100)
	require.NoError(b.T, err)
	return out
}

// S3, S19, X12: the sweep finds what an event should have told, and nothing of what is as it should be.
func TestDeploymentsDue(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	webOnly := []fleet.DeploymentName{web}
	for what, do := range map[string]func(){
		"nobody began with it": func() {},
		"an operation waits":   func() { b.visits() },
		"a replica was lost":   func() { b.settles(); b.Exec(`UPDATE replicas SET lost = true`) },
		"a replica is gone":    func() { b.settles(); b.Exec(`DELETE FROM replicas WHERE id = (SELECT min(id) FROM replicas)`) },
		"a node is not heard":  func() { b.settles(); b.disconnect(nodeA) },
		"a node is not heard while it waits for a time of its own": func() {
			b.settles()
			b.disconnect(nodeA)
			b.Exec(`UPDATE deployments SET wake_at = now() + interval '7 days'`)
		},
		"what it waited for by the clock": func() { b.settles(); b.Exec(`UPDATE deployments SET wake_at = now()`) },
		"it was deleted":                  func() { b.settles(); _, err := b.turnDeployment(fleet.OperationDestroy); require.NoError(t, err) },
		"a replica does not end": func() {
			b.settles()
			b.Exec(`UPDATE replicas SET state = 'TERMINATING', stop_by = now() - interval '1 s'`)
		},
		"something newer was not begun":    func() { b.settles(); b.Exec(`UPDATE deployments SET process_version = process_version + 1`) },
		"another declaration waits for it": func() { b.settles(); b.Exec(`UPDATE objects SET uid = gen_random_uuid() WHERE kind = 'deployment'`) },
	} {
		b.putDeployment()
		do()
		require.Equal(t, webOnly, b.dueDeployments(), what)
		none, err := b.DeploymentsDue(t.Context(), deployments.DeploymentShard{Shards: 1, Settle: time.Hour}, "", 100)
		require.NoError(t, err)
		require.Empty(t, none, "it was looked at a moment ago: %s", what)
		b.Exec(`DELETE FROM operations`)
		b.Exec(`DELETE FROM deployments`)
		b.Exec(`DELETE FROM objects WHERE kind = 'deployment'`)
		b.connect(nodeA)
	}

	b.putDeployment()
	b.settles()
	require.Empty(t, b.dueDeployments(), "it is as it should be")
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }))
	b.settles()
	require.Empty(t, b.replicas())
	require.Empty(t, b.dueDeployments(), "it is stopped")
	found := 0
	b.putDeployment()
	for shard := range 3 {
		part, err := b.DeploymentsDue(t.Context(), deployments.DeploymentShard{Shard: shard, Shards: 3}, "", 100)
		require.NoError(t, err)
		found += len(part)
	}
	require.Equal(t, 1, found, "in one shard")
	b.settles()
	require.Empty(t, b.dueDeployments())
	require.NoError(t, b.RevokeNode(t.Context(), nodeB))
	require.Equal(t, webOnly, b.dueDeployments(), "the key of its node was taken back")
	b.settles()
	require.Len(t, b.replicas(), 2)
	for _, r := range b.replicas() {
		require.Equal(t, nodeA, r.Node)
	}
}

// X11: what nothing can be done about is not woken by each sweep.
func TestDeploymentsThatRest(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Recovery.GiveUp = 1 }))
	b.settles()
	fails := b.replicas()[0]
	b.tells(fails.Node, exited(fails.ID))
	b.visits()
	b.obey(nodeA)
	b.obey(nodeB)
	require.Equal(t, fleet.DeploymentError, b.visits().State)
	b.Exec(`UPDATE replicas SET since = since - interval '1 hour' WHERE ended_at IS NULL`)
	require.True(t, b.visits().Done)
	require.Empty(t, b.dueDeployments(), "it was given up by crashes, and one runs on")

	b.disconnect(b.replicas()[0].Node)
	require.Equal(t, []fleet.DeploymentName{web}, b.dueDeployments(), "its last node was lost")
	b.Exec(`UPDATE connections SET ended_at = now() - interval '5 minutes' WHERE ended_at IS NOT NULL`)
	b.visits()
	require.Equal(t, fleet.ReplicaUnhealthy, b.replicas()[0].State)
	require.True(t, b.visits().Done)
	require.Empty(t, b.dueDeployments(), "that was seen, and nothing is created in ERROR")
}

// X2, S17: a node that was lost wakes what runs there, whatever becomes of who noticed.
func TestWakeDeploymentsOn(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	waiting := func() []string {
		all, err := b.WaitingWakes(t.Context(), 0, 10)
		require.NoError(t, err)
		return all
	}
	require.Empty(t, waiting())
	subjects, err := b.WakeDeploymentsOn(t.Context(), []fleet.NodeName{nodeA})
	require.NoError(t, err)
	require.Equal(t, []string{webSub}, subjects)
	require.Equal(t, []string{webSub}, waiting())
}

// S118, X27: what is old of deployments goes, what is needed stays, and so do bodies.
func TestCollectDeployments(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	file := stores.JSONOf("server {}")
	_, err := b.PutBody(t.Context(), project, []byte("server {}"))
	require.NoError(t, err)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Process.Files = []fleet.ProcessFile{{Path: "a", Body: &file}} }))
	for i := range 14 {
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = float64(i) / 100 }))
	}
	b.settles()
	for range 12 { // each ends a replica
		require.NoError(t, b.RemoveReplica(t.Context(), stores.WriteOf(webKey), b.replicas()[0].ID))
		b.settles()
	}
	left := ghost("00000000000a") // X28: it goes on being shown to those whose it is
	left.Deployment, left.Revision = web, stores.Scan[int64](b, `SELECT min(revision) + 1 FROM deployment_revisions`)
	b.tells(nodeA, left)
	waits := func() int {
		list, err := b.ListOrphans(b.Ctx(), reconcile.OrphanFilter{Node: nodeA, Project: project}, "", 10)
		require.NoError(t, err)
		return len(list)
	}
	require.Equal(t, 1, waits())
	counts := func() []int {
		return []int{
			stores.Scan[int](b, `SELECT count(*) FROM replicas WHERE ended_at IS NOT NULL`), stores.Scan[int](b, `SELECT count(*) FROM deployment_revisions`),
			stores.Scan[int](b, `SELECT count(*) FROM bodies WHERE hash = decode($1, 'hex')`, string(file.Hash)),
		}
	}
	all := func() {
		for _, kind := range []fleet.CollectedKind{fleet.CollectReplicas, fleet.CollectDeployments, fleet.CollectBodies} {
			b.Collect(kind)
		}
	}
	all()
	require.Equal(t, []int{12, 15, 1}, counts(), "they are young")
	b.Exec(`UPDATE bodies SET used_at = now() - interval '2 days'`)
	b.Collect(fleet.CollectBodies)
	require.Equal(t, 1, counts()[2], "a kept revision names it")
	b.Exec(`UPDATE replicas SET ended_at = ended_at - interval '2 days' WHERE ended_at IS NOT NULL`)
	b.Exec(`UPDATE deployment_revisions SET created_at = created_at - interval '2 days'`)
	b.Exec(`UPDATE bodies SET used_at = now() - interval '2 days'`)
	all()
	require.Equal(t, []int{10, 11, 0}, counts(), "the newest stay, and what an orphan runs")
	require.Len(t, b.replicas(), 2)
	require.Equal(t, 1, waits())
	b.tells(nodeA, stopped(left.ID))
	all()
	require.Equal(t, []int{10, 10, 0}, counts())

	_, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	b.settles()
	all()
	require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
	b.Exec(`UPDATE deployments SET since = since - interval '31 days'`)
	b.Exec(`UPDATE replicas SET ended_at = ended_at - interval '31 days'`)
	all()
	numbers := []int64{stores.Scan[int64](b, `SELECT last_revision FROM deployment_numbers`), stores.Scan[int64](b, `SELECT process_version FROM deployment_numbers`)}
	require.Zero(t, stores.Scan[int](b, `SELECT (SELECT count(*) FROM deployments) + (SELECT count(*) FROM replicas) + (SELECT count(*) FROM deployment_history)`))

	_, version, err := b.NodeSetVersion(t.Context(), nodeA)
	require.NoError(t, err)
	require.NoError(t, b.RevokeNode(t.Context(), nodeA)) // its set is not kept, and the next has a higher number
	b.Collect(fleet.CollectDeployments)
	_, none, err := b.NodeSetVersion(t.Context(), nodeA)
	require.NoError(t, err)
	require.Zero(t, none)
	_, err = b.Enrol(t.Context(), b.JoinToken(nodeA, "again"))
	require.NoError(t, err)
	b.connect(nodeA)
	b.putDeployment()
	require.Equal(t, []int64{numbers[0] + 1, numbers[1] + 1}, []int64{b.viewed().Revision, b.viewed().ProcessVersion}, "numbers go on")
	b.visits()
	_, later, err := b.NodeSetVersion(t.Context(), nodeA)
	require.NoError(t, err)
	require.Greater(t, later, version)
}

// S135: repeats are counted, the newest is first.
func TestDeploymentHistory(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	for range 3 {
		fails := b.replicas()[0]
		b.tells(fails.Node, exited(fails.ID))
		b.settles()
	}
	lines, err := b.ListDeploymentHistory(t.Context(), web, postgres.Place{}, 100)
	require.NoError(t, err)
	repeated := 0
	for i, l := range lines {
		require.True(t, i == 0 || l.ID < lines[i-1].ID)
		if l.Replica != "" && l.Reason == fleet.ReasonExited && l.To == string(fleet.ReplicaUnhealthy) {
			repeated++
			require.Equal(t, 3, l.Times, "one line for all")
			require.True(t, l.LastAt.After(l.At))
		}
	}
	require.Equal(t, 1, repeated)
	rest, err := b.ListDeploymentHistory(t.Context(), web, postgres.Place{ID: "1"}, 100)
	require.NoError(t, err)
	require.Empty(t, rest)
}
