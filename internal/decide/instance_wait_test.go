package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N48, N67: how often a node is tried is an option.
func TestInstanceTries(t *testing.T) {
	t.Parallel()
	waiting, applied, unknown := is(fleet.TargetWaiting), is(fleet.TargetApplied), is(fleet.TargetUnknown)
	failed := missed(fleet.Communication, 2)
	for _, c := range []struct {
		name   string
		active fleet.TargetSeen
		other  fleet.TargetSeen
		tries  int
		do     decide.InstanceDo
	}{
		{"the active once more", failed, waiting, 0, decide.DoNotify},
		{"the active no more", failed, waiting, 2, decide.DoEnd},
		{"the standby once more", applied, failed, 5, decide.DoNotify},
		{"the standby no more", applied, failed, 1, decide.DoEnd},
		{"a standby whose answer was lost", applied, unknown, 1, decide.DoNotify},
		{"a standby whose answers were lost", applied, fleet.TargetSeen{State: fleet.TargetUnknown, Tries: 1}, 1, decide.DoEnd},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Instance(seen(asked(1), open(2, c.active, c.other)), decide.InstanceRun{Tries: c.tries}, noon)
			require.Equal(t, c.do, a.Do)
		})
	}
}

// N41, X14: each further try waits longer, once.
func TestInstanceWaits(t *testing.T) {
	t.Parallel()
	waiting, applied := is(fleet.TargetWaiting), is(fleet.TargetApplied)
	for _, c := range []struct {
		name string
		seen fleet.InstanceSeen
		run  decide.InstanceRun
		wait time.Duration
	}{
		{"not before the first", seen(asked(1), open(2, waiting, waiting)), decide.InstanceRun{}, 0},
		{"one second before the second", seen(asked(1), open(2, missed(fleet.Communication, 1), waiting)), decide.InstanceRun{}, time.Second},
		{"two before the third", seen(asked(1), open(2, missed(fleet.Communication, 2), waiting)), decide.InstanceRun{}, 2 * time.Second},
		{"two while the lease is on its way", seen(asked(1), open(2, missed(fleet.Stale, 1), waiting)), decide.InstanceRun{}, 2 * time.Second},
		{"four the next time", seen(asked(1), open(2, missed(fleet.Stale, 2), waiting)), decide.InstanceRun{}, 4 * time.Second},
		{"not again when it has waited", seen(asked(1), open(2, missed(fleet.Communication, 1), waiting)), decide.InstanceRun{Waited: "a"}, 0},
		{"for each node its own", seen(asked(1), open(2, applied, missed(fleet.Communication, 1))), decide.InstanceRun{Waited: "a"}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Instance(c.seen, c.run, noon)
			require.Equal(t, decide.DoNotify, a.Do)
			require.Equal(t, c.wait, a.Wait)
		})
	}
}

// X4, X8: a delivery waits for a node that has not enrolled as long as for one that is down, says so, and stays owed.
func TestInstanceWaitsForEnrolment(t *testing.T) {
	t.Parallel()
	enrols, waiting, applied := fleet.TargetSeen{State: fleet.TargetWaiting, Reason: fleet.Unavailable}, is(fleet.TargetWaiting), is(fleet.TargetApplied)
	const take = 20 * time.Second
	for _, c := range []struct {
		name          string
		active, other fleet.TargetSeen
		since         time.Duration
		run           decide.InstanceRun
		do            decide.InstanceDo
		node          fleet.NodeName
		wait          time.Duration
		reason        string
	}{
		{"one second at first", enrols, waiting, 0, decide.InstanceRun{Take: take}, decide.DoNotify, "a", time.Second, ""},
		{"as long as it has waited", enrols, waiting, 3 * time.Second, decide.InstanceRun{Take: take}, decide.DoNotify, "a", 3 * time.Second, ""},
		{"five seconds at most", enrols, waiting, 9 * time.Second, decide.InstanceRun{Take: take}, decide.DoNotify, "a", 5 * time.Second, ""},
		{"then it looks", enrols, waiting, 9 * time.Second, decide.InstanceRun{Take: take, Waited: "a"}, decide.DoNotify, "a", 0, ""},
		{"to the end of its time", enrols, waiting, 18 * time.Second, decide.InstanceRun{Take: take}, decide.DoNotify, "a", 2 * time.Second, ""},
		{"and no longer", enrols, waiting, take, decide.InstanceRun{Take: take, Waited: "a"}, decide.DoEnd, "", 0, "unavailable"},
		{"two minutes by default", enrols, waiting, 119 * time.Second, decide.InstanceRun{}, decide.DoNotify, "a", time.Second, ""},
		{"not longer either", enrols, waiting, 120 * time.Second, decide.InstanceRun{}, decide.DoEnd, "", 0, "unavailable"},
		{"one that was not asked yet is asked at once", waiting, waiting, time.Hour, decide.InstanceRun{Take: take}, decide.DoNotify, "a", 0, ""},
		{"the standby too", applied, enrols, 3 * time.Second, decide.InstanceRun{Take: take, Waited: "a"}, decide.DoNotify, "b", 3 * time.Second, ""},
		{"not without end", applied, enrols, take, decide.InstanceRun{Take: take}, decide.DoEnd, "", 0, "not_replicated"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := seen(asked(1), open(2, c.active, c.other))
			s.Open.Since, s.Open.Deadline = noon.Add(-c.since), noon.Add(time.Hour)
			a := decide.Instance(s, c.run, noon)
			require.Equal(t, []any{c.do, c.node, c.wait, c.reason}, []any{a.Do, a.Node, a.Wait, a.Reason}, a.Rule)
			if c.reason == "unavailable" {
				require.True(t, a.Owe)
				require.Equal(t, "node a has not enrolled: make a join token and start the node with it; then it is delivered", a.Message)
			}
		})
	}
}

// N44, X8: who is told why it failed, and where nothing is asked for, nobody waits for an active node.
func TestInstanceSays(t *testing.T) {
	t.Parallel()
	says := func(reason fleet.Kind) string {
		s := seen(open(2, missed(reason, 1), is(fleet.TargetWaiting)))
		return decide.EndOfDelivery(*s.Open, fleet.DurabilitySync).Message
	}
	require.Equal(t, "node a did not hold the site's lease: the delivery stays owed to the holder", says(fleet.Stale))
	require.Equal(t, "node a: communication", says(fleet.Communication))
	nobody := func(s *fleet.InstanceSeen) { s.Holder = "" }
	require.Equal(t, "nothing_to_do", decide.Instance(seen(nobody), decide.InstanceRun{}, noon).Rule)
	require.Equal(t, "no_active_node", decide.Instance(seen(nobody, asked(1)), decide.InstanceRun{}, noon).Rule)
}

// ADR 0004: how many have to wait at a site to share a run.
func TestCrowded(t *testing.T) {
	t.Parallel()
	require.False(t, decide.Crowded(decide.Crowd-1))
	require.True(t, decide.Crowded(decide.Crowd))
}
