package decide

import (
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// OwedStops are the deletes and disables that a node must apply before it starts anything as the active. For each
// name it is the newest in force that is newer than what the node holds.
func OwedStops(seen []fleet.StopSeen, held map[fleet.InstanceName]fleet.Version) []fleet.InstanceRevision {
	newest := map[fleet.InstanceName]fleet.InstanceRevision{}
	for _, s := range seen {
		version := s.Revision.Version
		if inForce(s) && version.Newer(held[s.Instance]) && version.Newer(newest[s.Instance].Revision.Version) {
			newest[s.Instance] = s.InstanceRevision
		}
	}
	out := make([]fleet.InstanceRevision, 0, len(newest))
	for _, name := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, newest[name])
	}
	return out
}

// inForce reports whether a stop is deployed or under way: requested and not ended, or owed to a node. One that
// only waits for its window is not.
func inForce(s fleet.StopSeen) bool {
	return s.Deployed || !s.Staged && (s.Awaited || s.Owed)
}
