package decide

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ReplicaReported turns a node's report into the replica's events, in order; none if its state stays. The store
// keeps the rest of the report (phase, restarts, endpoint).
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

// saidState is the reported state, and whether the process is a new one. An agent that took over a running replica
// has not probed it yet: the known state stays.
func saidState(seen fleet.ReplicaSeen, said fleet.ReplicaStatus) (to fleet.ReplicaState, again bool) {
	again = said.Restarts > seen.Restarts
	switch said.Phase {
	case fleet.PhaseExited, fleet.PhaseFailed, fleet.PhaseStopped, fleet.PhaseStopping:
		return fleet.ReplicaUnhealthy, again
	case fleet.PhasePreparing, fleet.PhasePreStart, fleet.PhaseLaunching:
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
