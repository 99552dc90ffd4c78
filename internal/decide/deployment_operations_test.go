package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func asks(op fleet.DeploymentOperation) changed {
	return func(s *fleet.DeploymentSeen) {
		op.ID = "op"
		s.Operations = []fleet.DeploymentOperation{op}
	}
}

func unconfirmed(all ...fleet.UnconfirmedNode) changed {
	return func(s *fleet.DeploymentSeen) { s.Unconfirmed = all }
}

// X4, X6, X7, S42: how operations end, and which run on.
func TestDeploymentOperations(t *testing.T) {
	t.Parallel()
	converge := fleet.DeploymentOperation{Kind: fleet.OperationConverge, ProcessVersion: 1}
	newer := fleet.DeploymentOperation{Kind: fleet.OperationRestart, ProcessVersion: 2}
	scale := fleet.DeploymentOperation{Kind: fleet.OperationScale, Target: 2}
	destroy := fleet.DeploymentOperation{Kind: fleet.OperationDestroy}
	with := func(op fleet.DeploymentOperation, change func(*fleet.DeploymentOperation)) changed {
		change(&op)
		return asks(op)
	}
	cancelled := func(o *fleet.DeploymentOperation) { o.Cancelled = true }
	stale := func(o *fleet.DeploymentOperation) { o.Stale = true }
	late := func(o *fleet.DeploymentOperation) { o.Deadline = noon.Add(-time.Second) }
	running, starting := replica(1), replica(2, state(fleet.ReplicaStarting))
	destroying, terminated := at(fleet.DeploymentDestroying), at(fleet.DeploymentTerminated)
	const runs fleet.OperationState = ""
	for _, c := range []struct {
		name   string
		seen   fleet.DeploymentSeen
		state  fleet.OperationState
		reason string
	}{
		{"converges", deployment(asks(converge), has(running)), fleet.OperationSucceeded, "converged"},
		{"waits until all are healthy", deployment(asks(converge), target(2, 1), has(running, starting)), runs, ""},
		{"waits until nothing older runs", deployment(asks(newer), released(1, 2), began(1, 2), target(2, 1), has(running, replica(2, version(2)))), runs, ""},
		{"restarted", deployment(asks(newer), released(1, 2), began(1, 2), has(replica(2, version(2)))), fleet.OperationSucceeded, "converged"},
		{"is not done before it is begun", deployment(asks(converge), fresh, target(1, 1)), runs, ""},
		{"is available in this very visit", deployment(asks(converge), at(fleet.DeploymentProvisioning), has(running)), fleet.OperationSucceeded, "converged"},
		{"scaled", deployment(asks(scale), has(running, replica(2))), fleet.OperationSucceeded, "scaled"},
		{"scales up", deployment(asks(scale), target(2, 1), has(running, starting)), runs, ""},
		{"scales down", deployment(asks(scale), has(running, replica(2), replica(3)), target(2, 1)), runs, ""},
		{"waits for the end of what is too much", deployment(asks(scale), target(2, 1), has(running, replica(2), replica(3, ending(time.Second)))), runs, ""},
		{"stopped", deployment(asks(converge), at(fleet.DeploymentPending), stopped), fleet.OperationSucceeded, "stopped"},
		{"stops", deployment(asks(converge), stopped, has(running)), runs, ""},
		{"its end was taken back", deployment(asks(destroy), has(running)), fleet.OperationSuperseded, "redeclared"},
		{"scaled, and stopped since", deployment(asks(scale), stopped, has(running, replica(2))), fleet.OperationSuperseded, "stopped"},
		{"scaled, and has stopped since", deployment(asks(scale), at(fleet.DeploymentPending), stopped), fleet.OperationSuperseded, "stopped"},
		{"given up", deployment(asks(converge), at(fleet.DeploymentError), target(1, 1)), fleet.OperationFailed, "given_up"},
		{"given up in this very visit", deployment(asks(converge), at(fleet.DeploymentProvisioning), attempts(2, -time.Minute), has(replica(1, exited, justNow))), fleet.OperationFailed, "given_up"},
		{"cancelled", deployment(with(converge, cancelled), has(starting)), fleet.OperationCancelled, "cancelled"},
		{"superseded", deployment(with(converge, stale), has(running)), fleet.OperationSuperseded, "superseded"},
		{"overtaken by a delete", deployment(asks(scale), deleting, has(running)), fleet.OperationSuperseded, "deleted"},
		{"waits for the end of its predecessor", deployment(asks(converge), destroying, deleting, again, has(replica(1, ending(time.Second)))), runs, ""},
		{"destroys", deployment(asks(destroy), destroying, deleting, has(replica(1, ending(time.Second)))), runs, ""},
		{"destroyed", deployment(asks(destroy), destroying, deleting), fleet.OperationSucceeded, "destroyed"},
		{"was destroyed", deployment(asks(destroy), terminated, deleting), fleet.OperationSucceeded, "destroyed"},
		{"not in time", deployment(with(converge, late), target(2, 2), has(running, starting)), fleet.OperationFailed, "deadline"},
		{"in time after all", deployment(with(converge, late), has(running)), fleet.OperationSucceeded, "converged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			if c.state == runs {
				require.Empty(t, p.Finish)
				require.False(t, p.Done)
				return
			}
			require.Len(t, p.Finish, 1)
			require.Equal(t, c.state, p.Finish[0].State)
			require.Equal(t, c.reason, p.Finish[0].Reason)
			if c.reason == "deadline" { // X8
				require.Contains(t, p.Finish[0].Message, "waiting for: 1 starting replicas")
			}
		})
	}
}

// X4: stop, destroy and restart succeed only when the nodes said that what is to end has; a release does so
// whatever nodes that are not heard do.
func TestDeploymentConfirms(t *testing.T) {
	t.Parallel()
	stop := fleet.DeploymentOperation{Kind: fleet.OperationConverge, ProcessVersion: 1}
	restart := fleet.DeploymentOperation{Kind: fleet.OperationRestart, ProcessVersion: 2}
	release := fleet.DeploymentOperation{Kind: fleet.OperationConverge, ProcessVersion: 2}
	destroy := fleet.DeploymentOperation{Kind: fleet.OperationDestroy}
	destroying, pending := at(fleet.DeploymentDestroying), at(fleet.DeploymentPending)
	newer := func(change ...changed) changed {
		return func(s *fleet.DeploymentSeen) {
			released(1, 2)(s)
			began(1, 2)(s)
			for _, f := range change {
				f(s)
			}
		}
	}
	fine := replica(2, version(2))
	late := func(change ...change) fleet.ReplicaSeen { return replica(1, append(change, ending(-time.Second))...) }
	open := unconfirmed(fleet.UnconfirmedNode{Node: "n7", ProcessVersion: 1})
	gone7 := unconfirmed(fleet.UnconfirmedNode{Node: "n7", ProcessVersion: 1, Gone: noon.Add(-time.Hour)})
	opened := func(o fleet.DeploymentOperation, ago time.Duration) changed {
		o.Opened = noon.Add(-ago)
		return asks(o)
	}
	const runs fleet.OperationState = ""
	const succeeded, unknown = fleet.OperationSucceeded, fleet.OperationUnknown
	for _, c := range []struct {
		name  string
		seen  fleet.DeploymentSeen
		state fleet.OperationState
		nodes string
	}{
		{"a stop waits for its node", deployment(asks(stop), pending, stopped, has(replica(1, ending(time.Second), unheard(time.Hour)))), runs, ""},
		{"a stop whose node is not heard in time", deployment(asks(stop), pending, stopped, has(late(unheard(time.Hour)))), unknown, "n1"},
		{"a stop whose node does not say it", deployment(asks(stop), pending, stopped, has(late())), unknown, "n1"},
		{"a stop whose node said it", deployment(asks(stop), pending, stopped, has(late(exited, ending(-time.Second)))), succeeded, ""},
		{"a stop whose node has it no more", deployment(asks(stop), pending, stopped, has(late(lost))), succeeded, ""},
		{"a stop of what a lost node had before", deployment(asks(stop), pending, stopped, open), unknown, "n7"},
		{"a stop of what a node had that was given up before", deployment(opened(stop, time.Minute), pending, stopped, gone7), succeeded, ""},
		{"a stop during which a node was given up", deployment(opened(stop, 2*time.Hour), pending, stopped, gone7), unknown, "n7"},
		{"a restart of what a node had that was given up before", deployment(opened(restart, time.Minute), newer(target(1, 1), has(fine), gone7)), succeeded, ""},
		{"a destroy of what a node had that was given up before", deployment(opened(destroy, time.Minute), destroying, deleting, gone7), succeeded, ""},
		{"a restart while it is stopped", deployment(asks(fleet.DeploymentOperation{Kind: fleet.OperationRestart, ProcessVersion: 1}), pending, stopped, open), unknown, "n7"},
		{"a destroy whose node was removed", deployment(asks(destroy), destroying, deleting, has(replica(1, ending(time.Hour), gone))), unknown, "n1"},
		{"a destroy whose nodes are not heard", deployment(asks(destroy), destroying, deleting, open, has(late(unheard(time.Hour)), replica(3, ending(-time.Second)))), unknown, "n1, n3, n7"},
		{"a restart waits for the end of the old one", deployment(asks(restart), newer(target(1, 1), has(fine, replica(1, ending(time.Second))))), runs, ""},
		{"a restart waits for a lost node", deployment(asks(restart), newer(target(1, 1), has(fine, replica(1, unheard(time.Hour))))), runs, ""},
		{"a restart waits for a lost node that is told", deployment(asks(restart), newer(target(1, 1), has(fine, replica(1, ending(time.Second), unheard(time.Hour))))), runs, ""},
		{"a restart whose node is lost for too long", deployment(asks(restart), newer(target(1, 1), has(fine, late(unheard(time.Hour))))), unknown, "n1"},
		{"a restart after which a new one was lost", deployment(asks(restart), newer(target(1, 1), has(fine), unconfirmed(fleet.UnconfirmedNode{Node: "n7", ProcessVersion: 2}))), succeeded, ""},
		{"a restart of what a lost node had before", deployment(asks(restart), newer(target(1, 1), has(fine), open)), unknown, "n7"},
		{"a release waits for the end of the old one", deployment(asks(release), newer(target(1, 1), has(fine, replica(1, ending(time.Second))))), runs, ""},
		{"a release waits for no lost node", deployment(asks(release), newer(open, target(1, 1), has(fine, replica(1, ending(time.Second), unheard(time.Hour))))), succeeded, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			if c.state == runs {
				require.Empty(t, p.Finish)
				require.False(t, p.Done)
				return
			}
			require.Len(t, p.Finish, 1)
			require.Equal(t, c.state, p.Finish[0].State, p.Finish[0].Reason)
			if c.state == unknown {
				require.Equal(t, "not_confirmed", p.Finish[0].Reason)
				require.True(t, strings.HasSuffix(p.Finish[0].Message, ": "+c.nodes), p.Finish[0].Message)
			}
			if c.seen.Deleting {
				require.Contains(t, p.Events, fleet.DeploymentGone, "it ends all the same")
			}
		})
	}
	var many []fleet.UnconfirmedNode
	for i := range 12 {
		many = append(many, fleet.UnconfirmedNode{Node: fleet.NodeName(fmt.Sprintf("n%02d", i))})
	}
	p := decide.Deployment(deployment(asks(destroy), destroying, deleting, unconfirmed(many...)))
	require.True(t, strings.HasSuffix(p.Finish[0].Message, "n09 and 2 more"), p.Finish[0].Message)
	p = decide.Deployment(deployment(asks(destroy), destroying, deleting, unconfirmed(many[:10]...)))
	require.True(t, strings.HasSuffix(p.Finish[0].Message, "n08, n09"), p.Finish[0].Message)
}

// S112, S130, X8, X18: the three conditions, each with a reason.
func TestDeploymentConditions(t *testing.T) {
	t.Parallel()
	const yes, no, unknown = fleet.ConditionTrue, fleet.ConditionFalse, fleet.ConditionUnknown
	bad := state(fleet.ReplicaUnhealthy)
	type condition struct {
		status fleet.ConditionStatus
		reason string
	}
	for _, c := range []struct {
		name                   string
		seen                   fleet.DeploymentSeen
		available, moves, worn condition
	}{
		{"all is well", deployment(has(replica(1))), condition{yes, "enough_healthy"}, condition{no, "converged"}, condition{no, "all_healthy"}},
		{"all are unhealthy", deployment(has(replica(1, bad), replica(2, bad))), condition{no, "too_few_healthy"}, condition{no, "unhealthy"}, condition{yes, "unhealthy"}},
		{"one is unhealthy", deployment(has(replica(1), replica(2, bad))), condition{yes, "enough_healthy"}, condition{no, "unhealthy"}, condition{yes, "unhealthy"}},
		{"enough, with those on lost nodes", deployment(target(3, 3), has(replica(1), replica(2, unheard(time.Minute)), replica(3, unheard(time.Minute)))), condition{unknown, "nodes_not_heard"}, condition{yes, "too_few"}, condition{yes, "nodes_not_heard"}},
		{"it is scaled to none", deployment(), condition{yes, "scaled_to_zero"}, condition{no, "converged"}, condition{no, "nothing_to_run"}},
		{"it begins", deployment(fresh, target(1, 1)), condition{no, "too_few_healthy"}, condition{yes, "begin"}, condition{yes, "too_few"}},
		{"it is stopped", deployment(stopped, at(fleet.DeploymentPending)), condition{no, "stopped"}, condition{no, "stopped"}, condition{no, "nothing_to_run"}},
		{"it is destroyed", deployment(deleting, at(fleet.DeploymentDestroying), has(replica(1, ending(time.Second)))), condition{no, "deleted"}, condition{yes, "deleting"}, condition{no, "nothing_to_run"}},
		{"its node is not heard", deployment(has(replica(1, unheard(time.Second)))), condition{unknown, "nodes_not_heard"}, condition{no, "nodes_not_heard"}, condition{yes, "nodes_not_heard"}},
		{"one node is not heard", deployment(has(replica(1, unheard(time.Second)), replica(2))), condition{yes, "enough_healthy"}, condition{no, "nodes_not_heard"}, condition{yes, "nodes_not_heard"}},
		{"it was given up", deployment(at(fleet.DeploymentError), target(2, 1), has(replica(1))), condition{yes, "enough_healthy"}, condition{no, "given_up"}, condition{yes, "given_up"}},
		{"it backs off", deployment(target(2, 1), crashes(4, time.Second), owes(1), has(replica(1))), condition{yes, "enough_healthy"}, condition{yes, "crash_backoff"}, condition{yes, "too_few"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []condition
			for _, x := range decide.Deployment(c.seen).Conditions {
				got = append(got, condition{x.Status, x.Reason})
			}
			require.Equal(t, []condition{c.available, c.moves, c.worn}, got)
		})
	}
	one := decide.Deployment(deployment(has(replica(1), replica(2, bad), replica(3, state(fleet.ReplicaStarting)))))
	require.Equal(t, "1 replica is unhealthy", one.Conditions[2].Message)
}

// X8, S107: what is waited for, until when; and pages of large steps.
func TestDeploymentWaits(t *testing.T) {
	t.Parallel()
	backOff := decide.Deployment(deployment(target(1, 1), crashes(5, -time.Hour), has(replica(1, exited, justNow))))
	require.Equal(t, 6, backOff.Crashes)
	require.Equal(t, noon.Add(2*time.Minute), backOff.NextAttempt, "30 s, 60 s, 120 s")
	require.Contains(t, backOff.Awaited, "the next attempt at 2026-01-01T12:02:00Z")
	most := decide.Deployment(deployment(target(1, 1), crashes(50, -time.Hour), has(replica(1, exited, justNow))))
	require.Equal(t, noon.Add(16*time.Minute), most.NextAttempt)

	settled := decide.Deployment(deployment(crashes(2, -time.Hour), has(replica(1))))
	require.Zero(t, settled.Crashes, "it has been healthy for long enough")
	unsettled := decide.Deployment(deployment(crashes(2, -time.Minute), has(replica(1, func(r *fleet.ReplicaSeen) { r.Since = noon.Add(-time.Minute) }))))
	require.Equal(t, 2, unsettled.Crashes)
	require.True(t, unsettled.Done, "the sweep looks again")
	require.Equal(t, noon.Add(9*time.Minute), unsettled.Next)

	away := decide.Deployment(deployment(has(replica(1, unheard(10*time.Second)))))
	require.Equal(t, noon.Add(20*time.Second), away.Next, "30 s without a word")
	require.Equal(t, "the nodes of 1 replicas to reconnect", away.Awaited)

	paused := decide.Deployment(rolling(run(4, 1), run(1, 2, routableFor(time.Second)), inState(fleet.RolloutPaused)))
	require.Equal(t, "the rollout to be resumed, 1 replicas to be proven", paused.Awaited)

	many := decide.Deployment(deployment(fresh, target(1000, 1)))
	require.Equal(t, decide.MaxPerVisit, many.Create)
	require.True(t, many.More)
	var all []fleet.ReplicaSeen
	for i := range 300 {
		all = append(all, replica(i))
	}
	page := decide.Deployment(deployment(deleting, has(all...)))
	require.Len(t, page.Terminate, decide.MaxPerVisit)
	require.True(t, page.More)
	require.NotContains(t, page.Events, fleet.DeploymentGone)
}
