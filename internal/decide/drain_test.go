package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var drainDay = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// drainOf is a wanted drain of a node that holds nothing, with a minute left.
func drainOf(edits ...func(*fleet.DrainSeen)) fleet.DrainSeen {
	s := fleet.DrainSeen{
		Node: "plant-a", Site: "plant", Operation: "op", Wanted: true, At: drainDay, Deadline: drainDay.Add(time.Minute),
	}
	for _, f := range edits {
		f(&s)
	}
	return s
}

func drainLeft(d time.Duration) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) { s.Deadline = s.At.Add(d) }
}

func drainHolds(running int) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) { s.Holds, s.Running = true, running }
}

func drainPeer(ready bool) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) { s.Peer = &fleet.DrainPeer{Node: "plant-b", Ready: ready} }
}

func drainVacant(s *fleet.DrainSeen) { s.Vacant = true }

func drainMove(s *fleet.DrainSeen) { s.Failover = "move" }

// drainReplicas has one replica that ends, and some that are to run on.
func drainReplicas(live int) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) { s.Replicas, s.Live = live+1, live }
}

// drainOrphans has replicas run that the region does not know.
func drainOrphans(s *fleet.DrainSeen) { s.Orphans = 2 }

// drainGivenUp has some of the live ones be of deployments that make nothing any more.
func drainGivenUp(n int, of ...fleet.DeploymentName) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) { s.GivenUp, s.GivenUpOf = n, of }
}

func drainForced(s *fleet.DrainSeen) { s.Force = true }

func drainConn(c fleet.DrainConnection) func(*fleet.DrainSeen) {
	c.Provider = "plant-a"
	return func(s *fleet.DrainSeen) { s.Connections = append(s.Connections, c) }
}

// drainBefore has the node's connection have ended before the drain; nodes that are there could be on the link since.
func drainBefore(on fleet.ConnectionEvent, ago, there time.Duration) func(*fleet.DrainSeen) {
	return func(s *fleet.DrainSeen) {
		s.There = s.At.Add(-there)
		s.Before = []fleet.DrainConnection{{ID: "0", Provider: "plant-a", State: fleet.ConnectionDisconnected, Reason: on, EndedAt: s.At.Add(-ago)}}
	}
}

// X5, X8, C12, C13, C24, C66, C67
func TestDrain(t *testing.T) {
	t.Parallel()
	registered := fleet.DrainConnection{ID: "1", State: fleet.ConnectionRegistered}
	active := fleet.DrainConnection{ID: "1", State: fleet.ConnectionActive, InFlight: 2}
	asked := fleet.DrainConnection{ID: "1", State: fleet.ConnectionActive, InFlight: 2, Asked: true}
	working := fleet.DrainConnection{ID: "1", State: fleet.ConnectionDraining, InFlight: 2, Asked: true, Acked: true}
	idle := fleet.DrainConnection{ID: "1", State: fleet.ConnectionDraining, Asked: true, Acked: true}
	later := fleet.DrainConnection{ID: "1", State: fleet.ConnectionDraining, InFlight: 2, Acked: true}
	ended := func(on fleet.ConnectionEvent) fleet.DrainConnection {
		return fleet.DrainConnection{ID: "1", State: fleet.ConnectionDisconnected, Reason: on, Asked: true, InFlight: 2}
	}
	left := fleet.DrainConnection{ID: "1", State: fleet.ConnectionDisconnected, Reason: fleet.StreamClosed}
	again := fleet.DrainConnection{ID: "2", State: fleet.ConnectionActive}
	stopped, asking := decide.DrainRun{Stopped: true}, decide.DrainRun{Asked: true}
	const now, past = time.Duration(0), -time.Second

	for _, c := range []struct {
		rule string
		seen fleet.DrainSeen
		run  decide.DrainRun
		do   decide.DrainDo
	}{
		{"nobody_waits", drainOf(func(s *fleet.DrainSeen) { s.Wanted = false }), decide.DrainRun{}, decide.DrainClose},
		{"node_removed", drainOf(func(s *fleet.DrainSeen) { s.Removed = true }, drainConn(active)), decide.DrainRun{}, decide.DrainFinish},

		{"replicas_moving", drainOf(drainReplicas(2), drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"replicas_not_moved", drainOf(drainReplicas(2), drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainFinish},
		{"replicas_moving", drainOf(drainReplicas(2), drainGivenUp(1), drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"replicas_given_up", drainOf(drainReplicas(2), drainGivenUp(2), drainConn(active)), decide.DrainRun{}, decide.DrainFinish},
		{"replicas_moving", drainOf(drainReplicas(2), drainGivenUp(2), drainForced, drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"evict_forced", drainOf(drainReplicas(2), drainGivenUp(2), drainForced, drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainEvict},
		{"move_lease", drainOf(drainReplicas(2), drainGivenUp(2), drainHolds(1), drainPeer(true), drainConn(active)), decide.DrainRun{}, decide.DrainMove},
		{"evict_forced", drainOf(drainReplicas(2), drainForced, drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainEvict},
		{"replicas_ending", drainOf(drainReplicas(2), drainForced, drainLeft(now), drainConn(active)), decide.DrainRun{Evicted: true}, decide.DrainWait},
		{"replicas_ending", drainOf(drainReplicas(0), drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"ask", drainOf(drainReplicas(2), drainForced, drainLeft(-time.Minute), drainConn(active)), decide.DrainRun{Evicted: true}, decide.DrainAsk},

		{"orphans_run", drainOf(drainOrphans, drainConn(active)), decide.DrainRun{}, decide.DrainFinish}, // X28
		{"replicas_moving", drainOf(drainOrphans, drainReplicas(2), drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"ask", drainOf(drainOrphans, drainForced, drainConn(active)), decide.DrainRun{}, decide.DrainAsk},
		{"not_connected", drainOf(drainOrphans), decide.DrainRun{}, decide.DrainFinish},
		{"no_other_place", drainOf(drainHolds(1), drainConn(active)), decide.DrainRun{}, decide.DrainFinish},
		{"move_lease", drainOf(drainHolds(1), drainPeer(true), drainConn(active)), decide.DrainRun{}, decide.DrainMove},
		{"move_lease", drainOf(drainHolds(1), drainPeer(true), drainForced), decide.DrainRun{}, decide.DrainMove},
		{"move_lease", drainOf(drainHolds(0), drainPeer(true)), decide.DrainRun{}, decide.DrainMove},
		{"lease_moving", drainOf(drainHolds(1), drainPeer(true)), decide.DrainRun{Moving: true}, decide.DrainWait},
		{"move_lease_again", drainOf(drainHolds(1), drainPeer(true)), decide.DrainRun{Again: drainDay.Add(1)}, decide.DrainWait},
		{"peer_not_ready", drainOf(drainHolds(1), drainPeer(false)), decide.DrainRun{}, decide.DrainWait},
		{"peer_not_ready", drainOf(drainHolds(1), drainPeer(false), drainForced), decide.DrainRun{}, decide.DrainWait},
		{"lease_not_moved", drainOf(drainHolds(1), drainPeer(false), drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainFinish},
		{"lease_not_moved", drainOf(drainHolds(1), drainPeer(true), drainLeft(past)), decide.DrainRun{Moving: true}, decide.DrainFinish},
		{"move_lease", drainOf(drainVacant, drainPeer(true), drainConn(active)), decide.DrainRun{}, decide.DrainMove},
		{"lease_moving", drainOf(drainVacant, drainPeer(false), drainConn(active)), decide.DrainRun{Moving: true}, decide.DrainWait},
		{"move_lease_again", drainOf(drainVacant, drainPeer(true), drainConn(active)), decide.DrainRun{Again: drainDay.Add(1)}, decide.DrainWait},
		{"peer_not_ready", drainOf(drainVacant, drainPeer(false), drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"peer_not_ready", drainOf(drainVacant, drainConn(active)), decide.DrainRun{}, decide.DrainWait},
		{"not_taken_over", drainOf(drainVacant, drainPeer(false), drainLeft(now), drainConn(active)), decide.DrainRun{}, decide.DrainFinish},
		{"not_taken_over", drainOf(drainVacant, drainPeer(true), drainLeft(past), drainConn(asked)), asking, decide.DrainFinish},
		{"ask", drainOf(drainVacant, drainPeer(false), drainLeft(now), drainForced, drainConn(active)), decide.DrainRun{}, decide.DrainAsk},
		// All has stopped for a move that is under way: it is not over.
		{"lease_not_moved", drainOf(drainHolds(0), drainPeer(true), drainLeft(now), drainMove, drainConn(active)), decide.DrainRun{Ran: true, Moving: true}, decide.DrainFinish},
		{"ask", drainOf(drainHolds(0), drainPeer(true), drainLeft(now), drainMove, drainConn(active)), decide.DrainRun{Moving: true}, decide.DrainAsk},
		{"ask", drainOf(drainHolds(0), drainPeer(true), drainLeft(now), drainConn(active)), decide.DrainRun{Ran: true}, decide.DrainAsk},
		{"stop_forced", drainOf(drainHolds(1), drainPeer(true), drainLeft(now), drainForced), decide.DrainRun{Moving: true}, decide.DrainStop},
		{"stop_forced", drainOf(drainHolds(1), drainForced, drainConn(active)), decide.DrainRun{}, decide.DrainStop},
		{"stopping", drainOf(drainHolds(1), drainForced, drainConn(active)), decide.DrainRun{Stopping: true}, decide.DrainWait},
		{"not_stopped", drainOf(drainHolds(1), drainForced, drainConn(active)), decide.DrainRun{Failed: "no answer"}, decide.DrainFinish},
		{"ask", drainOf(drainHolds(1), drainForced, drainConn(active)), stopped, decide.DrainAsk},
		{"ask", drainOf(drainHolds(0), drainPeer(false), drainConn(active)), decide.DrainRun{}, decide.DrainAsk},
		{"ack", drainOf(drainHolds(1), drainPeer(true), drainConn(asked)), asking, decide.DrainWait},

		{"not_connected", drainOf(), decide.DrainRun{}, decide.DrainFinish},
		// The region was away, or the node's server: the node may be at work, and on its way back.
		{"lost", drainOf(drainBefore(fleet.ServerLapsed, time.Hour, -time.Second)), decide.DrainRun{}, decide.DrainWait},
		{"lost", drainOf(drainBefore(fleet.StreamFailed, time.Hour, -time.Second)), decide.DrainRun{}, decide.DrainWait},
		{"lost", drainOf(drainBefore(fleet.ServerLapsed, 29*time.Second, time.Hour)), decide.DrainRun{}, decide.DrainWait},
		{"lost", drainOf(drainBefore(fleet.HeartbeatLapsed, 29*time.Second, time.Hour)), decide.DrainRun{}, decide.DrainWait},
		{"lost", drainOf(drainBefore(fleet.ServerLapsed, time.Hour, -time.Second), drainReplicas(-1)), decide.DrainRun{}, decide.DrainWait},
		{"ask", drainOf(drainBefore(fleet.ServerLapsed, time.Hour, -time.Second), drainConn(active)), decide.DrainRun{}, decide.DrainAsk},
		{"not_heard_again", drainOf(drainBefore(fleet.ServerLapsed, time.Hour, -time.Second), drainLeft(now)), decide.DrainRun{}, decide.DrainFinish},
		{"not_connected", drainOf(drainBefore(fleet.ServerLapsed, time.Hour, 0)), decide.DrainRun{}, decide.DrainFinish},
		{"not_connected", drainOf(drainBefore(fleet.ServerLapsed, 30*time.Second, time.Hour)), decide.DrainRun{}, decide.DrainFinish},
		{"not_connected", drainOf(drainBefore(fleet.StreamClosed, time.Second, -time.Second)), decide.DrainRun{}, decide.DrainFinish},
		{"not_connected", drainOf(drainBefore(fleet.Revoked, time.Second, -time.Second)), decide.DrainRun{}, decide.DrainFinish},
		{"ask", drainOf(drainConn(active)), decide.DrainRun{}, decide.DrainAsk},
		{"ask", drainOf(drainConn(later)), asking, decide.DrainAsk},
		{"stream", drainOf(drainConn(registered)), decide.DrainRun{}, decide.DrainWait},
		{"not_connected", drainOf(drainConn(registered), drainLeft(now)), decide.DrainRun{}, decide.DrainFinish},
		{"ack", drainOf(drainConn(asked)), asking, decide.DrainWait},
		{"in_flight", drainOf(drainConn(working)), asking, decide.DrainWait},
		{"close", drainOf(drainConn(idle)), asking, decide.DrainWait},
		{"deadline", drainOf(drainConn(working), drainLeft(now)), asking, decide.DrainCut},
		{"deadline", drainOf(drainConn(asked), drainLeft(past)), asking, decide.DrainCut},
		{"deadline", drainOf(drainConn(idle), drainLeft(past)), asking, decide.DrainCut},
		{"ask", drainOf(drainConn(active), drainLeft(past)), decide.DrainRun{}, decide.DrainAsk},

		{"drained", drainOf(drainConn(ended(fleet.StreamClosed))), asking, decide.DrainFinish},
		{"drained", drainOf(drainConn(ended(fleet.Deregistered))), asking, decide.DrainFinish},
		{"drained", drainOf(drainConn(ended(fleet.Revoked))), asking, decide.DrainFinish},
		{"drained", drainOf(drainConn(left)), decide.DrainRun{}, decide.DrainFinish},
		{"cut_off", drainOf(drainConn(ended(fleet.DrainDeadline)), drainLeft(past)), asking, decide.DrainFinish},
		{"lost", drainOf(drainConn(ended(fleet.HeartbeatLapsed))), asking, decide.DrainWait},
		{"lost", drainOf(drainConn(ended(fleet.ServerLapsed))), asking, decide.DrainWait},
		{"not_heard_again", drainOf(drainConn(ended(fleet.StreamFailed)), drainLeft(now)), asking, decide.DrainFinish},
		// It came back with its work: asked again. It closed and started anew: left alone.
		{"ask", drainOf(drainConn(ended(fleet.StreamFailed)), drainConn(again)), asking, decide.DrainAsk},
		{"ask", drainOf(drainConn(left), drainConn(again)), asking, decide.DrainAsk},
		{"drained", drainOf(drainConn(ended(fleet.StreamClosed)), drainConn(again)), asking, decide.DrainFinish},
		{"cut_off", drainOf(drainConn(ended(fleet.DrainDeadline)), drainConn(again), drainLeft(past)), asking, decide.DrainFinish},
	} {
		a := decide.Drain(c.seen, c.run)
		require.Equal(t, []any{c.rule, c.do}, []any{a.Rule, a.Do}, "%+v", c.seen)
		require.NotEmpty(t, a.Message, c.rule)
		require.NotEmpty(t, a.Phase, c.rule)
		require.Equal(t, a.Do == decide.DrainFinish || a.Do == decide.DrainClose, a.State.Ended() && a.State != "", c.rule)
	}
}

// drainWorld is a node, its connection and its peer, as random as they can be.
type drainWorld struct {
	t       *rapid.T
	seen    fleet.DrainSeen
	run     decide.DrainRun
	answers time.Time // when what was asked of the lease or the node is answered
	works   bool      // the link's own monitor and the node do their part
}

// step lets time pass, and whatever may happen meanwhile.
func (w *drainWorld) step(d time.Duration) {
	w.seen.At = w.seen.At.Add(d)
	if !w.seen.At.Before(w.answers) && (w.run.Moving || w.run.Stopping) {
		good := rapid.Bool().Draw(w.t, "answer")
		switch {
		case w.run.Moving:
			w.seen.Vacant = !good && rapid.Bool().Draw(w.t, "gave it back all the same")
			w.seen.Holds = !good && !w.seen.Vacant
			if !w.seen.Holds {
				w.seen.Running = 0
			}
			w.run.Refused, w.run.Again = "no", w.seen.At.Add(decide.DrainMoveAgain)
		case good:
			w.run.Stopped = true
		default:
			w.run.Failed = "no answer"
		}
		w.run.Moving, w.run.Stopping = false, false
	}
	if w.seen.Live > w.seen.GivenUp && rapid.Bool().Draw(w.t, "a replica moves") {
		w.seen.Live--
	}
	if w.seen.Replicas > w.seen.Live && rapid.Bool().Draw(w.t, "a replica ends") {
		w.seen.Replicas--
	}
	for i := range w.seen.Connections {
		w.happen(&w.seen.Connections[i])
	}
	if w.seen.Vacant && rapid.Bool().Draw(w.t, "the peer takes it later") {
		w.seen.Vacant = false
	}
	if w.seen.Peer != nil {
		w.seen.Peer.Ready = rapid.Bool().Draw(w.t, "ready")
	}
}

func (w *drainWorld) happen(c *fleet.DrainConnection) {
	if !w.works || !c.State.Live() {
		return
	}
	switch rapid.IntRange(0, 5).Draw(w.t, "event") {
	case 0:
		if c.State == fleet.ConnectionRegistered {
			c.State = fleet.ConnectionActive
		}
	case 1:
		if c.Asked && c.State == fleet.ConnectionActive {
			c.State, c.Acked = fleet.ConnectionDraining, true
		}
	case 2:
		c.InFlight = max(0, c.InFlight-1)
	case 3:
		if c.Acked && c.InFlight == 0 {
			c.State, c.Reason = fleet.ConnectionDisconnected, fleet.StreamClosed
		}
	case 4:
		if c.State == fleet.ConnectionActive && rapid.Bool().Draw(w.t, "lapses") {
			c.State, c.Reason = fleet.ConnectionDisconnected, fleet.HeartbeatLapsed
		}
	}
}

func (w *drainWorld) connection(id fleet.ConnectionID) *fleet.DrainConnection {
	for i := range w.seen.Connections {
		if w.seen.Connections[i].ID == id {
			return &w.seen.Connections[i]
		}
	}
	return nil
}

// X5, X7: a drain that ends badly does not say that all was left as it is, while what it asked of
// the lease is under way.
func TestDrainSaysWhatItAsked(t *testing.T) {
	t.Parallel()
	under := "; the failover that it requested is cancelled (operation move): a node may still carry out a request it already has, and votes decide"
	late := drainOf(drainHolds(1), drainPeer(true), drainLeft(0))
	require.Equal(t, "its site's lease did not move in time; the instances keep running", decide.Drain(late, decide.DrainRun{}).Message)
	drainMove(&late)
	require.Equal(t, "its site's lease did not move in time"+under, decide.Drain(late, decide.DrainRun{Moving: true}).Message)
	unwanted := drainOf(drainHolds(1), drainPeer(true), drainMove, func(s *fleet.DrainSeen) { s.Wanted = false })
	require.Equal(t, "the drain was cancelled; the node stays cordoned"+under, decide.Drain(unwanted, decide.DrainRun{Moving: true}).Message)
	require.Contains(t, decide.Drain(drainOf(drainVacant, drainMove, drainLeft(0)), decide.DrainRun{}).Message, under)
	require.NotContains(t, decide.Drain(drainOf(drainMove), decide.DrainRun{}).Message, "cancelled", "the lease moves on")
}

// X8: a drain says of what it waits for, or fails with, whose it is where only a person can move it.
func TestDrainNamesWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	for want, seen := range map[string]fleet.DrainSeen{
		"waiting for 3 replicas to start elsewhere and to end here; 1 of them belong to deployments that were given up: web; restart or delete these deployments":                                  drainOf(drainReplicas(2), drainGivenUp(1, "web")),
		"2 replicas run on the node and found no other place in time; use --force to end them; 1 of them belong to deployments that were given up: web; restart or delete these deployments":       drainOf(drainReplicas(2), drainGivenUp(1, "web"), drainLeft(0)),
		"2 replicas run on the node and will not move; 2 of them belong to deployments that were given up: api, web; restart or delete these deployments; use --force to end them at the deadline": drainOf(drainReplicas(2), drainGivenUp(2, "api", "web")),
		"2 replicas run on the node and will not move; 2 of them belong to deployments that were given up; restart or delete these deployments; use --force to end them at the deadline":           drainOf(drainReplicas(2), drainGivenUp(2)),
		"waiting for 10 replicas to start elsewhere and to end here; 7 of them belong to deployments that were given up: a, b, c, d, e and 2 others; restart or delete these deployments":          drainOf(drainReplicas(9), drainGivenUp(7, "a", "b", "c", "d", "e", "f", "g")),
	} {
		require.Equal(t, want, decide.Drain(seen, decide.DrainRun{}).Message)
	}
}

// X5, X6: a drain never ends later than its deadline and one step, never cuts before it, and
// never stops what runs without being forced to, and does not succeed where nobody took it.
func TestDrainEnds(t *testing.T) {
	t.Parallel()
	const stop = 35 * time.Second // the longest step: a node that is asked to stop
	rapid.Check(t, func(rt *rapid.T) {
		w := &drainWorld{t: rt, works: rapid.Bool().Draw(rt, "works"), seen: drainOf(drainLeft(time.Duration(rapid.IntRange(1, 4000).Draw(rt, "left")) * time.Second))}
		w.seen.Holds, w.seen.Running, w.seen.Force = rapid.Bool().Draw(rt, "holds"), rapid.IntRange(0, 2).Draw(rt, "running"), rapid.Bool().Draw(rt, "force")
		if rapid.Bool().Draw(rt, "pair") {
			w.seen.Peer = &fleet.DrainPeer{Node: "plant-b", Ready: rapid.Bool().Draw(rt, "ready")}
		}
		for i := range rapid.IntRange(0, 2).Draw(rt, "connections") {
			w.seen.Connections = append(w.seen.Connections, fleet.DrainConnection{
				ID: fleet.ConnectionID(rune('a' + i)), Provider: fleet.ProviderName(rune('p' + i)), InFlight: rapid.IntRange(0, 3).Draw(rt, "in flight"),
				State: rapid.SampledFrom([]fleet.ConnectionState{fleet.ConnectionRegistered, fleet.ConnectionActive}).Draw(rt, "state"),
			})
		}
		w.seen.Live = rapid.IntRange(0, 2).Draw(rt, "live replicas")
		w.seen.GivenUp = rapid.IntRange(0, w.seen.Live).Draw(rt, "that are given up")
		w.seen.Replicas = w.seen.Live + rapid.IntRange(0, 1).Draw(rt, "ending replicas")
		stops := 0
		for steps := 0; ; steps++ {
			require.Less(rt, steps, 1000, "it never ends: %+v", w.seen)
			require.LessOrEqual(rt, w.seen.At.Sub(w.seen.Deadline), stop, "it goes on after its deadline: %+v", w.seen)
			a := decide.Drain(w.seen, w.run)
			switch a.Do {
			case decide.DrainWait:
				require.Positive(rt, a.Wait)
				waits := a.Rule == "replicas_moving" && w.seen.Live > 0 && !w.seen.Force
				require.False(rt, waits && w.seen.GivenUp == w.seen.Live, "it waits for what moves no more")
				if left := w.seen.Left(); left > 0 {
					require.LessOrEqual(rt, a.Wait, left, "it sleeps over its deadline")
				}
				w.step(a.Wait)
			case decide.DrainMove:
				w.run.Moving, w.answers = true, w.seen.At.Add(time.Duration(rapid.Int64Range(0, int64(a.Limit)).Draw(rt, "takes")))
			case decide.DrainStop:
				require.True(rt, w.seen.Force, "it stops what runs by itself")
				require.True(rt, w.seen.Peer == nil || w.seen.Left() <= 0, "it stops what runs while it could go elsewhere")
				stops++
				w.run.Stopping, w.answers = true, w.seen.At.Add(time.Duration(rapid.Int64Range(0, int64(a.Limit)).Draw(rt, "takes")))
			case decide.DrainEvict:
				require.True(rt, w.seen.Force && w.seen.Left() <= 0, "it ends replicas that could move")
				require.False(rt, w.run.Evicted, "it ends them twice")
				w.run.Evicted, w.seen.Live, w.seen.GivenUp = true, 0, 0
			case decide.DrainAsk:
				w.run.Asked = true
				require.True(rt, w.seen.Replicas == 0 || w.seen.Left() <= 0, "it breaks before replicas have moved")
				require.True(rt, !w.seen.Holds || w.seen.Running == 0 || w.run.Stopped, "it breaks before it makes")
				require.True(rt, !w.seen.Vacant || w.seen.Force && w.seen.Left() <= 0, "it breaks before anybody took it")
				for _, id := range a.Connections {
					w.connection(id).Asked = true
				}
			case decide.DrainCut:
				require.LessOrEqual(rt, w.seen.Left(), time.Duration(0), "it cuts before the deadline")
				for _, id := range a.Connections {
					c := w.connection(id)
					c.State, c.Reason = fleet.ConnectionDisconnected, fleet.DrainDeadline
				}
			case decide.DrainFinish:
				if a.State == fleet.OperationSucceeded && !w.seen.Force {
					require.False(rt, w.seen.Vacant, "its site has no active node, and that is a success")
				}
				if a.State == fleet.OperationSucceeded && w.seen.Left() > 0 {
					for _, c := range w.seen.Connections {
						require.False(rt, c.State.Live(), "it is over, and %s still works", c.ID)
					}
				}
				if a.Rule == "replicas_given_up" {
					require.True(rt, !w.seen.Force && w.seen.GivenUp == w.seen.Live, "it gives up what could move")
				}
				require.LessOrEqual(rt, stops, 1)
				return
			case decide.DrainClose:
				rt.Fatal("somebody waits")
			}
		}
	})
}

// X5, X6: it looks again in a twentieth of what is left, and gives what ends no more than its time.
func TestDrainLooksAgain(t *testing.T) {
	t.Parallel()
	for left, wait := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 500 * time.Millisecond, 10 * time.Second: time.Second, time.Minute: 3 * time.Second, time.Hour: 15 * time.Second,
	} {
		require.Equal(t, wait, decide.Drain(drainOf(drainReplicas(1), drainLeft(left)), decide.DrainRun{}).Wait, left)
	}
	require.Equal(t, 10*time.Second, decide.DrainMoveAgain, "between two tries to move the lease")
	ends := func(over time.Duration) string {
		return decide.Drain(drainOf(drainReplicas(0), drainForced, drainLeft(-over)), decide.DrainRun{}).Rule
	}
	require.Equal(t, "replicas_ending", ends(30*time.Second-1))
	require.NotEqual(t, "replicas_ending", ends(30*time.Second))
}
