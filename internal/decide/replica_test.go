package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S46 to S56, S55, S130: what a node's word makes of a replica.
func TestReplicaReported(t *testing.T) {
	t.Parallel()
	starting, healthy, unhealthy, terminating := fleet.ReplicaStarting, fleet.ReplicaHealthy, fleet.ReplicaUnhealthy, fleet.ReplicaTerminating
	again := func(s fleet.ReplicaStatus) fleet.ReplicaStatus { s.Restarts = 1; return s }
	preparing := fleet.ReplicaStatus{Phase: fleet.PhasePreparing, Health: fleet.HealthNotChecked}
	stopping := fleet.ReplicaStatus{Phase: fleet.PhaseStopping, Health: fleet.HealthUnhealthy}
	type events = []fleet.ReplicaEvent
	for _, c := range []struct {
		name string
		is   fleet.ReplicaState
		said fleet.ReplicaStatus
		want events
	}{
		{"prepares", starting, preparing, nil},
		{"runs and is not healthy yet", starting, wordRunning, nil},
		{"becomes healthy", starting, wordHealthy, events{fleet.ReplicaPassed}},
		{"fails while it starts", starting, wordUnwell, events{fleet.ReplicaFailed}},
		{"exits while it starts", starting, wordExited, events{fleet.ReplicaFailed}},
		{"is restarted while it starts", starting, again(wordRunning), events{fleet.ReplicaRestarted}},
		{"says the same again", healthy, wordHealthy, nil},
		{"was restarted and is healthy again", healthy, again(wordHealthy), events{fleet.ReplicaRestarted, fleet.ReplicaPassed}},
		{"fails", healthy, wordUnwell, events{fleet.ReplicaFailed}},
		{"exits", healthy, wordExited, events{fleet.ReplicaFailed}},
		{"is stopped by its node", healthy, stopping, events{fleet.ReplicaFailed}},
		{"was taken over by a new agent", healthy, wordRunning, nil},
		{"is restarted", unhealthy, again(wordRunning), events{fleet.ReplicaRestarted}},
		{"is back with its node, not probed yet", unhealthy, wordRunning, events{fleet.ReplicaRestarted}},
		{"recovers", unhealthy, wordHealthy, events{fleet.ReplicaPassed}},
		{"is given up", unhealthy, wordFailed, nil},
		{"still runs while it is to end", terminating, wordHealthy, nil},
		{"ends", terminating, wordStopped, events{fleet.ReplicaEnded}},
		{"ends by itself while it is to end", terminating, wordExited, events{fleet.ReplicaEnded}},
		{"is over", fleet.ReplicaTerminated, wordHealthy, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := decide.ReplicaReported(replica(1, state(c.is)), c.said)
			require.Equal(t, c.want, got)
			s := c.is
			for _, e := range got {
				var err error
				s, err = s.Next(e)
				require.NoError(t, err)
			}
		})
	}
}

// here is a replica that has run on its node for a minute, at two minutes.
func here(change ...func(*decide.ReplicaHere)) decide.ReplicaHere {
	h := decide.ReplicaHere{
		Run: true, Process: decide.ProcessRunning, Since: time.Minute, Stop: 10 * time.Second,
		Probe: decide.ProbeState{Health: fleet.HealthHealthy, Begun: true, Since: time.Minute, Deadline: 3 * time.Minute},
	}
	for _, c := range change {
		c(&h)
	}
	return h
}

func is2(p decide.ReplicaProcess) func(*decide.ReplicaHere) {
	return func(h *decide.ReplicaHere) { h.Process = p }
}

func since(d time.Duration) func(*decide.ReplicaHere) {
	return func(h *decide.ReplicaHere) { h.Since = d }
}

func restarts(n int) func(*decide.ReplicaHere) { return func(h *decide.ReplicaHere) { h.Restarts = n } }
func unwell(h *decide.ReplicaHere)             { h.Probe.Health = fleet.HealthUnhealthy }
func late(h *decide.ReplicaHere) {
	h.Probe = decide.ProbeState{Deadline: time.Minute, Missed: time.Minute}
}

// preStart is a replica that was seen to run its preStart commands at an instant, of which the deadline is now.
func preStart(seen time.Duration) func(*decide.ReplicaHere) {
	return func(h *decide.ReplicaHere) {
		h.Process, h.Probe = decide.ProcessPreStart, decide.PreStart(time.Minute, time.Minute).StillPreStart(seen)
	}
}

func regionAway(h *decide.ReplicaHere) { h.Away = time.Minute }
func told(h *decide.ReplicaHere)       { h.Run = false }
func refused(at time.Duration) func(*decide.ReplicaHere) {
	return func(h *decide.ReplicaHere) { h.Refused = at }
}

func alone(n int, since time.Duration) func(*decide.ReplicaHere) {
	return func(h *decide.ReplicaHere) { h.Process, h.Alone, h.Away = decide.ProcessOver, n, since }
}

// S48, S49, S52 to S54, S80, S84, S106: what a node does with one replica.
func TestReplica(t *testing.T) {
	t.Parallel()
	const now = 2 * time.Minute
	over := is2(decide.ProcessOver)
	for _, c := range []struct {
		name string
		here decide.ReplicaHere
		want decide.ReplicaAction
	}{
		{"prepares first", here(is2(decide.ProcessNone)), decide.ReplicaAction{Rule: "prepare", Do: decide.DoPrepare}},
		{"waits while it prepares", here(is2(decide.ProcessPreparing)), decide.ReplicaAction{Rule: "preparing", Do: decide.DoRest, Until: 31 * time.Minute}},
		{"tries again what took too long to prepare while the region is away", here(is2(decide.ProcessPreparing), func(h *decide.ReplicaHere) {
			h.Since, h.Away = -decide.PrepareLimit, time.Hour
		}), decide.ReplicaAction{Rule: "prepare_again", Do: decide.DoPrepare}},
		{"waits for its preStart commands until its startup deadline", here(preStart(now - 1)), decide.ReplicaAction{Rule: "pre_start", Do: decide.DoRest, Until: now}},
		{"does not take for late what nobody saw run since its deadline", here(preStart(now-1), since(-time.Hour)), decide.ReplicaAction{Rule: "pre_start", Do: decide.DoRest, Until: now}},
		{"gives up what runs its preStart commands for too long", here(preStart(now)), decide.ReplicaAction{Rule: "startup_deadline", Do: decide.DoGiveUp, Reason: fleet.ReasonStartupDeadline}},
		{"starts it again without the region", here(preStart(now), regionAway), decide.ReplicaAction{Rule: "started_late", Do: decide.DoStop, Restart: true, Reason: fleet.ReasonStartupDeadline}},
		{"and gives it up after its last restart", here(preStart(now), regionAway, restarts(3)), decide.ReplicaAction{Rule: "startup_deadline", Do: decide.DoGiveUp, Reason: fleet.ReasonStartupDeadline}},
		{"ends its preStart commands when it is told to", here(preStart(now), told), decide.ReplicaAction{Rule: "told_to_end", Do: decide.DoStop}},
		{"gives it up once the region is there to make another", here(is2(decide.ProcessPreparing), func(h *decide.ReplicaHere) {
			h.Since = -decide.PrepareLimit
		}), decide.ReplicaAction{Rule: "preparing_too_long", Do: decide.DoGiveUp, Reason: decide.ReasonPrepareLimit}},
		{"starts", here(is2(decide.ProcessPrepared)), decide.ReplicaAction{Rule: "start", Do: decide.DoStart}},
		{"gives up what cannot start", here(is2(decide.ProcessBroken), func(h *decide.ReplicaHere) { h.Reason = fleet.ReasonNoImage }), decide.ReplicaAction{Rule: "broken", Do: decide.DoGiveUp, Reason: fleet.ReasonNoImage}},
		{"lets it run", here(), decide.ReplicaAction{Rule: "running", Do: decide.DoRest}},
		{"waits for the first success", here(func(h *decide.ReplicaHere) { h.Probe.Begun, h.Probe.Health = false, fleet.HealthNotChecked }), decide.ReplicaAction{Rule: "running", Do: decide.DoRest}},
		{"does not take for late what no probe has failed of since its deadline", here(late, func(h *decide.ReplicaHere) { h.Probe.Missed = time.Minute - 1 }), decide.ReplicaAction{Rule: "running", Do: decide.DoRest}},
		{"restarts what fails", here(unwell), decide.ReplicaAction{Rule: "probes_failed", Do: decide.DoStop, Restart: true, Reason: fleet.ReasonProbesFailed}},
		{"gives up what is late", here(late), decide.ReplicaAction{Rule: "startup_deadline", Do: decide.DoGiveUp, Reason: fleet.ReasonStartupDeadline}},
		{"gives up a restart that is late", here(late, restarts(1)), decide.ReplicaAction{Rule: "startup_deadline", Do: decide.DoGiveUp, Reason: fleet.ReasonStartupDeadline}},
		{"restarts what is late without the region", here(late, regionAway), decide.ReplicaAction{Rule: "started_late", Do: decide.DoStop, Restart: true, Reason: fleet.ReasonStartupDeadline}},
		{"starts again what it stopped for that", here(over, func(h *decide.ReplicaHere) { h.Again = true }), decide.ReplicaAction{Rule: "restart", Do: decide.DoStart, Restart: true}},
		{"gives up after the last restart", here(unwell, restarts(3)), decide.ReplicaAction{Rule: "restarts_used_up", Do: decide.DoGiveUp, Reason: fleet.ReasonRestartsUsedUp}},
		{"gives up what is late after the last restart without the region", here(late, regionAway, restarts(3)), decide.ReplicaAction{Rule: "startup_deadline", Do: decide.DoGiveUp, Reason: fleet.ReasonStartupDeadline}},
		{"ends what it gave up", here(unwell, restarts(3), func(h *decide.ReplicaHere) { h.GaveUp = true }), decide.ReplicaAction{Rule: "given_up_ends", Do: decide.DoStop}},
		{"leaves what it gave up", here(over, func(h *decide.ReplicaHere) { h.GaveUp = true }), decide.ReplicaAction{Rule: "given_up", Do: decide.DoRest}},
		{"restarts count no more after ten minutes", here(restarts(2), func(h *decide.ReplicaHere) { h.Probe.Since = now - 10*time.Minute }), decide.ReplicaAction{Rule: "well_again", Do: decide.DoRest, Anew: true}},
		{"and count until then", here(restarts(2)), decide.ReplicaAction{Rule: "running", Do: decide.DoRest, Until: 11 * time.Minute}},
		{"counts those without the region with the others", here(restarts(2), func(h *decide.ReplicaHere) { h.Alone, h.Probe.Since = 2, now-10*time.Minute }), decide.ReplicaAction{Rule: "well_again", Do: decide.DoRest, Anew: true}},
		{"waits for the end of what it killed", here(is2(decide.ProcessKilled), since(now-time.Second)), decide.ReplicaAction{Rule: "killed", Do: decide.DoRest, Until: now + 4*time.Second}},
		{"kills what has had its time", here(is2(decide.ProcessStopping), since(now-10*time.Second)), decide.ReplicaAction{Rule: "stop_time_over", Do: decide.DoKill}},
		{"waits for a region that was here a moment ago", here(alone(0, now-time.Second)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoRest, Until: now + time.Second}},
		{"and then no more", here(alone(0, now-2*time.Second)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoStart, Restart: true}},
		{"leaves an exit to the region", here(over), decide.ReplicaAction{Rule: "exited", Do: decide.DoRest}},
		{"waits for the region a little", here(alone(0, now-time.Second), since(now-time.Second)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoRest, Until: now + time.Second}},
		{"starts again without the region", here(alone(0, time.Minute)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoStart, Restart: true}},
		{"and waits longer each time", here(alone(4, time.Minute), since(now)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoRest, Until: now + 16*time.Second}},
		{"but at most 30 s", here(alone(40, time.Minute), since(now)), decide.ReplicaAction{Rule: "exited_alone", Do: decide.DoRest, Until: now + 30*time.Second}},
		{"ends what it is told to", here(told), decide.ReplicaAction{Rule: "told_to_end", Do: decide.DoStop}},
		{"ends what it prepares", here(told, is2(decide.ProcessPreparing)), decide.ReplicaAction{Rule: "told_to_end", Do: decide.DoStop}},
		{"gives it its own stop time", here(told, is2(decide.ProcessStopping), since(now)), decide.ReplicaAction{Rule: "stopping", Do: decide.DoRest, Until: now + 10*time.Second}},
		{"tells it again soon where nobody took the stop", here(told, is2(decide.ProcessStopping), since(now), refused(now)), decide.ReplicaAction{Rule: "stopping", Do: decide.DoRest, Until: now + time.Second}},
		{"and tells it again", here(told, is2(decide.ProcessStopping), since(now-2*time.Second), refused(now-time.Second)), decide.ReplicaAction{Rule: "stop_again", Do: decide.DoStop}},
		{"kills it then although nobody took the stop", here(told, is2(decide.ProcessStopping), refused(now)), decide.ReplicaAction{Rule: "stop_time_over", Do: decide.DoKill}},
		{"kills it then", here(told, is2(decide.ProcessStopping)), decide.ReplicaAction{Rule: "stop_time_over", Do: decide.DoKill}},
		{"kills what does not stop for a restart", here(is2(decide.ProcessStopping)), decide.ReplicaAction{Rule: "stop_time_over", Do: decide.DoKill}},
		{"kills it again", here(told, is2(decide.ProcessKilled)), decide.ReplicaAction{Rule: "kill_again", Do: decide.DoKill}},
		{"forgets it when it is over", here(told, over), decide.ReplicaAction{Rule: "ended", Do: decide.DoForget}},
		{"forgets what never ran", here(told, is2(decide.ProcessNone)), decide.ReplicaAction{Rule: "ended", Do: decide.DoForget}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, decide.Replica(c.here, now))
		})
	}
}

// keeper carries out what is decided, with a program that starts, fails and hangs at random.
type keeper struct {
	here decide.ReplicaHere
	now  time.Duration
}

func (k *keeper) to(p decide.ReplicaProcess) { k.here.Process, k.here.Since = p, k.now }

func (k *keeper) do(t *rapid.T, a decide.ReplicaAction) {
	switch a.Do {
	case decide.DoPrepare:
		k.to(decide.ProcessPreparing)
	case decide.DoStart:
		k.here.Probe = decide.ProbeState{}
		if a.Restart && k.here.Again {
			k.here.Restarts++
		} else if a.Restart {
			k.here.Alone++
		}
		k.here.Again = false
		if rapid.Bool().Draw(t, "preStart") {
			k.to(decide.ProcessPreStart)
			k.here.Probe = decide.PreStart(time.Minute, k.now)
			return
		}
		k.to(decide.ProcessRunning)
		k.here.Probe = decide.StartProbes(fleet.HealthCheck{}, time.Minute, k.now)
	case decide.DoStop:
		k.here.Again = a.Restart
		k.to(decide.ProcessStopping)
	case decide.DoKill:
		k.to(decide.ProcessKilled)
	case decide.DoGiveUp:
		k.here.GaveUp = true
	case decide.DoForget:
	case decide.DoRest:
		if a.Anew {
			k.here.Restarts, k.here.Alone = 0, 0
		}
		k.passes(t, a)
	}
}

// passes lets time pass, or the program do something.
func (k *keeper) passes(t *rapid.T, a decide.ReplicaAction) {
	switch k.here.Process {
	case decide.ProcessPreparing:
		k.to(rapid.SampledFrom([]decide.ReplicaProcess{decide.ProcessPrepared, decide.ProcessBroken}).Draw(t, "prepared"))
	case decide.ProcessPreStart:
		k.now += time.Duration(rapid.IntRange(1, 40).Draw(t, "command")) * time.Second
		if rapid.Bool().Draw(t, "runs on") {
			k.here.Probe = k.here.Probe.StillPreStart(k.now)
			return
		}
		k.to(decide.ProcessRunning)
		k.here.Probe.Health = fleet.HealthNotChecked
	case decide.ProcessStopping:
		if rapid.Bool().Draw(t, "hangs") {
			k.now = a.Until
			return
		}
		k.to(decide.ProcessOver)
	case decide.ProcessKilled:
		k.to(decide.ProcessOver)
	case decide.ProcessRunning:
		if rapid.IntRange(0, 9).Draw(t, "exits") == 0 {
			k.to(decide.ProcessOver)
			return
		}
		ok := rapid.Bool().Draw(t, "ok")
		k.now += time.Second
		k.here.Probe = decide.Probe(k.here.Probe, fleet.HealthCheck{Interval: 1, HealthyThreshold: 1, UnhealthyThreshold: 1}, result(ok), k.now)
	case decide.ProcessNone, decide.ProcessPrepared, decide.ProcessOver, decide.ProcessBroken:
		k.now += time.Second
	}
}

// S53, S54, S106, X6: what is told to end ends, at any step; a stop is never cut short; restarts
// are bounded.
func TestReplicaEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := &keeper{here: decide.ReplicaHere{Run: true, Stop: time.Duration(rapid.IntRange(1, 60).Draw(t, "stop")) * time.Second}, now: time.Hour}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "link") == 0 {
				k.here.Away = rapid.SampledFrom([]time.Duration{0, k.now}).Draw(t, "away")
			}
			a := decide.Replica(k.here, k.now)
			if a.Do == decide.DoKill && k.here.Process == decide.ProcessStopping {
				require.GreaterOrEqual(t, k.now-k.here.Since, k.here.Stop, "it had its whole stop time")
			}
			k.do(t, a)
			require.LessOrEqual(t, k.here.Restarts, fleet.DefaultRecovery().Restarts)
		}
		k.here.Run = false
		for steps := 0; ; steps++ {
			require.Less(t, steps, 20, "it does not end")
			a := decide.Replica(k.here, k.now)
			require.NotEqual(t, decide.DoStart, a.Do, "nothing starts any more")
			if a.Do == decide.DoForget {
				break
			}
			k.do(t, a)
		}
	})
}
