package decide

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ReplicaReported says what a node's word makes of a replica: the events in order, none when its
// state stays. What else was said (phase, restarts, endpoint) is the store's to keep.
func ReplicaReported(seen fleet.ReplicaSeen, said fleet.ReplicaStatus) []fleet.ReplicaEvent {
	switch seen.State {
	case fleet.ReplicaTerminated:
		return nil
	case fleet.ReplicaTerminating:
		if said.Phase.Over() {
			return []fleet.ReplicaEvent{fleet.ReplicaEnded}
		}
		return nil
	case fleet.ReplicaStarting, fleet.ReplicaHealthy, fleet.ReplicaUnhealthy:
	}
	to, again := saidState(seen, said)
	switch {
	case to == fleet.ReplicaHealthy && seen.State == fleet.ReplicaHealthy && again:
		return []fleet.ReplicaEvent{fleet.ReplicaRestarted, fleet.ReplicaPassed}
	case to == fleet.ReplicaHealthy && seen.State != to:
		return []fleet.ReplicaEvent{fleet.ReplicaPassed}
	case to == fleet.ReplicaUnhealthy && seen.State != to:
		return []fleet.ReplicaEvent{fleet.ReplicaFailed}
	case to == fleet.ReplicaStarting && (seen.State != to || again):
		return []fleet.ReplicaEvent{fleet.ReplicaRestarted}
	}
	return nil
}

// saidState is the state that a word speaks of, and whether the process is another one than before.
// An agent that took a running replica over has not probed it yet: what was known stays.
func saidState(seen fleet.ReplicaSeen, said fleet.ReplicaStatus) (to fleet.ReplicaState, again bool) {
	again = said.Restarts > seen.Restarts
	switch said.Phase {
	case fleet.PhaseExited, fleet.PhaseFailed, fleet.PhaseStopped, fleet.PhaseStopping:
		return fleet.ReplicaUnhealthy, again
	case fleet.PhasePreparing:
		return fleet.ReplicaStarting, again
	case fleet.PhaseRunning:
	}
	switch said.Health {
	case fleet.HealthHealthy:
		return fleet.ReplicaHealthy, again
	case fleet.HealthUnhealthy:
		return fleet.ReplicaUnhealthy, again
	case fleet.HealthNotChecked, fleet.HealthDegraded:
	}
	if again || seen.State == fleet.ReplicaUnhealthy {
		return fleet.ReplicaStarting, again
	}
	return seen.State, again
}
