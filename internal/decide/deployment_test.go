package decide_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// replica is one of process version 1 on a node of its own, healthy for an hour.
func replica(n int, change ...func(*fleet.ReplicaSeen)) fleet.ReplicaSeen {
	r := fleet.ReplicaSeen{
		ID: fleet.ReplicaID(fmt.Sprintf("%012x", n)), Node: fleet.NodeName(fmt.Sprint("n", n)), Site: "plant-1",
		State: fleet.ReplicaHealthy, Health: fleet.HealthHealthy, Phase: fleet.PhaseRunning, Revision: 1, ProcessVersion: 1,
		CreatedAt: noon.Add(-2*time.Hour + time.Duration(n)*time.Minute), Since: noon.Add(-time.Hour), Stop: 10 * time.Second,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

type change = func(*fleet.ReplicaSeen)

func state(s fleet.ReplicaState) change {
	return func(r *fleet.ReplicaSeen) { r.State, r.Since = s, noon.Add(-time.Minute) }
}

func version(n int64) change { return func(r *fleet.ReplicaSeen) { r.ProcessVersion = n } }

func justNow(r *fleet.ReplicaSeen) {
	r.CreatedAt, r.Since = noon.Add(-time.Second), noon.Add(-time.Second)
}

func exited(r *fleet.ReplicaSeen) {
	r.State, r.Phase, r.Reason, r.Message = fleet.ReplicaUnhealthy, fleet.PhaseExited, fleet.ReasonExited, "exit status 1"
}

func nodeStopped(r *fleet.ReplicaSeen) {
	r.State, r.Phase, r.Reason = fleet.ReplicaUnhealthy, fleet.PhaseStopped, fleet.ReasonNodeStopped
}
func leave(r *fleet.ReplicaSeen) { r.Leave = true }

// unready is one whose readiness check fails.
func unready(r *fleet.ReplicaSeen) { r.Unready = true }
func gone(r *fleet.ReplicaSeen)    { r.Gone, r.Leave = true, true }
func lost(r *fleet.ReplicaSeen)    { r.Lost = true }

func unheard(since time.Duration) change {
	return func(r *fleet.ReplicaSeen) { r.Unheard = noon.Add(-since) }
}

func heardSince(ago time.Duration) change {
	return func(r *fleet.ReplicaSeen) { r.HeardSince = noon.Add(-ago) }
}

// back is one that was given up with its node, which is heard again for so long.
func back(ago time.Duration) change {
	return func(r *fleet.ReplicaSeen) {
		r.State, r.Since, r.Reason, r.HeardSince = fleet.ReplicaUnhealthy, noon.Add(-time.Hour), decide.ReasonNodeLost, noon.Add(-ago)
	}
}

func ending(stopBy time.Duration) change {
	return func(r *fleet.ReplicaSeen) { r.State, r.StopBy = fleet.ReplicaTerminating, noon.Add(stopBy) }
}

// deployment is RUNNING at revision 1, process version 1; its target is as many as it has.
func deployment(change ...func(*fleet.DeploymentSeen)) fleet.DeploymentSeen {
	s := fleet.DeploymentSeen{
		At: noon, Name: "web", State: fleet.DeploymentRunning, Revision: 1, ProcessVersion: 1, Began: 1, BeganVersion: 1,
		Startup: time.Minute, Stop: 10 * time.Second,
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

type changed = func(*fleet.DeploymentSeen)

func has(all ...fleet.ReplicaSeen) changed {
	return func(s *fleet.DeploymentSeen) {
		s.Replicas = all
		if s.Target == 0 {
			s.Target, s.Min = len(all), 1
		}
	}
}

func target(n, least int) changed {
	return func(s *fleet.DeploymentSeen) { s.Target, s.Min = n, least }
}
func at(s fleet.DeploymentState) changed { return func(d *fleet.DeploymentSeen) { d.State = s } }
func released(revision, process int64) changed {
	return func(s *fleet.DeploymentSeen) { s.Revision, s.ProcessVersion = revision, process }
}

func fresh(s *fleet.DeploymentSeen)    { s.State, s.Began, s.BeganVersion = fleet.DeploymentPending, 0, 0 }
func stopped(s *fleet.DeploymentSeen)  { s.Stopped = true }
func deleting(s *fleet.DeploymentSeen) { s.Deleting = true }
func again(s *fleet.DeploymentSeen)    { s.Redeclared = true }
func attempts(n int, next time.Duration) changed {
	return func(s *fleet.DeploymentSeen) { s.Attempts, s.NextAttempt = n, noon.Add(next) }
}

func crashes(n int, next time.Duration) changed {
	return func(s *fleet.DeploymentSeen) { s.Crashes, s.NextAttempt = n, noon.Add(next) }
}

func owes(n int) changed { return func(s *fleet.DeploymentSeen) { s.Owed = n } }

// ids are the last digits of the replicas.
func ids(steps []fleet.ReplicaStep) string {
	s := ""
	for _, x := range steps {
		s += string(x.ID[11:])
	}
	return s
}

// S13, S14, S15, S16, S17, S18, S19, S31 to S45, S53, S56, S105 to S107, S114, S115
func TestDeployment(t *testing.T) {
	t.Parallel()
	starting, unhealthy := state(fleet.ReplicaStarting), state(fleet.ReplicaUnhealthy)
	begun, available, updated := fleet.DeploymentBegun, fleet.DeploymentAvailable, fleet.DeploymentUpdated
	failed, givenUp, stop := fleet.DeploymentAttemptFailed, fleet.DeploymentGivenUp, fleet.DeploymentStopped
	deleted, over, redeclare := fleet.DeploymentDeleted, fleet.DeploymentGone, fleet.DeploymentRedeclared
	for _, c := range []struct {
		name      string
		seen      fleet.DeploymentSeen
		rule      string
		events    []fleet.DeploymentEvent
		create    int
		terminate string
		end       string
		done      bool
	}{
		{"rests when all is as it is to be", deployment(has(replica(1), replica(2))), "converged", nil, 0, "", "", true},
		{"rests with nothing to run", deployment(), "converged", nil, 0, "", "", true},
		{"rests when nothing was released", deployment(at(fleet.DeploymentPending), released(0, 0)), "not_released", nil, 0, "", "", true},

		{"begins", deployment(fresh, target(3, 1)), "begin", []fleet.DeploymentEvent{begun}, 3, "", "", false},
		{"begins with nothing", deployment(fresh), "begin", []fleet.DeploymentEvent{begun}, 0, "", "", false},
		{"is available with as many as it needs", deployment(at(fleet.DeploymentProvisioning), target(3, 1), has(replica(1), replica(2, starting), replica(3, starting))), "available", []fleet.DeploymentEvent{available}, 0, "", "", false},
		{"is not available with fewer", deployment(at(fleet.DeploymentProvisioning), target(2, 2), has(replica(1), replica(2, starting))), "provisioning", nil, 0, "", "", false},
		{"needs one even with a minimum of none", deployment(at(fleet.DeploymentProvisioning), target(1, 0), has(replica(1, starting))), "provisioning", nil, 0, "", "", false},
		{"is running with a target of none", deployment(at(fleet.DeploymentProvisioning)), "available", []fleet.DeploymentEvent{available}, 0, "", "", true},
		{"tries again after a failure", deployment(at(fleet.DeploymentProvisioning), target(2, 2), has(replica(1), replica(2, exited))), "attempt_failed", []fleet.DeploymentEvent{failed}, 0, "2", "", false},
		{"waits for the next attempt", deployment(at(fleet.DeploymentPending), target(2, 2), has(replica(1)), attempts(1, time.Second)), "attempt_waits", nil, 0, "", "", false},
		{"makes the next attempt", deployment(at(fleet.DeploymentPending), target(2, 2), has(replica(1)), attempts(1, -time.Second)), "begin", []fleet.DeploymentEvent{begun}, 1, "", "", false},
		{"gives up after the last attempt", deployment(at(fleet.DeploymentProvisioning), target(1, 1), attempts(2, -time.Second), has(replica(1, exited, justNow))), "given_up", []fleet.DeploymentEvent{givenUp}, 0, "1", "", false},
		{"a late failure of an earlier attempt is only made anew", deployment(at(fleet.DeploymentProvisioning), target(3, 3), attempts(1, -time.Minute), has(replica(1), replica(2, exited), replica(3, starting, justNow))), "provisioning", nil, 1, "2", "", false},
		{"nor does it use the last one up", deployment(at(fleet.DeploymentProvisioning), target(3, 3), attempts(2, -time.Minute), has(replica(1), replica(2, exited), replica(3, starting, justNow))), "provisioning", nil, 1, "2", "", false},
		{"a failure of the latest attempt is a further one", deployment(at(fleet.DeploymentProvisioning), target(3, 3), attempts(1, -time.Minute), has(replica(1), replica(2, exited), replica(3, exited, justNow))), "attempt_failed", []fleet.DeploymentEvent{failed}, 0, "23", "", false},
		{"creates nothing once given up", deployment(at(fleet.DeploymentError), target(3, 1), has(replica(1))), "given_up", nil, 0, "", "", true},
		{"rests once given up by crashes", deployment(at(fleet.DeploymentError), target(3, 1), crashes(200, 0), has(replica(1))), "given_up", nil, 0, "", "", true},
		{"an update ends ERROR", deployment(at(fleet.DeploymentError), target(1, 1), released(2, 2), attempts(3, 0)), "begin", []fleet.DeploymentEvent{updated, begun}, 1, "", "", false},
		{"a restart ends ERROR", deployment(at(fleet.DeploymentError), target(1, 1), released(1, 2)), "begin", []fleet.DeploymentEvent{updated, begun}, 1, "", "", false},
		{"a stop ends ERROR", deployment(at(fleet.DeploymentError), target(1, 1), stopped), "stopped", []fleet.DeploymentEvent{stop}, 0, "", "", true},
		{"an update ends an attempt", deployment(at(fleet.DeploymentProvisioning), target(1, 1), released(2, 2), has(replica(1, starting))), "begin", []fleet.DeploymentEvent{updated, begun}, 1, "1", "", false},

		{"creates what is too few", deployment(target(4, 1), has(replica(1), replica(2))), "too_few", nil, 2, "", "", false},
		{"counts those that start", deployment(target(2, 1), has(replica(1), replica(2, starting))), "starting", nil, 0, "", "", false},
		{"ends unhealthy ones first", deployment(target(2, 1), has(replica(1), replica(2, starting), replica(3, unhealthy), replica(4))), "too_many", nil, 0, "32", "", false},
		{"ends the oldest last", deployment(target(2, 1), has(replica(3), replica(2), replica(1), replica(4))), "too_many", nil, 0, "12", "", false},
		{"ends all for a target of none", deployment(has(), func(s *fleet.DeploymentSeen) { s.Replicas = []fleet.ReplicaSeen{replica(1), replica(2)} }), "too_many", nil, 0, "12", "", false},
		{"regenerates what failed", deployment(target(2, 1), has(replica(1), replica(2, exited))), "replicas_failed", nil, 1, "2", "", false},
		{"leaves what its node restarts", deployment(has(replica(1), replica(2, unhealthy))), "unhealthy", nil, 0, "", "", false},
		{"regenerates what its node has no more", deployment(target(1, 1), has(replica(1, lost))), "replicas_failed", nil, 1, "1", "", false},
		{"regenerates what ended with its node, and counts no crash", deployment(target(2, 1), has(replica(1), replica(2, nodeStopped, unheard(time.Second)))), "too_few", nil, 1, "2", "", false},
		{"an attempt does not fail with a node", deployment(at(fleet.DeploymentProvisioning), target(2, 2), has(replica(1), replica(2, nodeStopped))), "provisioning", nil, 1, "2", "", false},
		{"regenerates what was removed by hand", deployment(target(2, 1), has(replica(1), replica(2, ending(time.Second)))), "too_few", nil, 1, "", "", false},
		{"backs off after three crashes", deployment(target(1, 1), crashes(3, -time.Minute), has(replica(1, exited, justNow))), "replicas_failed", nil, 0, "1", "", false},
		{"creates nothing before the next attempt", deployment(target(1, 1), crashes(4, time.Second), owes(1), has()), "crash_backoff", nil, 0, "", "", false},
		{"creates after the pause", deployment(target(1, 1), crashes(4, -time.Second), owes(1), has()), "too_few", nil, 1, "", "", false},
		{"a wave of failures is one crash", deployment(target(2, 1), crashes(3, -time.Second), has(replica(1, exited), replica(2))), "too_few", nil, 1, "1", "", false},
		{"waits for the next attempt to replace what runs on", deployment(crashes(4, time.Second), owes(1), has(replica(1, leave), replica(2, leave))), "crash_backoff", nil, 0, "", "", false},
		{"goes on to replace after the pause", deployment(crashes(4, -time.Second), owes(1), has(replica(1, leave), replica(2, leave))), "replacing", nil, 1, "", "", false},
		{"a pause holds back no more than failed: a node is lost", deployment(target(4, 1), crashes(4, time.Second), owes(1), has(replica(1), replica(2), replica(3, unheard(time.Hour)))), "too_few", nil, 1, "", "", false},
		{"a pause holds back no more than failed: it is scaled", deployment(target(5, 1), crashes(4, time.Second), owes(1), has(replica(1), replica(2))), "too_few", nil, 2, "", "", false},
		{"a pause holds back no more than failed: one was removed by hand", deployment(target(3, 1), crashes(4, time.Second), owes(1), has(replica(1), replica(2, ending(time.Second)))), "too_few", nil, 1, "", "", false},
		{"a pause holds back no more than failed: a node is left", deployment(target(3, 1), crashes(4, time.Second), owes(1), has(replica(1), replica(2, leave))), "too_few", nil, 1, "", "", false},
		{"a replacement that failed in a pause stops further ones", deployment(target(3, 1), crashes(4, time.Second), owes(2), has(replica(1), replica(2, leave))), "crash_backoff", nil, 0, "", "", false},
		{"a release that crashes does not go on in a pause", deployment(target(3, 1), released(2, 2), began(2, 2), crashes(4, time.Second), owes(1), has(replica(1), replica(2))), "crash_backoff", nil, 0, "", "", false},
		{"what fails in a pause waits for its end, too", deployment(target(3, 1), crashes(4, time.Second), owes(1), has(replica(1), replica(2, exited))), "crash_backoff", nil, 0, "2", "", false},
		{"a crash that begins a pause holds back no more than failed", deployment(target(3, 1), crashes(3, -time.Minute), has(replica(1), replica(2, exited, justNow), replica(3, unheard(time.Hour)))), "replicas_failed", nil, 1, "2", "", false},
		{"gives up in a row of crashes", deployment(target(2, 1), crashes(199, -time.Minute), has(replica(1, exited, justNow), replica(2))), "given_up", []fleet.DeploymentEvent{givenUp}, 0, "1", "", false},

		{"replaces new before old", deployment(released(2, 2), has(replica(1), replica(2))), "updated", []fleet.DeploymentEvent{updated}, 1, "", "", false},
		{"replaces one at a time", deployment(released(2, 2), began(2, 2), target(2, 1), has(replica(1), replica(2), replica(3, version(2), starting))), "replacing", nil, 0, "", "", false},
		{"ends the old one once the new one is healthy", deployment(released(2, 2), began(2, 2), target(2, 1), has(replica(1), replica(2), replica(3, version(2)))), "replacing", nil, 1, "1", "", false},
		{"ends the last old one", deployment(released(2, 2), began(2, 2), target(2, 1), has(replica(2), replica(3, version(2)), replica(4, version(2)))), "replacing", nil, 0, "2", "", false},
		{"a bad release does not go on", deployment(released(2, 2), began(2, 2), target(2, 1), has(replica(1), replica(2, version(2), unhealthy))), "replacing", nil, 0, "", "", false},
		{"what does no work is replaced at once", deployment(released(2, 2), began(2, 2), target(2, 1), has(replica(1, unhealthy), replica(2, starting))), "too_few", nil, 2, "12", "", false},
		{"a release of the same content replaces nothing", deployment(released(2, 1), has(replica(1))), "updated", []fleet.DeploymentEvent{updated}, 0, "", "", true},

		{"leaves a node new before old", deployment(has(replica(1, leave), replica(2))), "replacing", nil, 1, "", "", false},
		{"waits for a node that is away for a while", deployment(has(replica(1, unheard(time.Second)))), "nodes_not_heard", nil, 0, "", "", false},
		{"replaces what is on a lost node", deployment(target(2, 1), has(replica(1, unheard(time.Minute)), replica(2))), "too_few", nil, 1, "", "", false},
		{"ends what is on a lost node once it is replaced", deployment(target(2, 1), has(replica(1, unheard(time.Minute)), replica(2), replica(3))), "replacing", nil, 0, "1", "", false},
		{"does not weigh what its node has still to speak of", deployment(target(1, 1), has(replica(1, back(time.Second)), replica(2, starting))), "starting", nil, 0, "", "", false},
		{"ends others that are too many meanwhile", deployment(target(1, 1), has(replica(1, back(time.Second)), replica(2, starting), replica(3, unhealthy))), "too_many", nil, 0, "3", "", false},
		{"ends it once enough are healthy without it", deployment(target(1, 1), has(replica(1, back(time.Second)), replica(2))), "too_many", nil, 0, "1", "", false},
		{"ends it when its node says nothing in time", deployment(target(1, 1), has(replica(1, back(2*time.Minute)), replica(2, starting))), "too_many", nil, 0, "1", "", false},
		{"keeps what may be healthy of an earlier version", deployment(released(2, 2), began(2, 2), target(1, 1), has(replica(1, back(time.Second)), replica(2, version(2), starting))), "starting", nil, 0, "", "", false},
		{"makes nothing in the place of what may be healthy", deployment(released(2, 2), began(2, 2), target(1, 1), has(replica(1, back(time.Second)))), "unhealthy", nil, 0, "", "", false},
		{"replaces it once the new one is healthy", deployment(released(2, 2), began(2, 2), target(1, 1), has(replica(1, back(time.Second)), replica(2, version(2)))), "unhealthy", nil, 0, "1", "", false},
		{"replaces it when its node says nothing in time", deployment(released(2, 2), began(2, 2), target(1, 1), has(replica(1, back(2*time.Minute)), replica(2, version(2), starting))), "starting", nil, 0, "1", "", false},
		{"ends it with all others", deployment(target(0, 0), func(s *fleet.DeploymentSeen) { s.Replicas = []fleet.ReplicaSeen{replica(1, back(time.Second))} }), "too_many", nil, 0, "1", "", false},
		{"replaces what is on a node that is gone", deployment(target(1, 1), has(replica(1, gone))), "too_few", nil, 1, "1", "", false},
		{"ends what is on a node that is gone, given up too", deployment(at(fleet.DeploymentError), target(1, 1), has(replica(1, gone))), "given_up", nil, 0, "1", "", false},
		{"looks once more at what is on a lost node, given up", deployment(at(fleet.DeploymentError), target(1, 1), has(replica(1, unheard(time.Minute)))), "given_up", nil, 0, "", "", false},

		{"stops", deployment(stopped, has(replica(1), replica(2, starting))), "stopped", []fleet.DeploymentEvent{stop}, 0, "12", "", false},
		{"waits for what stops", deployment(at(fleet.DeploymentPending), stopped, has(replica(1, ending(time.Second)))), "stopped", nil, 0, "", "", false},
		{"rests when it is stopped", deployment(at(fleet.DeploymentPending), stopped, target(2, 1)), "stopped", nil, 0, "", "", true},
		{"starts again", deployment(at(fleet.DeploymentPending), target(2, 1)), "begin", []fleet.DeploymentEvent{begun}, 2, "", "", false},

		{"deletes in RUNNING", deployment(deleting, has(replica(1))), "deleted", []fleet.DeploymentEvent{deleted}, 0, "1", "", false},
		{"deletes in PROVISIONING", deployment(at(fleet.DeploymentProvisioning), deleting, has(replica(1, starting))), "deleted", []fleet.DeploymentEvent{deleted}, 0, "1", "", false},
		{"deletes in ERROR", deployment(at(fleet.DeploymentError), deleting, has(replica(1))), "deleted", []fleet.DeploymentEvent{deleted}, 0, "1", "", false},
		{"deletes at once what never ran", deployment(at(fleet.DeploymentPending), released(0, 0), deleting), "deleted", []fleet.DeploymentEvent{deleted, over}, 0, "", "", true},
		{"creates nothing while it is destroyed", deployment(at(fleet.DeploymentDestroying), target(5, 5), has(replica(1, ending(time.Second)))), "deleting", nil, 0, "", "", false},
		{"takes for gone what nobody will speak of", deployment(at(fleet.DeploymentDestroying), deleting, has(replica(1, ending(time.Second), gone))), "deleting", []fleet.DeploymentEvent{over}, 0, "", "1", true},
		{"takes for gone what was not heard in time", deployment(at(fleet.DeploymentDestroying), deleting, has(replica(1, ending(-time.Second), unheard(time.Minute)))), "deleting", []fleet.DeploymentEvent{over}, 0, "", "1", true},
		{"is gone with its last replica", deployment(at(fleet.DeploymentDestroying), deleting), "deleting", []fleet.DeploymentEvent{over}, 0, "", "", true},
		{"is declared again", deployment(at(fleet.DeploymentTerminated), again), "redeclared", []fleet.DeploymentEvent{redeclare}, 0, "", "", false},
		{"rests when it is terminated", deployment(at(fleet.DeploymentTerminated), target(1, 1)), "terminated", nil, 0, "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.rule, p.Rule, p.Message)
			require.Equal(t, c.events, p.Events)
			require.Equal(t, c.create, p.Create)
			require.Equal(t, c.terminate, ids(p.Terminate))
			require.Equal(t, c.end, ids(p.End))
			require.Equal(t, c.done, p.Done, "next %s, awaited %s", p.Next, p.Awaited)
			require.Len(t, p.Conditions, 3)
			require.True(t, p.Done || p.More || !p.Next.IsZero(), "something has to wake it")
		})
	}
}

// S37, S45: three of the first wave fail one after another; that is one attempt. The next one fails with
// what it made itself.
func TestDeploymentFirstWave(t *testing.T) {
	t.Parallel()
	wave := make([]fleet.ReplicaSeen, 20)
	for i := range wave {
		wave[i] = replica(i, state(fleet.ReplicaStarting), func(r *fleet.ReplicaSeen) { r.CreatedAt, r.Since = noon, noon })
	}
	seen := deployment(at(fleet.DeploymentProvisioning), target(20, 20), has(wave...))
	for _, c := range []struct {
		name     string
		after    time.Duration
		fails    int
		rule     string
		create   int
		attempts int
	}{
		{"one fails", 5 * time.Second, 0, "attempt_failed", 0, 1},
		{"it is made anew", 15 * time.Second, -1, "begin", 1, 1},
		{"another fails", 20 * time.Second, 1, "provisioning", 1, 1},
		{"a third fails", 50 * time.Second, 2, "provisioning", 1, 1},
		{"what was made anew fails", 51 * time.Second, 20, "attempt_failed", 0, 2},
		{"the last attempt", 71 * time.Second, -1, "begin", 1, 2},
		{"what the second attempt made fails", 80 * time.Second, 21, "provisioning", 1, 2},
		{"what the last one made fails", 90 * time.Second, 23, "given_up", 0, 3},
	} {
		seen.At = noon.Add(c.after)
		if c.fails >= 0 {
			exited(&seen.Replicas[c.fails])
		}
		p := decide.Deployment(seen)
		require.Equal(t, c.rule, p.Rule, c.name)
		require.Equal(t, c.create, p.Create, c.name)
		require.Equal(t, c.attempts, p.Attempts, c.name)
		seen.Attempts, seen.NextAttempt = p.Attempts, p.NextAttempt
		for _, e := range p.Events {
			seen.State, _ = seen.State.Next(e)
		}
		for i, r := range seen.Replicas {
			if r.State == fleet.ReplicaUnhealthy {
				seen.Replicas[i].State = fleet.ReplicaTerminated
			}
		}
		for range p.Create {
			seen.Replicas = append(seen.Replicas, replica(len(seen.Replicas), state(fleet.ReplicaStarting), func(r *fleet.ReplicaSeen) { r.CreatedAt, r.Since = seen.At, seen.At }))
		}
	}
}

// F78, S45, S107, X19: a first pause is as long as it is declared, later ones are no longer than the longest.
func TestDeploymentPauses(t *testing.T) {
	t.Parallel()
	terms := func(r fleet.Recovery) changed { return func(s *fleet.DeploymentSeen) { s.Terms = r } }
	dead := has(replica(1, exited, justNow))
	provisioning := at(fleet.DeploymentProvisioning)
	for _, c := range []struct {
		name  string
		seen  fleet.DeploymentSeen
		pause time.Duration
	}{
		{"10 s after an attempt", deployment(provisioning, dead), 10 * time.Second},
		{"half an hour, if that is declared", deployment(provisioning, dead, terms(fleet.Recovery{AttemptSeconds: 1800})), 30 * time.Minute},
		{"and no more than the first by default", deployment(provisioning, dead, attempts(1, -time.Minute), terms(fleet.Recovery{AttemptSeconds: 1800})), 30 * time.Minute},
		{"doubled where there is room", deployment(provisioning, dead, attempts(1, -time.Minute), terms(fleet.Recovery{AttemptSeconds: 1800, CrashMaxSeconds: 7200})), time.Hour},
		{"half a minute after three crashes", deployment(dead, crashes(3, -time.Minute)), 30 * time.Second},
		{"doubled after the next", deployment(dead, crashes(4, -time.Minute)), time.Minute},
		{"half an hour after crashes", deployment(dead, crashes(3, -time.Minute), terms(fleet.Recovery{CrashSeconds: 1800})), 30 * time.Minute},
		{"no longer than the longest", deployment(dead, crashes(20, -time.Minute)), 16 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, noon.Add(c.pause), decide.Deployment(c.seen).NextAttempt)
		})
	}
}

// S107, S115: how many a pause holds back.
func TestDeploymentOwes(t *testing.T) {
	t.Parallel()
	many := make([]fleet.ReplicaSeen, 300)
	for i := range many {
		many[i] = replica(i, exited, justNow)
	}
	for _, c := range []struct {
		name   string
		seen   fleet.DeploymentSeen
		owed   int
		create int
	}{
		{"nothing without a pause", deployment(crashes(1, -time.Minute), owes(3), has(replica(1), replica(2, exited, justNow))), 0, 1},
		{"what the crash took that begins it", deployment(crashes(3, -time.Minute), owes(3), has(replica(1), replica(2, exited, justNow), replica(3, exited))), 2, 0},
		{"what fails while it lasts", deployment(crashes(4, time.Minute), target(3, 1), owes(1), has(replica(1), replica(2, exited))), 2, 0},
		{"not what a node took that was stopped", deployment(crashes(4, time.Minute), target(3, 1), owes(1), has(replica(1), replica(2, nodeStopped))), 1, 1},
		{"not what failed of an earlier version", deployment(crashes(4, time.Minute), released(2, 2), began(2, 2), target(2, 1), has(replica(1, version(2)), replica(2, exited))), 0, 1},
		{"nothing once it is over", deployment(crashes(4, -time.Second), target(3, 1), owes(1), has(replica(1), replica(2))), 0, 1},
		{"nothing once something else is released", deployment(crashes(4, time.Minute), released(2, 2), target(3, 1), owes(1), has(replica(1), replica(2))), 0, 1},
		{"only those whose end is a step of this visit", deployment(crashes(3, -time.Minute), has(many...)), decide.MaxPerVisit, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.owed, p.Owed)
			require.Equal(t, c.create, p.Create)
		})
	}
}

func began(revision, process int64) changed {
	return func(s *fleet.DeploymentSeen) { s.Began, s.BeganVersion = revision, process }
}

// X11: what was given up by crashes is not looked at by the clock, what still counts them is.
func TestDeploymentSettles(t *testing.T) {
	t.Parallel()
	healthy := replica(1, justNow)
	p := decide.Deployment(deployment(crashes(2, -time.Minute), has(healthy)))
	require.True(t, p.Done)
	require.Equal(t, healthy.Since.Add(600*time.Second), p.Next)
	p = decide.Deployment(deployment(at(fleet.DeploymentError), crashes(200, 0), target(2, 1), has(replica(1))))
	require.True(t, p.Done)
	require.Zero(t, p.Next)
}

// S48, S84: the region takes a slow starter for dead only after its node had every chance, and says
// why.
func TestDeploymentBackstop(t *testing.T) {
	t.Parallel()
	slow := func(s *fleet.DeploymentSeen) { s.Startup, s.Settle = 30*time.Minute, 10*time.Hour }
	started := func(ago time.Duration) change {
		return func(r *fleet.ReplicaSeen) {
			r.State, r.Health, r.Since = fleet.ReplicaStarting, fleet.HealthNotChecked, noon.Add(-ago)
		}
	}
	preparing := func(r *fleet.ReplicaSeen) { r.Phase = fleet.PhasePreparing }
	untold := func(r *fleet.ReplicaSeen) { r.Phase = "" }
	const whole = 30*time.Minute + 30*time.Minute + 10*time.Hour + 10*time.Second + 5*time.Minute
	for _, c := range []struct {
		name   string
		seen   fleet.ReplicaSeen
		reason string
	}{
		{"in its start-up deadline, after others", replica(1, started(whole-time.Second), func(r *fleet.ReplicaSeen) { r.Restarts = 3 }), ""},
		{"beyond it", replica(1, started(whole)), fleet.ReasonStartupDeadline},
		{"never prepared", replica(1, started(whole), preparing), decide.ReasonStuck},
		{"never taken up", replica(1, started(2*time.Minute), untold), decide.ReasonNotTakenUp},
		{"its node is not there", replica(1, started(whole), unheard(time.Second)), ""},
		{"unhealthy for too long", replica(1, state(fleet.ReplicaUnhealthy), func(r *fleet.ReplicaSeen) { r.Since = noon.Add(-6 * time.Minute) }), decide.ReasonStuck},
		{"unhealthy while its node was away", replica(1, state(fleet.ReplicaUnhealthy), heardSince(time.Second), func(r *fleet.ReplicaSeen) { r.Since = noon.Add(-time.Hour) }), ""},
		{"unhealthy for long since its node is back", replica(1, state(fleet.ReplicaUnhealthy), heardSince(6*time.Minute), func(r *fleet.ReplicaSeen) { r.Since = noon.Add(-time.Hour) }), decide.ReasonStuck},
		{"not taken up while its node was away", replica(1, started(time.Hour), untold, heardSince(time.Second)), ""},
		{"starting while its node was away", replica(1, started(2*whole), heardSince(time.Second)), ""},
	} {
		p := decide.Deployment(deployment(slow, has(c.seen)))
		if c.reason == "" {
			require.Empty(t, p.Terminate, c.name)
			continue
		}
		require.Len(t, p.Terminate, 1, c.name)
		require.Equal(t, c.reason, p.Terminate[0].Reason, c.name)
	}
}

// S30, S105: whatever becomes of a replica, what takes its place goes where the others are not.
func TestDeploymentStaysSpread(t *testing.T) {
	t.Parallel()
	on := func(node string) change { return func(r *fleet.ReplicaSeen) { r.Node = fleet.NodeName(node) } }
	rooms := []fleet.NodeRoom{room("a1", "a", own(1)), room("a2", "a"), room("b1", "b", own(1)), room("b2", "b")}
	for name, seen := range map[string]fleet.DeploymentSeen{
		"exited":           deployment(target(2, 1), has(replica(1, on("a1")), replica(2, on("b1"), exited))),
		"its node has not": deployment(target(2, 1), has(replica(1, on("a1")), replica(2, on("b1"), lost))),
		"drained":          deployment(target(2, 1), has(replica(1, on("a1")), replica(2, on("b1"), leave))),
		"on a lost node":   deployment(target(2, 1), has(replica(1, on("a1")), replica(2, on("b1"), unheard(time.Hour)))),
		"on a gone node":   deployment(target(2, 1), has(replica(1, on("a1")), replica(2, on("b1"), gone))),
	} {
		require.Positive(t, decide.Deployment(seen).Create, name)
		got := decide.Place(want(1), decide.Spread(seen, rooms))
		require.Equal(t, "b", string(got.Nodes[0][:1]), name)
	}
	require.Equal(t, 1, rooms[0].Own, "what was read stays as it was")
}

// S98: what placement does not allow any more is replaced as an earlier version is, and nothing is that
// is only not heard.
func TestDeploymentMoves(t *testing.T) {
	t.Parallel()
	starting := state(fleet.ReplicaStarting)
	in := func(p fleet.PlacementSpec) changed {
		return func(s *fleet.DeploymentSeen) { s.Project, s.Placement = "red", p }
	}
	stands := func(n int, change ...func(*fleet.NodeRoom)) changed {
		return func(s *fleet.DeploymentSeen) {
			s.Nodes = append(s.Nodes, room(fmt.Sprint("n", n), "plant-1", change...))
		}
	}
	offers := func(r *fleet.NodeRoom) { r.Modules = []string{"acme.detect"} }
	sites, module := fleet.PlacementSpec{Sites: []fleet.SiteName{"plant-1"}}, fleet.PlacementSpec{Modules: []string{"acme.detect"}}
	pool, disk := fleet.PlacementSpec{Pools: []fleet.PoolName{"gpu"}}, fleet.PlacementSpec{Labels: map[string]string{"disk": "ssd"}}
	elsewhere := fleet.PlacementSpec{Sites: []fleet.SiteName{"plant-2"}}
	mine := of("red")
	for _, c := range []struct {
		name      string
		seen      fleet.DeploymentSeen
		rule      string
		create    int
		terminate string
	}{
		{"rests where it may be", deployment(in(sites), stands(1, mine), has(replica(1))), "converged", 0, ""},
		{"leaves another site, new before old", deployment(in(elsewhere), stands(1, mine), stands(2, mine), has(replica(1), replica(2))), "replacing", 1, ""},
		{"leaves what does not work at once", deployment(in(elsewhere), target(1, 1), stands(1, mine), has(replica(1, starting))), "too_few", 1, "1"},
		{"leaves another project's node", deployment(in(sites), stands(1, of("blue")), has(replica(1))), "replacing", 1, ""},
		{"leaves a node that is in no pool any more", deployment(in(pool), stands(1, mine), has(replica(1))), "replacing", 1, ""},
		{"stays in its pool, also where that is full", deployment(in(pool), stands(1, mine, inPool("gpu"), full("gpu")), has(replica(1))), "converged", 0, ""},
		{"leaves a node without the labels", deployment(in(disk), stands(1, mine, label("disk", "hdd")), has(replica(1))), "replacing", 1, ""},
		{"stays on a node that is cordoned", deployment(in(disk), stands(1, mine, label("disk", "ssd"), away("cordoned")), has(replica(1))), "converged", 0, ""},
		{"leaves a node without a module that is asked for now", deployment(in(module), released(2, 1), began(2, 1), stands(1, mine), has(replica(1))), "replacing", 1, ""},
		{"stays where the module is", deployment(in(module), released(2, 1), began(2, 1), stands(1, mine, offers), has(replica(1))), "converged", 0, ""},
		{"stays while a provider is away", deployment(in(module), stands(1, mine), has(replica(1))), "converged", 0, ""},
		{"stays while its node is not heard", deployment(in(module), released(2, 1), began(2, 1), stands(1, mine), has(replica(1, unheard(time.Second)))), "nodes_not_heard", 0, ""},
		{"stays where nothing is known of the node", deployment(in(sites), has(replica(1))), "converged", 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.rule, p.Rule, p.Message)
			require.Equal(t, c.create, p.Create)
			require.Equal(t, c.terminate, ids(p.Terminate))
		})
	}

	t.Run("is over when nothing is left where it was", func(t *testing.T) {
		t.Parallel()
		converges := func(s *fleet.DeploymentSeen) {
			s.Operations = []fleet.DeploymentOperation{{ID: "op", Kind: fleet.OperationConverge, ProcessVersion: 1}}
		}
		moved := deployment(in(elsewhere), released(2, 1), began(2, 1), target(1, 1), stands(1, mine), has(replica(1), replica(2)), converges)
		p := decide.Deployment(moved)
		require.Empty(t, p.Finish)
		require.Equal(t, "1", ids(p.Terminate))
		require.Equal(t, decide.ReasonMisplaced, p.Terminate[0].Reason)
		require.Contains(t, p.Terminate[0].Message, "it is at site plant-1")
		require.Len(t, decide.Deployment(deployment(in(elsewhere), released(2, 1), began(2, 1), has(replica(2)), converges)).Finish, 1)
	})
}

// X8, S130: what is not heard is counted on by nobody who reads.
func TestConditionsNow(t *testing.T) {
	t.Parallel()
	p := decide.Deployment(deployment(has(replica(1), replica(2))))
	said := func(now decide.ReplicasNow) (out []string) {
		for _, c := range decide.ConditionsNow(p.Conditions, now) {
			out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
		}
		reason, message := decide.WhyNow(p.Rule, p.Message, now)
		if now.Unheard > 0 {
			require.Contains(t, message, "not connected")
		}
		return append(out, reason)
	}
	require.Equal(t, []string{"available true enough_healthy", "progressing false converged", "degraded false all_healthy", "converged"},
		said(decide.ReplicasNow{Healthy: 2, Need: 1}))
	require.Equal(t, []string{"available true enough_healthy", "progressing false converged", "degraded true nodes_not_heard", "nodes_not_heard"},
		said(decide.ReplicasNow{Healthy: 1, Unheard: 1, Need: 1}))
	require.Equal(t, []string{"available unknown nodes_not_heard", "progressing false converged", "degraded true nodes_not_heard", "nodes_not_heard"},
		said(decide.ReplicasNow{Unheard: 2, Need: 1}))
	require.Len(t, decide.ConditionsNow(nil, decide.ReplicasNow{Unheard: 1}), 1)
	require.Len(t, decide.ConditionsNow(p.Conditions[:1], decide.ReplicasNow{Unheard: 1}), 2)
	require.Len(t, decide.ConditionsNow(p.Conditions[2:], decide.ReplicasNow{Unheard: 1}), 1)
	for n, want := range map[int]string{1: "1 replica is on a node that is not connected", 2: "2 replicas are on nodes that are not connected"} {
		_, message := decide.WhyNow(p.Rule, p.Message, decide.ReplicasNow{Unheard: n})
		require.Equal(t, want, message)
	}
	reason, message := decide.WhyNow(decide.ReasonNotHeard, "2 of 2 replicas are healthy", decide.ReplicasNow{Unheard: 1})
	require.Equal(t, decide.ReasonNotHeard, reason, "the last visit saw it too")
	require.Contains(t, message, "not connected")
	reason, message = decide.WhyNow("too_few", "why", decide.ReplicasNow{Unheard: 1})
	require.Equal(t, []string{"too_few", "why"}, []string{reason, message})
}
