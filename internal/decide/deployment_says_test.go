package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X8, S37, S45, S107: what a deployment says of itself, what it waits for and how it counts, by what it sees.
func TestDeploymentSays(t *testing.T) {
	t.Parallel()
	provisioning, pending, failedOnce := at(fleet.DeploymentProvisioning), at(fleet.DeploymentPending), has(replica(1, exited, justNow))
	starting := state(fleet.ReplicaStarting)
	said := func(m string) changed { return func(s *fleet.DeploymentSeen) { s.Message = m } }
	silent := func(r *fleet.ReplicaSeen) { r.Message = "" }
	in := func(d time.Duration) time.Time { return noon.Add(d) }
	const died = "replica 000000000001 on node n1: exited, exit status 1"
	for _, c := range []struct {
		name     string
		seen     fleet.DeploymentSeen
		message  string
		awaited  string
		attempts int
		crashes  int
		next     time.Time // of the next attempt
		more     bool
	}{
		{"all is well", deployment(has(replica(1), replica(2))), "2 of 2 replicas are healthy", "", 0, 0, time.Time{}, false},
		{"some start", deployment(target(3, 1), has(replica(1), replica(2, starting))), "1 of 3 replicas are healthy", "2 starting replicas", 0, 0, time.Time{}, false},
		{"one is unhealthy", deployment(has(replica(1), replica(2, state(fleet.ReplicaUnhealthy)))), "1 of 2 replicas are healthy", "1 unhealthy replicas", 0, 0, time.Time{}, false},
		{"one ends", deployment(target(1, 1), has(replica(1), replica(2, ending(time.Second)))), "1 of 1 replicas are healthy", "the end of 1 replicas", 0, 0, time.Time{}, false},
		{"one is to end", deployment(target(1, 1), has(replica(1), replica(2))), "2 of 1 replicas are healthy", "the end of 1 replicas", 0, 0, time.Time{}, false},
		{"one is replaced", deployment(has(replica(1, leave), replica(2))), "2 of 2 replicas are healthy, 1 of them to be replaced", "1 starting replicas", 0, 0, time.Time{}, false},
		{"a node is not heard", deployment(has(replica(1), replica(2, unheard(time.Second)))), "2 of 2 replicas are healthy", "the nodes of 1 replicas to reconnect", 0, 0, time.Time{}, false},
		{"a node is lost", deployment(target(2, 1), has(replica(1), replica(2, unheard(time.Minute)))), "1 of 2 replicas are healthy, 1 on nodes that are not connected", "1 starting replicas, the nodes of 1 replicas to reconnect", 0, 0, time.Time{}, false},
		{"one has ended", deployment(target(1, 1), has(replica(1), replica(2, ending(-time.Minute)))), "1 of 1 replicas are healthy", "", 0, 0, time.Time{}, false},
		{"two nodes are back", deployment(target(1, 1), has(replica(1, back(time.Second)), replica(2, version(0), back(time.Second)))), "0 of 1 replicas are healthy", "reconnected nodes to report 2 replicas", 0, 0, time.Time{}, false},
		{"a node is back", deployment(target(1, 1), has(replica(1, back(time.Second)), replica(2, starting))), "0 of 1 replicas are healthy", "1 starting replicas, reconnected nodes to report 1 replicas", 0, 0, time.Time{}, false},

		{"an attempt fails", deployment(provisioning, failedOnce), "attempt 1 of 3 failed: " + died + "; the next is in 10s", "the next attempt at 2026-01-01T12:00:10Z, the end of 1 replicas", 1, 0, in(10 * time.Second), true},
		{"without a message", deployment(provisioning, has(replica(1, exited, justNow, silent))), "attempt 1 of 3 failed: replica 000000000001 on node n1: exited; the next is in 10s", "the next attempt at 2026-01-01T12:00:10Z, the end of 1 replicas", 1, 0, in(10 * time.Second), true},
		{"a second one", deployment(provisioning, attempts(1, -time.Minute), failedOnce), "attempt 2 of 3 failed: " + died + "; the next is in 20s", "the next attempt at 2026-01-01T12:00:20Z, the end of 1 replicas", 2, 0, in(20 * time.Second), true},
		{"the last one", deployment(provisioning, attempts(2, -time.Minute), failedOnce), "attempt 3 of 3 failed: " + died + "; release another revision, or restart the deployment", "the end of 1 replicas", 3, 0, time.Time{}, true},
		{"it waits for the next", deployment(pending, attempts(1, time.Second), said("as before"), target(1, 1)), "as before", "the next attempt at 2026-01-01T12:00:01Z", 1, 0, in(time.Second), false},
		{"the next is now", deployment(pending, attempts(1, 0), target(1, 1)), "0 of 1 replicas are healthy", "1 starting replicas", 1, 0, noon, false},
		{"it is available", deployment(provisioning, attempts(2, -time.Minute), has(replica(1))), "1 of 1 replicas are healthy", "", 0, 0, time.Time{}, false},

		{"a first crash", deployment(failedOnce), died + "; 0 of 1 replicas are healthy", "1 starting replicas, the end of 1 replicas", 0, 1, noon, true},
		{"the last one without a pause", deployment(crashes(2, -time.Minute), failedOnce), died + "; 0 of 1 replicas are healthy", "1 starting replicas, the end of 1 replicas", 0, 3, noon, true},
		{"the first one with a pause", deployment(crashes(3, -time.Minute), failedOnce), died + "; 0 of 1 replicas are healthy", "the next attempt at 2026-01-01T12:00:30Z, the end of 1 replicas", 0, 4, in(30 * time.Second), true},
		{"twice the pause", deployment(crashes(4, -time.Minute), failedOnce), died + "; 0 of 1 replicas are healthy", "the next attempt at 2026-01-01T12:01:00Z, the end of 1 replicas", 0, 5, in(time.Minute), true},
		{"the last one of all", deployment(crashes(199, -time.Minute), failedOnce), "200 failures in a row: " + died + "; healthy replicas keep running; release another revision, or restart the deployment", "the end of 1 replicas", 0, 200, time.Time{}, true},
		{"given up", deployment(at(fleet.DeploymentError), crashes(200, 0), said("as before"), has(replica(1))), "as before", "", 0, 200, noon, false},
		{"healthy for long, it counts anew", deployment(crashes(3, -time.Hour), has(replica(1))), "1 of 1 replicas are healthy", "", 0, 0, time.Time{}, false},
		{"too few to count anew", deployment(crashes(3, -time.Hour), target(2, 1), has(replica(1))), "1 of 2 replicas are healthy", "1 starting replicas", 0, 3, in(-time.Hour), false},
		{"an update counts anew", deployment(crashes(4, time.Minute), released(2, 2), has(replica(1))), "1 of 1 replicas are healthy, 1 of them to be replaced", "1 starting replicas", 0, 0, time.Time{}, false},
		{"also one after giving up", deployment(at(fleet.DeploymentError), attempts(3, 0), crashes(4, time.Minute), released(2, 2), target(1, 1)), "0 of 1 replicas are healthy", "1 starting replicas", 0, 0, time.Time{}, false},

		{"it is stopped", deployment(stopped, attempts(1, time.Minute), crashes(2, time.Minute), has(replica(1))), "it is declared stopped", "the end of 1 replicas", 0, 0, time.Time{}, false},
		{"nothing was released", deployment(pending, released(0, 0)), "no revision was released", "", 0, 0, time.Time{}, false},
		{"it is deleted", deployment(deleting, attempts(1, time.Minute), crashes(2, time.Minute), has(replica(1), replica(2))), "2 replicas are still to end", "the end of 2 replicas", 0, 0, time.Time{}, false},
		{"some of each kind", deployment(deleting, has(replica(1), replica(2, version(0)), replica(3, version(0), starting), replica(4, exited), replica(5, unheard(time.Minute)))), "5 replicas are still to end", "the end of 5 replicas, the nodes of 1 replicas to reconnect", 0, 0, time.Time{}, true},
		{"one is left", deployment(at(fleet.DeploymentDestroying), deleting, has(replica(1, ending(time.Second)))), "1 replica is still to end", "the end of 1 replicas", 0, 0, time.Time{}, false},
		{"nothing is left", deployment(at(fleet.DeploymentDestroying), deleting), "no replica runs", "", 0, 0, time.Time{}, false},
		{"nothing is left of what is declared again", deployment(at(fleet.DeploymentDestroying), deleting, again), "no replica runs", "", 0, 0, time.Time{}, true},
		{"it is declared again", deployment(at(fleet.DeploymentTerminated), again, attempts(1, time.Minute), crashes(2, time.Minute)), "it was declared again, and its predecessor has ended", "", 0, 0, time.Time{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.message, p.Message)
			require.Equal(t, c.awaited, p.Awaited)
			require.Equal(t, c.attempts, p.Attempts)
			require.Equal(t, c.crashes, p.Crashes)
			require.Equal(t, c.next, p.NextAttempt)
			require.Equal(t, c.more, p.More)
		})
	}
}

// S53, S107, X6: when a deployment is looked at again.
func TestDeploymentLooksAgain(t *testing.T) {
	t.Parallel()
	full := target(decide.MaxPerVisit, 1)
	for _, c := range []struct {
		name string
		seen fleet.DeploymentSeen
		next time.Time
		more bool
	}{
		{"all is well", deployment(has(replica(1))), time.Time{}, false},
		{"one is told to end", deployment(target(1, 1), has(replica(1), replica(2))), noon.Add(40 * time.Second), false},
		{"one that ends has the time to say so", deployment(target(1, 1), has(replica(1), replica(2, ending(-time.Second), heardSince(15*time.Second)))), noon.Add(25 * time.Second), false},
		{"all are made in one visit", deployment(full), noon.Add(2 * time.Minute), false},
		{"a pause that holds nothing back", deployment(crashes(4, time.Minute), has(replica(1, justNow))), noon.Add(599 * time.Second), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.next, p.Next)
			require.Equal(t, c.more, p.More)
		})
	}
	t.Run("one on a lost node ends once enough work", func(t *testing.T) {
		t.Parallel()
		p := decide.Deployment(deployment(target(2, 1), has(replica(1), replica(2, version(0)), replica(3, unheard(time.Minute)))))
		require.Equal(t, "3", ids(p.Terminate))
		require.Empty(t, p.Fail)
	})
}
