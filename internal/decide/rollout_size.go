package decide

import "github.com/holdfast-io/holdfast/internal/fleet"

// RolloutSize is what a rollout takes at most, of replicas that take some resources each: how many replicas there are at a time,
// how many of them above the target, and what all of them take together. Of each resource it is the most that both revisions
// take at any time.
type RolloutSize struct {
	Replicas, Surge int
	Peak            fleet.Resources
}

// SizeOf is the size of a rollout that replaces each of target replicas. It begins with the target of the old ones and a surge of
// the new, and ends with the target of the new ones and a surge of the old, so that one of the two is the peak.
func SizeOf(s fleet.Strategy, target int, from, to fleet.Resources) RolloutSize {
	if s.Type == fleet.StrategyRecreate {
		return RolloutSize{Replicas: target, Peak: most(times(from, target), times(to, target))}
	}
	surge := min(s.Surge(target), target)
	return RolloutSize{
		Replicas: target + surge, Surge: surge,
		Peak: most(plus(times(from, target), times(to, surge)), plus(times(from, surge), times(to, target))),
	}
}

func times(r fleet.Resources, n int) fleet.Resources {
	return fleet.Resources{CPU: r.CPU * float64(n), Memory: r.Memory * int64(n), GPUs: r.GPUs * n}
}

func plus(a, b fleet.Resources) fleet.Resources {
	return fleet.Resources{CPU: a.CPU + b.CPU, Memory: a.Memory + b.Memory, GPUs: a.GPUs + b.GPUs}
}

func most(a, b fleet.Resources) fleet.Resources {
	return fleet.Resources{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), GPUs: max(a.GPUs, b.GPUs)}
}
