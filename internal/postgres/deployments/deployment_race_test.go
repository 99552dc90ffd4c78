package deployments_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// visitAs is one look of the entity of any deployment.
func (b *bench) visitAs(name fleet.DeploymentName, run string) error {
	_, err := b.VisitDeployment(b.T.Context(), fleet.DeploymentVisit{Deployment: name, Run: run, Build: "build-1"})
	return err
}

func ofName(name fleet.DeploymentName) func(*deployments.DeploymentPut) {
	return func(p *deployments.DeploymentPut) { p.Key = fleet.DeploymentKey(name) }
}

// S32, X1, X2, X23: two servers, and any number of doors, at once.
func TestDeploymentVisitsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 5 }))
	version := func() int64 {
		_, v, err := b.NodeSetVersion(t.Context(), nodeA)
		require.NoError(t, err)
		return v
	}
	require.NoError(t, stores.AtOnce(8, func(i int) error { return b.visitAs(web, fmt.Sprint("run-", i)) }))
	require.Len(t, b.replicas(), 5, "as many as are wanted, once")
	one := version()
	b.settles()
	require.Equal(t, one, version(), "the number rises once for a node and a visit")

	// Of two deployments that are placed at once none takes the room of the other.
	b.putDeployment(ofName("api"), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 5 }))
	b.putDeployment(ofName("ui"), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 5 }))
	require.NoError(t, stores.AtOnce(8, func(i int) error { return b.visitAs([]fleet.DeploymentName{"api", "ui"}[i%2], run1) }))
	require.Equal(t, []float64{4, 4}, stores.Scan[[]float64](b, `SELECT array_agg(c) FROM (SELECT sum(cpu) AS c FROM replicas WHERE ended_at IS NULL GROUP BY node) x`))

	// What is deleted while it is visited gets nothing new.
	require.NoError(t, stores.AtOnce(9, func(i int) error {
		if i == 4 {
			_, err := b.turnDeployment(fleet.OperationDestroy)
			return err
		}
		return b.visitAs(web, fmt.Sprint("run-", i))
	}))
	b.visits()
	require.NoError(t, stores.AtOnce(4, func(i int) error { return b.visitAs(web, fmt.Sprint("run-", i)) }))
	require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM replicas r JOIN deployments d ON d.name = r.deployment
		WHERE d.name = 'web' AND d.state = 'DESTROYING' AND (r.created_at > d.since OR r.state <> 'TERMINATING')`))
	b.settles()
	require.Empty(t, b.replicas())
}

// visitWhile has something happen between what a visit sees and what it does about it, once.
func (b *bench) visitWhile(do func()) fleet.DeploymentVisited {
	b.T.Helper()
	var once sync.Once
	b.WhenLooked(func(fleet.DeploymentName) { once.Do(do) })
	defer b.WhenLooked(nil)
	out, err := b.VisitDeployment(b.Ctx(), fleet.DeploymentVisit{Deployment: web, Run: run1, Build: "build-1"})
	require.NoError(b.T, err)
	once.Do(func() { require.Fail(b.T, "the visit did not look") })
	return out
}

// S50, S82, X13: what nodes say between the look of a visit and what it does is not overwritten.
func TestDeploymentMovesMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	away := b.on(nodeA)[0]
	lost := func() {
		b.disconnect(nodeA)
		b.Exec(`UPDATE connections SET ended_at = now() - interval '1 minute' WHERE node = $1`, nodeA)
	}
	for what, back := range map[string]func(){
		"its node is back, and said that it is healthy": func() { b.connect(nodeA); b.obey(nodeA) },
		"its node is back, and said nothing yet":        func() { b.connect(nodeA) },
	} {
		lost()
		out := b.visitWhile(back)
		require.Equal(t, fleet.ReplicaHealthy, b.replica(away.ID).State, what)
		require.Equal(t, []int{2, 2}, []int{out.Replicas, out.Healthy}, what)
		require.Len(t, b.replicas(), 2, "%s: nothing takes its place", what)
		require.True(t, b.settles().Done)
	}

	_, err := b.turnDeployment(fleet.OperationDestroy) // the last of it ends while its end is written
	require.NoError(t, err)
	b.visits()
	b.Exec(`UPDATE replicas SET stop_by = now() - interval '1 s' WHERE state = 'TERMINATING'`)
	b.Exec(`UPDATE connections SET active_at = now() - interval '1 hour'`) // its node had the time to say so
	last := b.visitWhile(func() { b.obey(nodeA) })
	require.Equal(t, fleet.DeploymentTerminated, last.State)
	require.Empty(t, b.replicas())
	require.NotEqual(t, "stop_deadline", b.replica(away.ID).Reason)
}

// chaos is one deployment to which everything happens at once.
type chaos struct {
	*bench
	name  fleet.DeploymentName
	ended map[string]bool // replicas that have ended
	sets  map[fleet.NodeName]int64
}

func (c *chaos) put(initial int, command string) error {
	p := c.deploymentPut(ofName(c.name), asking(func(s *fleet.DeploymentSpec) {
		s.Replicas.Initial, s.Process.Command, s.Resources.CPU = initial, []string{command}, 0
	}))
	_, err := c.PutDeployment(c.T.Context(), p)
	return allowed(err)
}

// allowed are refusals that somebody who comes too late has to live with.
func allowed(err error) error {
	if kind := fleet.KindOf(err); kind == fleet.IllegalState || kind == fleet.NotFound {
		return nil
	}
	return err
}

func (c *chaos) turn(kind fleet.OperationKind, n int) error {
	_, err := c.TurnDeployment(c.T.Context(), deployments.DeploymentTurn{
		Write: stores.WriteOf(fleet.DeploymentKey(c.name)), Kind: kind, Replicas: &n,
	})
	return allowed(err)
}

// node has a node do what its set says, but for what fails.
func (c *chaos) node(n fleet.NodeName, fails bool) error {
	set, err := c.NodeReplicas(c.T.Context(), n)
	if err != nil {
		return err
	}
	r := fleet.ReplicasReport{Node: n, Set: fleet.SetVersion{Era: set.Era, Number: set.Version}, Complete: true}
	for i, x := range set.Replicas {
		switch {
		case x.Run && fails && i == 0:
			r.Replicas = append(r.Replicas, exited(x.ID))
		case x.Run:
			r.Replicas = append(r.Replicas, healthy(x.ID))
		}
	}
	_, err = c.ReplicasReported(c.T.Context(), r)
	return err
}

func (c *chaos) do(step int) error {
	switch step % 10 {
	case 0:
		return c.put(step%3, "serve")
	case 1:
		return c.put(1, "other")
	case 2:
		return c.turn(fleet.OperationScale, step%5)
	case 3:
		return c.turn(fleet.OperationRestart, 0)
	case 4:
		if step%3 > 0 {
			return nil
		}
		return c.turn(fleet.OperationDestroy, 0)
	case 5:
		return c.node(nodeA, step%4 == 1)
	case 6:
		return c.node(nodeB, step%4 == 2)
	default:
		return c.visitAs(c.name, fmt.Sprint("run-", step%2))
	}
}

// holds checks what is never to be otherwise.
func (c *chaos) holds(t *rapid.T) {
	var ended []string
	require.NoError(t, c.Raw.QueryRow(c.T.Context(), `SELECT coalesce(array_agg(id), '{}') FROM replicas WHERE deployment = $1 AND state = 'TERMINATED'`, c.name).Scan(&ended))
	now := map[string]bool{}
	for _, id := range ended {
		now[id] = true
	}
	for id := range c.ended {
		require.True(t, now[id], "replica %s was revived", id)
	}
	c.ended = now
	for _, n := range []fleet.NodeName{nodeA, nodeB} {
		_, v, err := c.NodeSetVersion(c.T.Context(), n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, v, c.sets[n])
		c.sets[n] = v
	}
	var late, live, most int
	require.NoError(t, c.Raw.QueryRow(c.T.Context(), `SELECT count(*) FILTER (WHERE d.state IN ('DESTROYING', 'TERMINATED') AND r.created_at > d.since),
		count(*) FILTER (WHERE r.state NOT IN ('TERMINATING', 'TERMINATED'))
		FROM deployments d LEFT JOIN replicas r ON r.deployment = d.name WHERE d.name = $1`, c.name).Scan(&late, &live))
	require.Zero(t, late, "something was created after its deployment was to end")
	require.NoError(t, c.Raw.QueryRow(c.T.Context(), `SELECT max((spec #>> '{replicas,max}')::int) FROM deployment_revisions WHERE deployment = $1`, c.name).Scan(&most))
	require.LessOrEqual(t, live, most+1, "one more than the most, while it is replaced")
}

// left is how a deployment stands, and how much of it has not ended.
func (c *chaos) left(t *rapid.T) string {
	var state string
	var open int
	require.NoError(t, c.Raw.QueryRow(c.T.Context(), `SELECT state, (SELECT count(*) FROM operations WHERE subject = 'deployment.' || $1 AND state = 'running')
		+ (SELECT count(*) FROM replicas WHERE deployment = $1 AND ended_at IS NULL) FROM deployments WHERE name = $1`, string(c.name)).Scan(&state, &open))
	return fmt.Sprint(state, " ", open)
}

// S32, S114, X1, X23: whatever happens at once, what has ended stays so, nothing is made of what
// ends, numbers rise, and in the end nothing is left and every operation has ended.
func TestDeploymentChaos(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		for range 5 { // each on its own
			n++
			c := &chaos{bench: b, name: fleet.DeploymentName(fmt.Sprint("web-", n)), ended: map[string]bool{}, sets: map[fleet.NodeName]int64{}}
			c.lives(r)
		}
	})
}

// lives begins a deployment, has things happen to it, and ends it.
func (c *chaos) lives(r *rapid.T) {
	require.NoError(r, c.put(2, "serve"))
	for range rapid.IntRange(1, 5).Draw(r, "rounds") {
		steps := rapid.SliceOfN(rapid.IntRange(0, 999), 3, 3).Draw(r, "steps")
		require.NoError(r, stores.AtOnce(len(steps), func(i int) error { return c.do(steps[i]) }))
		c.holds(r)
	}
	require.NoError(r, c.turn(fleet.OperationDestroy, 0))
	for range 20 {
		require.NoError(r, c.visitAs(c.name, run1))
		if c.left(r) == "TERMINATED 0" {
			return
		}
		require.NoError(r, c.node(nodeA, false))
		require.NoError(r, c.node(nodeB, false))
	}
	require.Equal(r, "TERMINATED 0", c.left(r))
}

// X12: however many deployments want nodes at once, they wait without the connections that others need;
// and one that has no room holds up nobody.
func TestDeploymentsWaitForNodes(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 64 }))
	b.visits()
	require.Equal(t, "no_room", b.viewed().Reason)
	many := 2 * int(b.Pool.Config().MaxConns)
	name := func(i int) fleet.DeploymentName { return fleet.DeploymentName(fmt.Sprint("d", i)) }
	for i := range many {
		b.putDeployment(ofName(name(i)), asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU, s.Replicas.Initial = 0, 1 }))
	}
	ctx, cancel := context.WithTimeout(t.Context(), stores.Deadline)
	defer cancel()
	choosing, err := b.HoldPlacement(ctx)
	require.NoError(t, err)
	defer func() { _ = choosing() }() // also when this fails
	looked := make(chan fleet.DeploymentName, 2*many)
	b.WhenLooked(func(name fleet.DeploymentName) {
		if name != web {
			looked <- name
		}
	})
	all := make(chan error, 1)
	go func() {
		all <- stores.AtOnce(many, func(i int) error {
			_, err := b.VisitDeployment(ctx, fleet.DeploymentVisit{Deployment: name(i), Run: run1, Build: "build-1"})
			return err
		})
	}()
	for seen := map[fleet.DeploymentName]bool{}; len(seen) < many; {
		select {
		case name := <-looked:
			seen[name] = true
		case <-ctx.Done():
			require.Fail(t, "visits that wait hold all connections")
		}
	}
	_, err = b.VisitDeployment(ctx, fleet.DeploymentVisit{Deployment: web, Run: run1, Build: "build-1"})
	require.NoError(t, err, "there is no room, and that takes no turn")
	require.NoError(t, choosing())
	require.NoError(t, <-all)
	require.Equal(t, many, stores.Scan[int](b, `SELECT count(*) FROM replicas WHERE deployment <> 'web'`))
}
