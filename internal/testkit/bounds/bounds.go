// Package bounds has what no decision about a deployment may exceed, for the tests of the decision and of the store that
// carries it out.
package bounds

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Serving counts live replicas that may answer, as far as anybody can know.
type Serving struct{ Live, Healthy, Routable int }

// Of counts the replicas of a deployment.
func Of(seen fleet.DeploymentSeen) (n Serving) {
	for _, r := range seen.Replicas {
		if !r.State.Live() || !r.Unheard.IsZero() || r.Gone || r.Phase.Over() || r.Lost {
			continue
		}
		n.Live++
		if r.State == fleet.ReplicaHealthy {
			n.Healthy++
			if !r.Unready {
				n.Routable++
			}
		}
	}
	return n
}

// Covers counts the replicas that one which works may rely on when it ends: routable, and to be replaced themselves, or of the stable
// revision, or so for as long as the strategy says. One whose drain has no time left for that relies on all that are routable.
func Covers(seen fleet.DeploymentSeen, ends fleet.ReplicaSeen) (n int) {
	strategy, shows := seen.Strategy, seen.Shows
	if r := seen.Rollout; r != nil {
		strategy, shows = r.Strategy, r.To.Shows
	}
	proof := strategy.MinHealthy(shows)
	if !ends.LeaveBy.IsZero() && !seen.At.Before(ends.LeaveBy.Add(-ends.Stop-5*time.Second)) {
		proof = 0
	}
	for _, r := range seen.Replicas {
		since := r.Since
		if r.ReadySince.After(since) {
			since = r.ReadySince
		}
		stays := r.ProcessVersion == seen.ProcessVersion && !Misplaced(seen, r)
		if seen.Rollout != nil {
			stays = r.ProcessVersion == seen.Rollout.To.ProcessVersion
		}
		if r.ID != ends.ID && Routable(r) && (!stays || seen.At.Sub(since) >= proof) {
			n++
		}
	}
	return n
}

// Routable reports whether a replica may serve, as far as anybody can know.
func Routable(r fleet.ReplicaSeen) bool {
	return r.State == fleet.ReplicaHealthy && !r.Unready && r.Unheard.IsZero() && !r.Gone && !r.Lost && !r.Phase.Over()
}

// Least is how many routable replicas a decision leaves, if there are so many: the target or, in a rollout, as many as when it began,
// less max_unavailable. One that had to make room takes one more.
func Least(seen fleet.DeploymentSeen) int {
	r := seen.Rollout
	if r == nil {
		return seen.Target
	}
	return min(seen.Target-r.Strategy.Unavailable(seen.Target), r.AtStart)
}

// Most is up to how many live replicas a decision creates: the target and the surge of those that may stay on their nodes.
func Most(seen fleet.DeploymentSeen) int {
	strategy, leaving := seen.Strategy, 0
	if seen.Rollout != nil {
		strategy = seen.Rollout.Strategy
	}
	for _, r := range seen.Replicas {
		if r.State.Live() && r.Unheard.IsZero() && Misplaced(seen, r) {
			leaving++
		}
	}
	return seen.Target + max(1, strategy.Surge(seen.Target)) + leaving
}

// Misplaced reports whether a replica has to leave its node.
func Misplaced(seen fleet.DeploymentSeen, r fleet.ReplicaSeen) bool {
	sites := seen.Placement.Sites
	if seen.Rollout != nil && r.ProcessVersion == seen.Rollout.To.ProcessVersion {
		sites = seen.Rollout.To.Placement.Sites
	}
	return r.Leave || len(sites) > 0 && !slices.Contains(sites, r.Site)
}

// Strategy draws how a rollout goes.
func Strategy(t *rapid.T) fleet.Strategy {
	share := func(name string) *fleet.Share {
		return rapid.SampledFrom([]*fleet.Share{nil, {Count: 1}, {Count: 2}, {Percent: 25}, {Percent: 100}, {}}).Draw(t, name)
	}
	s := fleet.Strategy{
		Type:     rapid.SampledFrom([]fleet.StrategyType{"", fleet.StrategyRolling, fleet.StrategyCanary, fleet.StrategyRecreate}).Draw(t, "type"),
		MaxSurge: share("surge"), MaxUnavailable: share("unavailable"), MaxInFlight: rapid.IntRange(0, 2).Draw(t, "in flight"),
		MinHealthyTime: rapid.SampledFrom([]*float64{nil, new(0.0), new(30.0)}).Draw(t, "min healthy"),
		WhenFull:       rapid.SampledFrom([]fleet.WhenFull{"", fleet.FullOldFirst, fleet.FullWait}).Draw(t, "when full"),
	}
	if s.Type == fleet.StrategyCanary {
		for w := rapid.IntRange(0, 60).Draw(t, "weight"); w > 0 && w < 100; w += rapid.IntRange(1, 50).Draw(t, "more") {
			s.Steps = append(s.Steps, fleet.CanaryStep{Weight: w, Interval: float64(rapid.IntRange(0, 60).Draw(t, "interval"))})
		}
		if n := len(s.Steps); n > 0 && rapid.Bool().Draw(t, "pauses") {
			s.Steps[n-1].Interval, s.Steps[n-1].Pause = 0, true
		}
	}
	return s
}
