package decide

import (
	"math"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Waves returns the wave (from 1) of each member, ordered by site and name, and the number of waves. A wave takes
// members of its sites until its share of them is in it or an earlier one. The rest forms a last wave, and empty
// waves do not count.
func Waves(spec fleet.FleetSpec, members []fleet.FleetMember) (waves []int, count int) {
	waves = make([]int, len(members))
	for _, w := range spec.Waves {
		if fillWave(w, members, waves, count+1) {
			count++
		}
	}
	if slices.Contains(waves, 0) {
		count++
		for i := range waves {
			if waves[i] == 0 {
				waves[i] = count
			}
		}
	}
	return waves, count
}

// fillWave adds members to a wave, and reports whether it added any.
func fillWave(w fleet.FleetWave, members []fleet.FleetMember, waves []int, number int) bool {
	sites := map[fleet.SiteName]bool{}
	for _, s := range w.Sites {
		sites[s] = true
	}
	var scope []int
	missing := 0
	for i, m := range members {
		if len(sites) > 0 && !sites[m.Site] {
			continue
		}
		scope = append(scope, i)
		if waves[i] != 0 {
			missing--
		}
	}
	missing += shareOf(w.Percent, len(scope))
	took := false
	for _, i := range scope {
		if missing > 0 && waves[i] == 0 {
			waves[i], took = number, true
			missing--
		}
	}
	return took
}

// shareOf is a percentage of n, rounded up, at least 1. Float errors do not round up an exact result.
func shareOf(percent float64, n int) int {
	share := int(math.Ceil(percent*float64(n)/100 - 1e-6))
	return min(max(share, 1), n)
}
