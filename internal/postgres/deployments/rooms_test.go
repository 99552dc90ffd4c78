package deployments_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func (b *bench) room(n fleet.NodeName) fleet.NodeRoom {
	b.T.Helper()
	all, err := b.Rooms(b.Ctx(), web)
	require.NoError(b.T, err)
	for _, r := range all {
		if r.Node == n {
			return r
		}
	}
	require.Fail(b.T, "no such node", "%s", n)
	return fleet.NodeRoom{}
}

// S94, S95: nodes as placement sees them; pools select and bound.
func TestRooms(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	racks := fleet.PoolKey("racks")
	_, err := b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{Labels: map[string]string{"rack": string(nodeA)}, MaxReplicas: 2})
	require.NoError(t, err)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
		s.Placement.Pools, s.Replicas.Initial = []fleet.PoolName{"racks"}, 3
		s.Process.Ports = []fleet.ProcessPort{{Name: "http"}}
	}))
	out := b.visits()
	require.Equal(t, 2, out.Replicas, "the bound holds within one visit")
	require.False(t, out.Done)
	require.NotEmpty(t, out.Awaited)
	a, other := b.room(nodeA), b.room(nodeB)
	require.Equal(t, []any{2, 2, 2.0, ""}, []any{a.Replicas, a.Own, a.Taken.CPU, a.Away})
	require.Equal(t, []fleet.PoolName{"racks"}, a.Pools)
	require.Equal(t, a.Pools, a.PoolFull)
	require.Empty(t, other.Pools)
	require.Equal(t, []fleet.Driver{fleet.DriverProcess}, other.Drivers)

	b.tells(nodeA, exited(b.on(nodeA)[0].ID))
	require.Equal(t, 1, b.room(nodeA).Failing)
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
	stores.Refused(t, fleet.IllegalState, err)
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(webKey))
	stores.Refused(t, fleet.Invalid, err)
	b.Exec(`DELETE FROM outbox`)
	_, err = b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{})
	require.NoError(t, err)
	waiting, err := b.WaitingWakes(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{webSub}, waiting, "who names it looks again")

	require.NoError(t, b.Cordon(t.Context(), nodes.CordonRequest{Request: postgres.Request{Actor: "ann"}, Node: nodeB}))
	require.Equal(t, "cordoned", b.room(nodeB).Away)
	b.disconnect(nodeA)
	require.Equal(t, "not_connected", b.room(nodeA).Away)
}

// S94: a pool asks for its labels with the values that it names, an empty one too, as placement does.
func TestPoolsByLabel(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.Exec(`UPDATE nodes SET facts = jsonb_set(facts, '{labels}', '{"gpu": "", "rack": "1"}') WHERE name = $1`, nodeA)
	for name, labels := range map[fleet.PoolName]map[string]string{
		"with": {"gpu": ""}, "other": {"gpu": "h100"}, "both": {"gpu": "", "rack": "1"}, "neither": {"gpu": "", "zone": ""},
	} {
		_, err := b.Declare(t.Context(), stores.WriteOf(fleet.PoolKey(name)), fleet.PoolSpec{Labels: labels})
		require.NoError(t, err)
	}
	b.putDeployment()
	require.Equal(t, []fleet.PoolName{"both", "with"}, b.room(nodeA).Pools)
	require.Empty(t, b.room(nodeB).Pools, "it has no label gpu")
}

// A deployment runs on nodes of its own project and on shared ones, whatever it names.
func TestRoomsOfProjects(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.DeclareProject("red")
	w := stores.WriteOf(fleet.ObjectKey{Kind: fleet.KindSite, Name: "plant-red"})
	w.Project = "red"
	_, err := b.Declare(t.Context(), w, stores.TwoNodes("red-a", "red-b"))
	require.NoError(t, err)
	_, err = b.Enrol(t.Context(), b.JoinTokenAt("plant-red", "red-a", "red-a"))
	require.NoError(t, err)
	b.connect("red-a")
	for name, project := range map[fleet.PoolName]fleet.ProjectName{"all": project, "reds": "red"} {
		w := stores.WriteOf(fleet.PoolKey(name))
		w.Project = project
		_, err := b.Declare(t.Context(), w, fleet.PoolSpec{})
		require.NoError(t, err)
	}
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
		s.Placement.Pools, s.Replicas.Initial = []fleet.PoolName{"all"}, 3
	}))
	b.visits()
	require.Len(t, b.replicas(), 3)
	require.Empty(t, b.on("red-a"))
	require.Equal(t, []any{fleet.ProjectName("red"), project}, []any{b.room("red-a").Project, b.room(nodeA).Project})
	require.Equal(t, []fleet.PoolName{"all"}, b.room(nodeA).Pools, "nothing is said of pools of others")
}

// S98: a placement that changed is applied to what runs, new before old, and waited for.
func TestPlacementMoves(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	require.Len(t, b.on(nodeA), 1)
	version := b.seen().ProcessVersion
	where := func() (out []fleet.NodeName) {
		for _, r := range b.replicas() {
			out = append(out, r.Node)
		}
		return out
	}
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"rack": string(nodeB)} }))
	require.Equal(t, version, b.seen().ProcessVersion)
	b.visits()
	require.Len(t, b.replicas(), 3, "new before old")
	require.Equal(t, []string{"converge succeeded", "converge running"}, b.deploymentOperations())
	b.settles()
	require.Equal(t, []fleet.NodeName{nodeB, nodeB}, where())
	require.Equal(t, []string{"converge succeeded", "converge succeeded"}, b.deploymentOperations())

	racks := fleet.PoolKey("racks")
	_, err := b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{})
	require.NoError(t, err)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Placement.Pools = []fleet.PoolName{"racks"} }))
	b.settles()
	require.Equal(t, []fleet.NodeName{nodeB, nodeB}, where(), "it is where it may be")
	_, err = b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{Nodes: []fleet.NodeName{nodeA}})
	require.NoError(t, err)
	b.settles()
	require.Equal(t, []fleet.NodeName{nodeA, nodeA}, where(), "the pool changed")
}

// X7, X28: a pool stays as long as what a deployment runs names it, whatever was written since.
func TestPoolOfWhatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	racks := fleet.PoolKey("racks")
	_, err := b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{})
	require.NoError(t, err)
	inPool := asking(func(s *fleet.DeploymentSpec) { s.Placement.Pools = []fleet.PoolName{"racks"} })
	b.putDeployment(inPool)
	b.settles()
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	require.ErrorContains(t, err, "among them web")

	b.putDeployment(notReleased)
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	require.ErrorContains(t, err, "what is released of web does")

	_, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	b.putDeployment(inPool)
	b.putDeployment(notReleased)
	b.visitDeployment(run1)
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
	require.ErrorContains(t, err, "what is released of web does", "it runs once what was before it has ended")

	b.settles()
	b.putDeployment()
	_, err = b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
	require.NoError(t, err)
}

// X28: a site stays as long as a deployment names it, or replicas run there.
func TestSiteOfWhatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	site := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(stores.Plant)}
	refuses := func(why string) {
		t.Helper()
		_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(site))
		stores.Refused(t, fleet.IllegalState, err)
		require.ErrorContains(t, err, why)
	}
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Placement.Sites = []fleet.SiteName{stores.Plant} }))
	b.settles()
	refuses("among them web")
	b.putDeployment()
	b.settles()
	refuses("2 replicas run on nodes of site/plant")
	b.Exec(`UPDATE nodes SET revoked_at = now()`)
	_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(site))
	require.NoError(t, err)
}

// X8: a drain sees which replicas will not move by themselves, and whose they are.
func TestDrainSeesWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	b.MustDrain(stores.DrainOf(nodeA, 60))
	given := func() []any {
		seen := b.MustSeeDrain(nodeA)
		return []any{seen.Live, seen.GivenUp, seen.GivenUpOf}
	}
	names := []fleet.DeploymentName{web}
	require.Equal(t, []any{1, 0, []fleet.DeploymentName(nil)}, given(), "it moves")
	b.Exec(`UPDATE deployments SET state = 'ERROR'`)
	require.Equal(t, []any{1, 1, names}, given())

	for _, c := range []struct {
		name, do, undo string
		left           int
	}{
		{"one is healthy beyond its target", `UPDATE deployments SET target = 1`, `UPDATE deployments SET target = 2`, 0},
		{"it is to begin anew", `UPDATE deployments SET began = 0`, `UPDATE deployments SET began = 1`, 0},
		{"another version is to begin", `UPDATE deployments SET process_version = 2`, `UPDATE deployments SET process_version = 1`, 0},
		{"it works no more, and ends", `UPDATE replicas SET state = 'UNHEALTHY'`, `UPDATE replicas SET state = 'HEALTHY'`, 0},
		{"it is deleted", `UPDATE objects SET deleting_since = now() WHERE kind = 'deployment'`, `UPDATE objects SET deleting_since = NULL`, 0},
		{"another project's is not named", `UPDATE deployments SET project = 'red'`, `UPDATE deployments SET project = 'default'`, 1},
	} {
		b.Exec(c.do)
		require.Equal(t, []any{1, c.left, []fleet.DeploymentName(nil)}, given(), c.name)
		b.Exec(c.undo)
		require.Equal(t, []any{1, 1, names}, given(), c.name)
	}
}

// X28: a drain sees what runs there that the region does not know, until an operator let it go.
func TestDrainSeesOrphans(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.MustDrain(stores.DrainOf(nodeA, 60))
	require.Zero(t, b.MustSeeDrain(nodeA).Orphans)
	b.tells(nodeA, ghost("00000000000a"), ghost("00000000000b"))
	b.tells(nodeB, ghost("00000000000c"))
	require.Equal(t, 2, b.MustSeeDrain(nodeA).Orphans)
	_, err := b.approveReplicas(func(in *reconcile.OrphanApproval) { in.Replicas = []fleet.ReplicaID{"00000000000a"} })
	require.NoError(t, err)
	require.Equal(t, 1, b.MustSeeDrain(nodeA).Orphans)
	b.tells(nodeA, exited("00000000000b"))
	require.Zero(t, b.MustSeeDrain(nodeA).Orphans, "no replica runs")
	require.Len(t, b.orphanReplicas(nodeA), 2, "it stays listed: it left files there")
}

// A deployment that fills the nodes, or has a fixed port on all that are there, can be updated.
func TestFullDeploymentIsUpdated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit     func(*fleet.DeploymentSpec)
		replicas int
		cordoned bool
	}{
		"cores":                          {func(s *fleet.DeploymentSpec) { s.Resources.CPU = 4 }, 2, false},
		"a port, with a node cordoned":   {func(s *fleet.DeploymentSpec) { s.Process.Ports = []fleet.ProcessPort{{Name: "http", Port: 8080}} }, 2, true},
		"fewer than wanted have a place": {func(s *fleet.DeploymentSpec) { s.Resources.CPU = 4 }, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			put := func(command string) {
				b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
					c.edit(s)
					s.Process.Command, s.Replicas.Min, s.Replicas.Initial = []string{command}, c.replicas, c.replicas
				}))
			}
			rests := func() {
				for range 20 {
					b.visits()
					b.obey(nodeA)
					b.obey(nodeB)
				}
			}
			put("one")
			rests()
			before := len(b.replicas())
			if c.cordoned {
				require.NoError(t, b.Cordon(t.Context(), nodes.CordonRequest{Request: postgres.Request{Actor: "ann"}, Node: nodeB}))
			}
			put("two")
			rests()
			require.Len(t, b.replicas(), before)
			for _, r := range b.replicas() { // on a cordoned node nothing new is placed, so what is there stays
				require.Equal(t, c.cordoned && r.Node == nodeB, r.Revision == 1, "on %s", r.Node)
			}
		})
	}
}

// S110: what runs on a node that is drained runs elsewhere, new before old, and the drain sees it.
func TestDrainMovesReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	b.Exec(`DELETE FROM outbox`)
	ask := func(force bool) {
		_, err := b.AskNodeDrain(t.Context(), nodes.DrainRequest{
			Request: postgres.Request{Actor: "ann"},
			Node:    nodeA,
			Order:   fleet.DrainOrder{Reason: "disk", DeadlineSeconds: 60, Force: force},
		})
		require.NoError(t, err)
	}
	look := func() fleet.DrainSeen {
		seen, err := b.SeeDrain(t.Context(), fleet.DrainLook{Node: nodeA, Run: run1})
		require.NoError(t, err)
		return seen
	}
	ask(false)
	waiting, err := b.WaitingWakes(t.Context(), -time.Minute, 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{webSub, fleet.DrainSubject(nodeA)}, waiting)
	require.Equal(t, []int{1, 1}, []int{look().Replicas, look().Live})
	require.Equal(t, "draining", b.room(nodeA).Away)

	b.visits()
	require.Len(t, b.replicas(), 3, "new before old")
	b.obey(nodeB)
	b.visits()
	require.Equal(t, []int{1, 0}, []int{look().Replicas, look().Live})
	require.Contains(t, b.obey(nodeA), fleet.DrainSubject(nodeA), "the drain is told")
	require.Zero(t, look().Replicas)
	b.settles()
	require.Len(t, b.on(nodeB), 2)

	b.Exec(`UPDATE nodes SET cordoned_at = NULL`)
	b.Exec(`UPDATE node_drains SET phase = 'ended', ended_at = now(), rule = 'drained'`)
	require.NoError(t, b.EvictReplicas(t.Context(), nodeB))
	require.NoError(t, b.EvictReplicas(t.Context(), nodeB))
	for _, r := range b.on(nodeB) {
		require.Equal(t, []any{fleet.ReplicaTerminating, "drained"}, []any{r.State, r.Reason})
	}
	b.settles()
	require.Len(t, b.replicas(), 2)
}

// X23: what a deployment names is there when it is written, whatever is deleted at the same time.
func TestPlacesOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	racks := fleet.PoolKey("racks")
	inPool := asking(func(s *fleet.DeploymentSpec) { s.Placement.Pools = []fleet.PoolName{"racks"} })
	for field, edit := range map[string]func(*deployments.DeploymentPut){
		"/placement/pools/0": inPool,
		"/placement/sites/1": asking(func(s *fleet.DeploymentSpec) { s.Placement.Sites = []fleet.SiteName{stores.Plant, "gone"} }),
	} {
		_, err := b.PutDeployment(t.Context(), b.deploymentPut(edit))
		var e *fleet.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, []any{fleet.NotFound, field}, []any{e.Kind, e.Field}, e.Error())
	}
	b.DeclareProject("red")
	w := stores.WriteOf(racks)
	w.Project = "red"
	_, err := b.Declare(t.Context(), w, fleet.PoolSpec{})
	require.NoError(t, err)
	_, err = b.PutDeployment(t.Context(), b.deploymentPut(inPool))
	stores.Refused(t, fleet.Invalid, err)
	_, err = b.DeleteDeclared(t.Context(), w)
	require.NoError(t, err)

	for round := range 20 {
		_, err := b.Declare(t.Context(), stores.WriteOf(racks), fleet.PoolSpec{})
		require.NoError(t, err)
		puts := []deployments.DeploymentPut{b.deploymentPut(inPool), b.deploymentPut(inPool, ofName("api"))}
		require.NoError(t, stores.AtOnce(3, func(i int) error {
			if i < len(puts) {
				_, err := b.PutDeployment(t.Context(), puts[i])
				return allowed(err)
			}
			_, err := b.DeleteDeclared(t.Context(), stores.WriteOf(racks))
			return allowed(err)
		}))
		require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM objects d WHERE d.kind = 'deployment' AND d.spec #> '{placement,pools}' ? 'racks'
			AND NOT EXISTS (SELECT 1 FROM objects p WHERE p.kind = 'pool' AND p.name = 'racks')`), "round %d", round)
		b.putDeployment()
		b.putDeployment(ofName("api"))
	}
}
