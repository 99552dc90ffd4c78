package deployments_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// S6, S7, S8, S13, S34, S36, S40, S41, X2: from the PUT to RUNNING by what nodes say, and on from there.
func TestDeploymentRuns(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	put := b.putDeployment()
	require.Equal(t, fleet.OperationConverge, put.Operation.Kind)
	require.Equal(t, webSub, put.Operation.Subject)
	require.Equal(t, fleet.DeploymentPending, b.viewed().State)

	heardSince := func() time.Time {
		return stores.Scan[time.Time](b, `SELECT heard_since FROM replica_nodes WHERE name = $1`, nodeA)
	}
	require.WithinDuration(t, time.Now(), heardSince(), time.Minute)
	first := b.visits()
	require.Equal(t, fleet.DeploymentProvisioning, first.State)
	require.False(t, first.Done)
	require.Equal(t, run1, b.Operation(put.Operation.ID).EntityRun)
	set, err := b.NodeReplicas(t.Context(), nodeA)
	require.NoError(t, err)
	require.Len(t, set.Replicas, 1)
	require.True(t, set.Replicas[0].Run)
	require.Positive(t, set.Version)

	body, err := b.DefinitionOf(t.Context(), nodeA, set.Replicas[0].Definition)
	require.NoError(t, err)
	require.Contains(t, string(body), "serve")
	other := b.define(fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"other"}}})
	_, err = b.DefinitionOf(t.Context(), nodeA, other.Hash)
	stores.Refused(t, fleet.NotFound, err)

	require.Equal(t, []string{webSub}, b.tells(nodeA, healthy(set.Replicas[0].ID)))
	last := b.settles()
	require.Equal(t, fleet.DeploymentRunning, last.State)
	require.Equal(t, fleet.OperationSucceeded, b.Operation(put.Operation.ID).State)
	v := b.viewed()
	require.Equal(t, 2, v.Counts.Healthy)
	require.Len(t, v.Conditions, 3)
	require.True(t, b.visitDeployment(run1).Done)
	require.Empty(t, b.tells(nodeA, healthy(set.Replicas[0].ID)), "nothing new")

	restarted, err := b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.settles()
	require.Equal(t, fleet.OperationSucceeded, b.Operation(restarted.Operation.ID).State)
	nodes := []fleet.NodeName{}
	for _, r := range b.replicas() {
		nodes = append(nodes, r.Node)
	}
	require.ElementsMatch(t, []fleet.NodeName{nodeA, nodeB}, nodes, "new ones are spread without a look at those that they replace")

	_, err = b.turnDeployment(fleet.OperationScale, to(3))
	require.NoError(t, err)
	b.settles()
	require.Len(t, b.replicas(), 3)
	oldest := b.replicas()[0]
	for _, r := range b.replicas() {
		if r.CreatedAt.Before(oldest.CreatedAt) {
			oldest = r
		}
	}
	_, err = b.turnDeployment(fleet.OperationScale, to(1)) // S16, S105
	require.NoError(t, err)
	b.settles()
	require.Len(t, b.replicas(), 1)
	require.NotEqual(t, oldest.ID, b.replicas()[0].ID)
	_, err = b.turnDeployment(fleet.OperationScale, to(6))
	stores.Refused(t, fleet.Invalid, err)

	before := b.replicas()[0] // new before old
	_, err = b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.visits()
	require.Len(t, b.replicas(), 2)
	b.settles()
	require.Len(t, b.replicas(), 1)
	require.NotEqual(t, before.ID, b.replicas()[0].ID)
	require.Equal(t, []string{"converge succeeded", "restart succeeded", "scale succeeded", "scale succeeded", "restart succeeded"}, b.deploymentOperations())
}

// S8, S98, X2: what of a PUT is a release, and what it does to the target.
func TestDeploymentReleases(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	require.NotNil(t, b.putDeployment().Operation)
	require.Nil(t, b.putDeployment().Operation, "the same again starts nothing")
	require.EqualValues(t, 1, b.seen().ProcessVersion)

	same := func(p *deployments.DeploymentPut) {
		p.Definition = b.define(fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"serve", "--by-the-type"}}})
	}
	require.NotNil(t, b.putDeployment(same).Operation, "its type's settings changed")
	require.Equal(t, []int64{2, 2}, []int64{b.seen().Revision, b.seen().ProcessVersion})

	placed := asking(func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"rack": string(nodeA)} })
	require.NotNil(t, b.putDeployment(same, placed).Operation)
	require.Equal(t, []int64{3, 2}, []int64{b.seen().Revision, b.seen().ProcessVersion}, "what runs stays")

	b.settles()
	_, err := b.turnDeployment(fleet.OperationScale, to(4))
	require.NoError(t, err)
	more := asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 0.5 })
	b.putDeployment(more)
	require.Equal(t, 4, b.seen().Target, "scaling stays")
	b.putDeployment(more, asking(func(s *fleet.DeploymentSpec) { s.Replicas.Max = 3 }))
	require.Equal(t, 3, b.seen().Target, "within the bounds")

	at := b.seen()
	require.Nil(t, b.putDeployment(notReleased, asking(func(s *fleet.DeploymentSpec) { s.Replicas.Max, s.State = 1, fleet.StateStopped })).Operation)
	after := b.seen()
	require.Equal(t, []any{at.Revision, at.Target, false}, []any{after.Revision, after.Target, after.Stopped}, "nothing of it is released")

	all, err := b.ListDeploymentRevisions(t.Context(), web, postgres.Place{}, 2)
	require.NoError(t, err)
	require.EqualValues(t, []int64{5, 4}, []int64{all[0].Revision, all[1].Revision})
	rest, err := b.ListDeploymentRevisions(t.Context(), web, postgres.Place{ID: "4"}, 10)
	require.NoError(t, err)
	require.Len(t, rest, 3)

	twice := func(p *deployments.DeploymentPut) { p.Idempotency = postgres.Idempotency{Key: "k", Hash: []byte("h")} }
	one := b.putDeployment(twice, asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 0.25 }))
	require.Equal(t, one.Operation.ID, b.putDeployment(twice, asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = 0.25 })).Operation.ID) // X11
}

// S31, S32, S38, S39, S42, S43, S113, S114: the end, and another of the same name after it.
func TestDeploymentEnds(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()

	b.putDeployment(notReleased) // never released: it ends at once
	out, err := b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	require.Nil(t, out.Operation)
	require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
	_, err = b.turnDeployment(fleet.OperationDestroy)
	stores.Refused(t, fleet.NotFound, err)

	b.putDeployment()
	first := b.viewed()
	b.settles()
	_, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	for kind, edit := range map[fleet.OperationKind]func(*deployments.DeploymentTurn){
		fleet.OperationConverge: func(*deployments.DeploymentTurn) {}, fleet.OperationScale: to(1), fleet.OperationRestart: func(*deployments.DeploymentTurn) {},
	} {
		_, err := b.turnDeployment(kind, edit)
		stores.Refused(t, fleet.IllegalState, err)
	}
	b.visits()
	require.Equal(t, fleet.DeploymentDestroying, b.viewed().State)

	require.Nil(t, b.putDeployment(notReleased).Operation) // a PUT that releases nothing renews nothing
	b.visits()
	require.Equal(t, fleet.DeploymentDestroying, b.viewed().State)
	require.Equal(t, first.UID, b.viewed().UID)
	again := b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	require.NotNil(t, again.Operation)
	for range 3 {
		require.Zero(t, b.visits().Replicas, "nothing is created after DESTROYING")
	}
	last := b.settles()
	require.Equal(t, fleet.DeploymentRunning, last.State)
	require.Equal(t, 1, last.Healthy)
	v := b.viewed()
	require.NotEqual(t, first.UID, v.UID)
	require.Greater(t, v.Revision, first.Revision, "numbers go on")
	require.Greater(t, v.ProcessVersion, first.ProcessVersion)
	require.Equal(t, fleet.OperationSucceeded, b.Operation(again.Operation.ID).State)

	_, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	b.settles()
	require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
	require.Empty(t, b.replicas())
	_, err = b.GetObject(t.Context(), webKey)
	stores.Refused(t, fleet.NotFound, err)
	require.Equal(t, []string{"converge succeeded", "destroy succeeded", "converge succeeded", "destroy succeeded"}, b.deploymentOperations())
	require.True(t, b.visitDeployment(stores.Run2).Done)
}

// actors are who did what the history of web tells, and who released its revisions.
func (b *bench) actors() (all []string) {
	b.T.Helper()
	lines, err := b.ListDeploymentHistory(b.Ctx(), web, postgres.Place{}, 100)
	require.NoError(b.T, err)
	for _, l := range lines {
		all = append(all, l.Actor)
	}
	revisions, err := b.ListDeploymentRevisions(b.Ctx(), web, postgres.Place{}, 100)
	require.NoError(b.T, err)
	for _, r := range revisions {
		all = append(all, r.CreatedBy)
	}
	return all
}

// S135: a name goes from one project to another without what became of it before.
func TestDeploymentHistoryOfOneProject(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.DeclareProject("red")
	b.DeclareProject("blue")
	put := func(who fleet.ProjectName) {
		b.putDeployment(func(p *deployments.DeploymentPut) { p.Project, p.Actor = who, string(who) })
	}
	destroy := func(who fleet.ProjectName) {
		_, err := b.turnDeployment(fleet.OperationDestroy, func(t *deployments.DeploymentTurn) { t.Project, t.Actor = who, string(who) })
		require.NoError(t, err)
	}
	for range 2 {
		put("red")
		b.settles()
		destroy("red")
		put("red") // waits for the end of the one before, and is deleted again
		destroy("red")
		b.settles()
	}
	require.Contains(t, b.actors(), "red", "its own earlier declarations")
	put("blue")
	b.settles()
	require.Contains(t, b.actors(), "blue")
	require.NotContains(t, b.actors(), "red")
	destroy("blue")
	put("blue") // begins in the visit that ends the one before
	b.settles()
	require.Empty(t, stores.Scan[[]string](b, `SELECT coalesce(array_agg(e.before ->> 'state'), '{}') FROM (
		SELECT DISTINCT ON (uid) before FROM events WHERE kind = 'deployment' AND type = 'status' ORDER BY uid, seq) e
		WHERE e.before ->> 'state' <> 'PENDING'`), "what another declaration was is no status of this one (X17)")

	require.Zero(t, stores.Scan[int](b, `SELECT count(*) FROM deployment_history WHERE project = ''`))
}

// X17, X24: the feed tells each new target, revision and process version with the write that made it, also of
// what no visit moves.
func TestDeploymentStatusEvents(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	told := func() (all []string) {
		b.T.Helper()
		was := ""
		for _, e := range b.Feed(postgres.Cursor{}) {
			if e.Type != "status" || e.Key.Kind != fleet.KindDeployment {
				continue
			}
			var before, after struct {
				State, Reason                    string
				Revision, ProcessVersion, Target int
				Conditions                       json.RawMessage
			}
			require.NoError(t, json.Unmarshal(e.Before, &before))
			require.NoError(t, json.Unmarshal(e.After, &after))
			if was != "" {
				require.Equal(t, was, fmt.Sprint(before), "each begins where the one before ended")
			}
			was = fmt.Sprint(after)
			all = append(all, fmt.Sprintf("%s %s r%d p%d of %d by %s", after.State, after.Reason, after.Revision, after.ProcessVersion, after.Target, e.Actor))
		}
		return all
	}
	b.putDeployment()
	b.settles()
	before := len(told())
	_, err := b.turnDeployment(fleet.OperationScale, to(3))
	require.NoError(t, err)
	_, err = b.turnDeployment(fleet.OperationScale, to(2)) // before anybody looked
	require.NoError(t, err)
	_, err = b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Max = 4 }))
	by := stores.WriteOf(webKey).Actor
	require.Equal(t, []string{
		"RUNNING available r1 p1 of 3 by " + by, "RUNNING available r1 p1 of 2 by " + by,
		"RUNNING available r1 p2 of 2 by " + by, "RUNNING available r2 p2 of 2 by " + by,
	}, told()[before:])
	b.settles()
	last := told()
	require.Equal(t, "RUNNING converged r2 p2 of 2 by region", last[len(last)-1])
	b.settles()
	require.Equal(t, last, told(), "nothing changed")
}

// F43, S42: of what is stopped nothing can be scaled; the target stays as it was.
func TestDeploymentScaleStopped(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	stop := asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped })
	b.putDeployment()
	open, err := b.turnDeployment(fleet.OperationScale, to(3))
	require.NoError(t, err)
	b.putDeployment(stop)
	b.settles()
	require.Equal(t, "superseded stopped", b.endedAs(open.Operation))
	_, err = b.turnDeployment(fleet.OperationScale, to(4))
	stores.Refused(t, fleet.IllegalState, err)
	require.ErrorContains(t, err, "is stopped")
	b.putDeployment(stop, notReleased)
	_, err = b.turnDeployment(fleet.OperationScale, to(4))
	stores.Refused(t, fleet.IllegalState, err)
	b.putDeployment()
	require.Equal(t, 3, b.settles().Healthy)
	_, err = b.turnDeployment(fleet.OperationScale, to(4))
	require.NoError(t, err)
	require.Equal(t, 4, b.settles().Healthy)
}

// F78, S107: each crash in a row counts, so that the fourth waits.
func TestDeploymentCrashesAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.settles()
	for n := range 4 {
		for _, r := range b.replicas() {
			if r.State.Live() {
				b.tells(r.Node, exited(r.ID))
			}
		}
		b.visits()
		require.Equal(t, n+1, b.seen().Crashes)
		waits := b.seen().NextAttempt.After(b.seen().At)
		require.Equal(t, n == 3, waits, "after crash %d", n+1)
	}
	require.Equal(t, 1, b.seen().Owed)
	_, err := b.turnDeployment(fleet.OperationScale, to(2))
	require.NoError(t, err)
	b.visits()
	live := 0
	for _, r := range b.seen().Replicas {
		if r.State.Live() {
			live++
		}
	}
	require.Equal(t, 1, live, "the one that is new is made, the one that failed waits")
}

// X5, X11, X25: a door asks once, and hears of the end; what is unknown is refused.
func TestDeploymentDoors(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	_, err := b.turnDeployment(fleet.OperationConverge)
	stores.Refused(t, fleet.NotFound, err)
	b.putDeployment(notReleased)
	_, err = b.turnDeployment(fleet.OperationConverge)
	stores.Refused(t, fleet.IllegalState, err)
	b.putDeployment()
	door := func(t *deployments.DeploymentTurn) {
		t.Door = postgres.Door{Workflow: "w", Run: "r"}
	}
	one, err := b.turnDeployment(fleet.OperationConverge, door)
	require.NoError(t, err)
	require.Greater(t, time.Until(one.Operation.Deadline), 10*time.Minute)
	two, err := b.turnDeployment(fleet.OperationConverge, door)
	require.NoError(t, err)
	require.Equal(t, one.Operation.ID, two.Operation.ID)
	_, err = b.turnDeployment(fleet.OperationDeploy)
	stores.Refused(t, fleet.Invalid, err)
	_, err = b.turnDeployment(fleet.OperationScale)
	stores.Refused(t, fleet.Invalid, err)

	open, err := b.OpenEntities(t.Context(), fleet.EntityDeployment, "", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []postgres.OpenEntity{{Subject: webSub}}, open)
	last := b.settles()
	require.Equal(t, 1, last.Untold)
	require.Len(t, last.Ended, 2)
	untold, err := b.UntoldDoors(t.Context(), webSub, 10)
	require.NoError(t, err)
	require.Equal(t, one.Operation.ID, untold[0].ID)

	_, err = b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.visits()
	closed, err := b.CloseEntityOperations(t.Context(), postgres.OpenEntity{Subject: webSub, Run: run1}, "workflow_terminated")
	require.NoError(t, err)
	require.Equal(t, []fleet.OperationEnded{{Kind: fleet.OperationRestart, State: fleet.OperationFailed, Reason: "workflow_terminated"}}, closed, "S93")
	b.settles()
	require.Equal(t, "restart failed", b.deploymentOperations()[2])

	scaled, err := b.turnDeployment(fleet.OperationScale, to(4)) // cancelled: nobody waits any more, and what was asked stays
	require.NoError(t, err)
	_, err = b.CancelOperation(t.Context(), scaled.Operation.ID)
	require.NoError(t, err)
	b.visits()
	require.Equal(t, fleet.OperationCancelled, b.Operation(scaled.Operation.ID).State)
	require.Equal(t, 4, b.seen().Target)
	b.settles()
	deployments, replicas, err := b.CountRuntime(t.Context()) // S93
	require.NoError(t, err)
	require.Equal(t, map[fleet.DeploymentState]int64{fleet.DeploymentRunning: 1}, deployments)
	require.Equal(t, map[fleet.ReplicaState]int64{fleet.ReplicaHealthy: 4}, replicas)
}

// X6, X8: an operation ends at its deadline by the word of its entity, which knows what was awaited;
// without one the sweep says what that said last.
func TestDeploymentDeadlines(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	first := b.putDeployment()
	next := b.visits().Next
	require.False(t, next.IsZero())
	b.Exec(`UPDATE operations SET deadline_at = now() + interval '1 s'`)
	require.WithinDuration(t, time.Now(), b.visits().Next, 5*time.Second, "its entity looks then")
	b.Exec(`UPDATE operations SET deadline_at = now() - interval '1 s'`)
	n, _, err := b.EndOverdue(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, n, "it is its entity's")
	b.visits()
	op := b.Operation(first.Operation.ID)
	require.Equal(t, []any{fleet.OperationFailed, "deadline"}, []any{op.State, op.Reason})
	require.Contains(t, op.Message, "waiting for: 2 starting replicas")

	second, err := b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.Exec(`UPDATE operations SET deadline_at = now() - interval '2 minutes' WHERE state = 'running'`)
	n, ended, err := b.EndOverdue(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, []fleet.OperationEnded{{Kind: fleet.OperationRestart, State: fleet.OperationFailed, Reason: "deadline"}}, ended, "S93")
	op = b.Operation(second.Operation.ID)
	require.Equal(t, []any{fleet.OperationFailed, "deadline"}, []any{op.State, op.Reason})
	require.Contains(t, op.Message, "waiting for: 2 starting replicas")

	_, err = b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	b.Exec(`UPDATE operations SET deadline_at = now() - interval '1 s', name = 'gone' WHERE state = 'running'`)
	_, ended, err = b.EndOverdue(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, ended, 1, "S93, also where no row tells of its deployment")
}

// S105, X4, X28: a node that reconnects runs on what it ran: where no other node takes its replicas, they are not replaced, restarted or
// ended, however long it was away (kubeedge 4048).
func TestReconnectRestartsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"rack": string(nodeA)} }))
	b.settles()
	before := b.replicas()
	require.Len(t, before, 2)
	set := b.set(nodeA)
	b.disconnect(nodeA)
	b.Exec(`UPDATE connections SET ended_at = now() - interval '1 day' WHERE node = $1`, nodeA)
	b.visits()
	require.Equal(t, fleet.ReplicaUnhealthy, b.replicas()[0].State)
	b.connect(nodeA)
	b.visits()
	require.Equal(t, set.Replicas, b.set(nodeA).Replicas, "its set asks for the same, and ends nothing")
	b.settles()
	for i, r := range b.replicas() {
		require.Equal(t, []any{before[i].ID, fleet.ReplicaHealthy, 0}, []any{r.ID, r.State, r.Restarts})
	}
	require.Len(t, b.replicas(), 2)
}

// S105, X28: what a node that is back runs does not end before it has said how it is.
func TestDeploymentNodeIsBack(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.settles()
	first := b.replicas()[0]
	b.disconnect(first.Node)
	b.Exec(`UPDATE connections SET ended_at = now() - interval '1 minute' WHERE node = $1`, first.Node)
	b.visits()
	require.Equal(t, fleet.ReplicaUnhealthy, b.replica(first.ID).State)
	require.Len(t, b.replicas(), 2)

	b.connect(first.Node)
	b.visits()
	for _, r := range b.replicas() {
		require.True(t, r.State.Live(), "%s is %s", r.ID, r.Reason)
	}
	b.tells(first.Node, healthy(first.ID))
	b.settles()
	require.Len(t, b.replicas(), 1)
	require.Equal(t, fleet.ReplicaHealthy, b.replica(first.ID).State)
}

// S17, S105, X4: a node is lost by its own silence, not by the region's: while it had no server to speak to,
// nobody could hear it.
func TestDeploymentRegionWasAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(b *bench){
		"its servers are gone, and others go on": func(b *bench) {
			require.NoError(b.T, b.LinkServerGone(b.Ctx(), linkServer))
		},
		"its server has just begun": func(b *bench) {
			require.NoError(b.T, b.LinkServerGone(b.Ctx(), linkServer))
			require.NoError(b.T, b.LinkServerSeen(b.Ctx(), "another", time.Minute))
		},
		"its server is silent": func(b *bench) {
			b.Exec(`UPDATE link_servers SET seen_at = now() - interval '2 minutes'`)
		},
		"its server was silent, and is back": func(b *bench) {
			b.Exec(`UPDATE link_servers SET seen_at = now() - interval '2 minutes'`)
			require.NoError(b.T, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t).deployable()
			b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 2 }))
			b.settles()
			for _, n := range []fleet.NodeName{nodeA, nodeB} {
				b.disconnect(n)
			}
			b.Exec(`UPDATE connections SET ended_at = now() - interval '1 hour'`)
			away(b)
			require.False(t, b.visits().Done)
			for _, r := range b.replicas() {
				require.Equal(t, fleet.ReplicaHealthy, r.State)
			}
			require.Len(t, b.replicas(), 2)

			require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
			b.LinkSince("61 seconds") // 30 s to come back, and lostSeconds
			b.visits()
			for _, r := range b.replicas() {
				require.Equal(t, fleet.ReplicaUnhealthy, r.State, "they were missed for longer than lostSeconds")
			}
		})
	}
	t.Run("one of two servers is new", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 2 }))
		b.settles()
		b.disconnect(nodeA)
		b.Exec(`UPDATE connections SET ended_at = now() - interval '31 seconds' WHERE node = $1`, nodeA)
		require.NoError(t, b.LinkServerSeen(b.Ctx(), "another", time.Minute))
		require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
		b.visits()
		lost := 0
		for _, r := range b.replicas() {
			if r.State == fleet.ReplicaUnhealthy {
				require.Equal(t, nodeA, r.Node)
				lost++
			}
		}
		require.Equal(t, 1, lost)
	})
	t.Run("one of two servers is silent, and has not been swept", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 2 }))
		b.settles()
		for _, n := range []fleet.NodeName{nodeA, nodeB} { // long ago
			b.disconnect(n)
			b.Exec(`UPDATE connections SET ended_at = now() - interval '1 hour' WHERE ended_at IS NOT NULL`)
			b.connect(n)
		}
		require.NoError(t, b.LinkServerSeen(b.Ctx(), "another", time.Minute))
		b.LinkSince("1 day")
		b.Exec(`UPDATE link_servers SET seen_at = now() - interval '2 minutes' WHERE id = $1`, linkServer)
		require.Empty(t, b.dueDeployments())
		b.visits()
		for _, r := range b.replicas() {
			require.Equal(t, fleet.ReplicaHealthy, r.State)
		}
		require.Len(t, b.replicas(), 2)
		require.NoError(t, b.LinkServerGone(b.Ctx(), linkServer)) // it is swept
		b.visits()
		require.Len(t, b.replicas(), 2)
		b.Exec(`UPDATE connections SET ended_at = now() - interval '31 seconds'`)
		b.visits()
		for _, r := range b.replicas() {
			require.Equal(t, fleet.ReplicaUnhealthy, r.State)
		}
	})
	t.Run("the database's clock was set back", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.Exec(`UPDATE link_servers SET since = now() + interval '1 hour', seen_at = now() + interval '1 hour'`)
		b.Exec(`UPDATE connections SET active_at = now() + interval '1 hour'`)
		require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute))
		for _, look := range []string{
			`SELECT count(*) FROM link_there WHERE since > now() + interval '31 seconds'`,
			`SELECT count(*) FROM replica_nodes WHERE heard_since > now() OR NOT heard`,
		} {
			require.Zero(t, stores.Scan[int](b, look), look)
		}
	})
	t.Run("nobody looks at what cannot be known", func(t *testing.T) {
		t.Parallel()
		b := setup(t).deployable()
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 2 }))
		b.settles()
		require.Empty(t, b.dueDeployments())
		b.disconnect(nodeA)
		require.NotEmpty(t, b.dueDeployments())
		require.NoError(t, b.LinkServerGone(b.Ctx(), linkServer))
		require.Empty(t, b.dueDeployments())
	})
}

// S53, X4: what was to end while the region was away is not taken for gone before its node could say so.
func TestDeploymentEndsOverAnAbsence(t *testing.T) {
	t.Parallel()
	ends := func(t *testing.T) (*bench, fleet.ReplicaID) {
		b := setup(t).deployable()
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
		b.settles()
		_, err := b.turnDeployment(fleet.OperationDestroy)
		require.NoError(t, err)
		b.visits()
		one := b.replicas()[0]
		require.Equal(t, fleet.ReplicaTerminating, one.State)
		b.disconnect(one.Node)
		b.Exec(`UPDATE connections SET ended_at = now() - interval '10 minutes' WHERE ended_at IS NOT NULL`)
		b.Exec(`UPDATE replicas SET stop_by = now() - interval '9 minutes'`)
		return b, one.ID
	}
	t.Run("its node is back, and says so", func(t *testing.T) {
		t.Parallel()
		b, id := ends(t)
		b.LinkSince("1 second")
		require.False(t, b.visits().Done)
		require.Equal(t, fleet.ReplicaTerminating, b.replica(id).State)
		b.connect(b.replica(id).Node)
		b.visits()
		require.Equal(t, fleet.ReplicaTerminating, b.replica(id).State, "it has just come back")
		b.obey(b.replica(id).Node)
		b.settles()
		require.Empty(t, b.replicas())
		require.NotContains(t, []string{"node_lost", "stop_deadline"}, b.replica(id).Reason)
	})
	t.Run("no server is there", func(t *testing.T) {
		t.Parallel()
		b, id := ends(t)
		require.NoError(t, b.LinkServerGone(b.Ctx(), linkServer))
		b.visits()
		require.Equal(t, fleet.ReplicaTerminating, b.replica(id).State)
	})
	t.Run("its node does not come", func(t *testing.T) {
		t.Parallel()
		b, id := ends(t)
		b.LinkSince("31 seconds")
		b.visits()
		require.Equal(t, "node_lost", b.replica(id).Reason)
	})
	t.Run("its node is back, and never says so", func(t *testing.T) {
		t.Parallel()
		b, id := ends(t)
		b.connect(b.replica(id).Node)
		b.Exec(`UPDATE connections SET active_at = now() - interval '5 minutes' WHERE ended_at IS NULL`)
		b.visits()
		require.Equal(t, "stop_deadline", b.replica(id).Reason)
	})
}

// S48: deadlines by which a node has to say something begin anew when the region is back, also for one
// whose stream is not known to have broken.
func TestDeploymentDeadlinesOverAnAbsence(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 1 }))
	b.settles()
	one := b.replicas()[0]
	b.Exec(`UPDATE replicas SET state = 'UNHEALTHY', since = now() - interval '1 hour'`)
	b.Exec(`UPDATE connections SET active_at = now() - interval '2 hours'`)
	b.Exec(`UPDATE link_servers SET seen_at = now() - interval '50 minutes'`)
	b.visits()
	require.Equal(t, fleet.ReplicaUnhealthy, b.replica(one.ID).State, "its server is silent")
	require.NoError(t, b.LinkServerSeen(b.Ctx(), linkServer, time.Minute)) // its streams outlived the absence
	b.visits()
	require.Equal(t, fleet.ReplicaUnhealthy, b.replica(one.ID).State, "it had nobody to tell")
	b.LinkSince("1 hour")
	b.visits()
	require.Equal(t, fleet.ReplicaTerminating, b.replica(one.ID).State)
}

// S47, S48: the region knows how long a node may look at what it started.
func TestDeploymentSettleTime(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
		s.Process.Health = &fleet.HealthCheck{Interval: 600, Timeout: 5, HealthyThreshold: 5, UnhealthyThreshold: 1}
	}))
	require.Equal(t, 2*time.Hour+10*time.Minute+5*time.Second, b.seen().Settle)
}

// X6: what is to be replaced one by one is counted, and how long each may take.
func TestDeploymentLimits(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	limited := func(op *postgres.Operation, terms fleet.OperationTerms) {
		t.Helper()
		require.WithinDuration(t, op.CreatedAt.Add(decide.OperationLimit(terms)), op.Deadline, time.Second)
	}
	put := func(command string, more ...func(*fleet.DeploymentSpec)) *postgres.Operation {
		return b.putDeployment(asking(func(s *fleet.DeploymentSpec) {
			for _, edit := range more {
				edit(s)
			}
			s.Replicas.Initial, s.Process.Command, s.Process.StopSeconds = 3, []string{command}, 20
			s.Process.Startup, s.Process.Health = &fleet.Startup{Deadline: 120}, &fleet.HealthCheck{Interval: 10, Timeout: 5, HealthyThreshold: 2}
		})).Operation
	}
	terms := func(kind fleet.OperationKind, replace int) fleet.OperationTerms {
		return fleet.OperationTerms{Kind: kind, Replace: replace, Startup: 2 * time.Minute, Check: 25 * time.Second, Stop: 20 * time.Second}
	}
	limited(put("one"), terms(fleet.OperationConverge, 0))
	b.settles()
	limited(put("two"), terms(fleet.OperationConverge, 3))
	b.settles()
	out, err := b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	limited(out.Operation, terms(fleet.OperationRestart, 3))
	b.settles()
	out, err = b.turnDeployment(fleet.OperationScale, to(4))
	require.NoError(t, err)
	limited(out.Operation, terms(fleet.OperationScale, 0))
	b.settles()
	moved := put("two", func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"rack": string(nodeB)} })
	limited(moved, terms(fleet.OperationConverge, 4)) // all may have to move

	b.settles()
	slow := func(s *fleet.DeploymentSpec) { s.Process.StopSeconds = 3600 }
	b.putDeployment(asking(slow))
	b.settles()
	long := terms(fleet.OperationConverge, 4)
	long.Stop = time.Hour
	limited(put("three"), long) // what runs still takes that long
	b.Exec(`UPDATE replicas SET state = 'TERMINATING', stop_by = now() + interval '1 hour' WHERE ended_at IS NULL`)
	out, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	limited(out.Operation, fleet.OperationTerms{Kind: fleet.OperationDestroy, Stop: time.Hour})
}

// S47, S49, S84: each start of a replica has its own time.
func TestReplicaStartedAnew(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.visits()
	r := b.on(nodeA)[0]
	said := fleet.ReplicaStatus{ID: r.ID, Phase: fleet.PhaseRunning, Health: fleet.HealthNotChecked}
	b.tells(nodeA, said)
	b.Exec(`UPDATE replicas SET since = since - interval '1 hour'`)
	first := b.replica(r.ID).Since
	b.tells(nodeA, said)
	require.Equal(t, first, b.replica(r.ID).Since)
	said.Restarts = 1
	b.tells(nodeA, said)
	require.Equal(t, fleet.ReplicaStarting, b.replica(r.ID).State)
	require.WithinDuration(t, time.Now(), b.replica(r.ID).Since, time.Minute)
}

// X7, X20: a deploy of what another deploy has just released follows that, or converges anew.
func TestDeployOfWhatIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	deploy := func(edits ...func(*deployments.DeploymentPut)) (postgres.Started, error) {
		p := b.deploymentPut(edits...)
		p.Converge = true
		return b.PutDeployment(t.Context(), p)
	}
	same := func(want fleet.OperationID, edits ...func(*deployments.DeploymentPut)) {
		t.Helper()
		out, err := deploy(edits...)
		require.NoError(t, err)
		require.Equal(t, want, out.Operation.ID)
	}
	keyed := keyedAs("k")
	b.putDeployment(notReleased)
	first, err := deploy()
	require.NoError(t, err)
	same(first.Operation.ID, keyed)
	b.settles()
	same(first.Operation.ID, keyed)
	again, err := deploy()
	require.NoError(t, err)
	require.NotEqual(t, first.Operation.ID, again.Operation.ID)
	require.Equal(t, fleet.OperationConverge, again.Operation.Kind)
	door := postgres.Door{Workflow: "door", Run: "run"}
	own, err := deploy(func(p *deployments.DeploymentPut) { p.Door = door })
	require.NoError(t, err)
	require.NotEqual(t, again.Operation.ID, own.Operation.ID, "a door is told of its own")

	_, err = b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	next := b.putDeployment()
	same(next.Operation.ID, keyedAs("other"))
	require.True(t, b.settles().Done)
	require.Equal(t, fleet.OperationSucceeded, b.Operation(next.Operation.ID).State)
}

func keyedAs(key string) func(*deployments.DeploymentPut) {
	return func(p *deployments.DeploymentPut) { p.Idempotency = postgres.Idempotency{Key: key, Hash: []byte("h")} }
}

// X13, S93: the door that deletes what was never released finds its operation when it asks again.
func TestDoorOfUnreleased(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(notReleased)
	byDoor := func(d *deployments.DeploymentTurn) { d.Door = postgres.Door{Workflow: "door", Run: "run"} }
	first, err := b.turnDeployment(fleet.OperationDestroy, byDoor)
	require.NoError(t, err)
	require.Equal(t, []any{fleet.OperationSucceeded, "destroyed"}, []any{first.Operation.State, first.Operation.Reason})
	require.True(t, first.Changed, "so its end is counted, once")
	require.NotNil(t, first.Operation.EndedAt)
	again, err := b.turnDeployment(fleet.OperationDestroy, byDoor)
	require.NoError(t, err)
	require.Equal(t, first.Operation.ID, again.Operation.ID)
	require.False(t, again.Changed)
	require.Equal(t, fleet.DeploymentTerminated, b.viewed().State)
	untold, err := b.UntoldDoors(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, untold, "the answer told it")
	require.True(t, b.visitDeployment(run1).Done)

	b.putDeployment()
	again, err = b.turnDeployment(fleet.OperationDestroy, byDoor)
	require.NoError(t, err)
	require.Equal(t, first.Operation.ID, again.Operation.ID)
	require.Equal(t, fleet.DeploymentPending, b.viewed().State, "another of the name is not for that door")
}

// X18: conditions say since when their status holds, and that alone is no change.
func TestDeploymentConditionsSince(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	conditions := func() map[string]fleet.Condition {
		out := map[string]fleet.Condition{}
		for _, c := range b.viewed().Conditions {
			require.WithinDuration(t, time.Now(), c.Since, time.Minute)
			out[c.Type] = c
		}
		return out
	}
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Replicas.Initial, s.Replicas.Min = 1, 1 }))
	b.visits()
	first := conditions()
	require.Equal(t, fleet.ConditionFalse, first[decide.ConditionAvailable].Status)
	b.settles()
	b.visits()
	running := conditions()
	require.Greater(t, running[decide.ConditionAvailable].Since, first[decide.ConditionAvailable].Since)

	counts := func() []any {
		return []any{stores.Scan[int](b, `SELECT count(*) FROM events`), b.viewed().Updated}
	}
	before := counts()
	b.visits()
	require.Equal(t, running, conditions())
	require.Equal(t, before[0], counts()[0])
	before = counts()
	b.Exec(`UPDATE deployments SET conditions = (SELECT jsonb_agg(c || '{"since": "2026-01-02T03:04:05Z"}') FROM jsonb_array_elements(conditions) c)`)
	_, err := b.turnDeployment(fleet.OperationScale, to(2)) // another reason, the same status
	require.NoError(t, err)
	available := b.viewed().Conditions[0]
	require.Equal(t, decide.ConditionAvailable, available.Type)
	b.visits()
	require.Equal(t, available.Since, b.viewed().Conditions[0].Since)
	require.NotEqual(t, before[0], counts()[0])
}

// X18: what is declared anew while its predecessor ends holds nothing since before it was declared.
func TestConditionsOfNewDeclaration(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.settles()
	_, err := b.turnDeployment(fleet.OperationDestroy)
	require.NoError(t, err)
	b.visits()
	first := b.viewed()
	require.Equal(t, fleet.DeploymentDestroying, first.State)
	b.Exec(`UPDATE deployments SET conditions = (SELECT jsonb_agg(c || '{"since": "2020-01-01T00:00:00Z"}') FROM jsonb_array_elements(conditions) c)`)
	b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped })) // it is degraded as little
	b.obey(nodeA)
	b.obey(nodeB)
	b.visits()
	v := b.viewed()
	require.NotEqual(t, first.UID, v.UID)
	require.Len(t, v.Conditions, 3)
	for _, c := range v.Conditions {
		require.WithinDuration(t, time.Now(), c.Since, time.Minute, c.Type)
	}
}

// S93: what moved replicas is told once it is written, also by the last word of a node.
func TestReplicaEventsAreTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.connect(nodeB)
	connection := b.connect(nodeA)
	b.putDeployment()
	b.visits()
	said := fleet.ReplicasReport{Node: nodeA, Replicas: []fleet.ReplicaStatus{healthy(b.on(nodeA)[0].ID)}}

	late := said
	late.Connection = fleet.ConnectionID(strings.Repeat("0", 32))
	heard, err := b.ReplicasReported(t.Context(), late)
	stores.Refused(t, fleet.Gone, err)
	require.Empty(t, heard)
	heard, err = b.ReplicasReported(t.Context(), said)
	require.NoError(t, err)
	require.Equal(t, []fleet.ReplicaEvent{fleet.ReplicaPassed}, heard.Moved)
	heard, err = b.NodeStopped(t.Context(), connection, "node:"+string(nodeA))
	require.NoError(t, err)
	require.Equal(t, []fleet.ReplicaEvent{fleet.ReplicaFailed}, heard.Moved)
}
