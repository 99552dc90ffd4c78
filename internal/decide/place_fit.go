package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// obstacle is why a node does not take a replica, in the order of checks: first what does not match, then what is
// not available, then what is full.
type obstacle int

const (
	fits obstacle = iota
	otherProject
	otherSite
	otherPool
	otherLabels
	noModule
	noDriver
	notIsolated
	noReadiness
	isAway
	poolFull
	portTaken
	noCPU
	noMemory
	noGPU
)

// matches reports whether the node matches the request, with or without room.
func (o obstacle) matches() bool { return o == fits || o >= isAway }

// obstacleWords are the stable reasons, by obstacle.
var obstacleWords = [...]string{
	"", "other_project", "other_site", "other_pool", "other_labels", "no_module", "no_driver", IsolationMissing, ReadinessMissing, "", "pool_full", PortsTaken, "no_cpu", "no_memory", "no_gpu",
}

// Refused is why a node does not take one more replica: a stable word and a sentence, both empty if it would.
func Refused(want PlaceRequest, room fleet.NodeRoom) (reason, message string) {
	o := want.obstacle(&room)
	if o == isAway {
		return room.Away, "nothing is placed there now: " + room.Away
	}
	return obstacleWords[o], want.describe(o, room)
}

func (w *PlaceRequest) obstacle(room *fleet.NodeRoom) obstacle {
	if o := w.mismatch(room); o != fits {
		return o
	}
	if room.Away != "" {
		return isAway
	}
	if len(w.Spec.Pools) > 0 && !w.poolHasRoom(room) {
		return poolFull
	}
	s := slotOf(room)
	return w.fullness(&s)
}

// fullness checks what changes as replicas are placed.
func (w *PlaceRequest) fullness(s *slot) obstacle {
	for _, p := range w.Ports {
		if slices.Contains(s.ports, p) {
			return portTaken
		}
	}
	return w.shortage(s)
}

func (w *PlaceRequest) mismatch(room *fleet.NodeRoom) obstacle {
	switch {
	case !w.Project.Uses(room.Project):
		return otherProject
	case len(w.Spec.Sites) > 0 && !slices.Contains(w.Spec.Sites, room.Site):
		return otherSite
	case len(w.Spec.Pools) > 0 && !slices.ContainsFunc(w.Spec.Pools, func(p fleet.PoolName) bool { return slices.Contains(room.Pools, p) }):
		return otherPool
	case !hasLabels(room.Labels, w.Spec.Labels):
		return otherLabels
	case slices.ContainsFunc(w.Spec.Modules, func(m string) bool { return !slices.Contains(room.Modules, m) }):
		return noModule
	case w.Driver != "" && !slices.Contains(room.Drivers, w.Driver):
		return noDriver
	case w.Driver == fleet.DriverProcess && !room.Separation.Admits(w.Project, room.Project):
		return notIsolated
	case w.Readiness && !room.Readiness:
		return noReadiness
	}
	return fits
}

// hasLabels ranges over a map; the result does not depend on the order.
func hasLabels(has, want map[string]string) bool {
	for name, value := range want {
		if got, ok := has[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// poolHasRoom reports whether one of the named pools contains the node and has room there.
func (w *PlaceRequest) poolHasRoom(room *fleet.NodeRoom) bool {
	return slices.ContainsFunc(w.Spec.Pools, func(p fleet.PoolName) bool {
		return slices.Contains(room.Pools, p) && !slices.Contains(room.PoolFull, p)
	})
}

// cpuGrain tolerates rounding errors in sums of decimal fractions.
const cpuGrain = 1e-6

func (w *PlaceRequest) shortage(s *slot) obstacle {
	switch ask := &w.Resources; {
	case ask.CPU > 0 && s.taken.CPU+ask.CPU > s.total.CPU+cpuGrain:
		return noCPU
	case ask.Memory > 0 && ask.Memory > s.total.Memory-s.taken.Memory:
		return noMemory
	case ask.GPUs > 0 && s.taken.GPUs+ask.GPUs > s.total.GPUs:
		return noGPU
	}
	return fits
}

func freeOf(room fleet.NodeRoom) fleet.Resources {
	return fleet.Resources{
		CPU: room.Total.CPU - room.Taken.CPU, Memory: room.Total.Memory - room.Taken.Memory, GPUs: room.Total.GPUs - room.Taken.GPUs,
	}
}

func (w *PlaceRequest) describe(o obstacle, room fleet.NodeRoom) string {
	free := freeOf(room)
	switch o {
	case fits, isAway:
		return ""
	case otherProject:
		return "its site belongs to another project"
	case otherSite:
		return "it is at site " + string(room.Site)
	case otherPool:
		return "it is not in the pools " + list(w.Spec.Pools)
	case otherLabels:
		return "it lacks the labels " + labelList(w.Spec.Labels)
	case noModule:
		return "it does not offer all of the modules " + list(w.Spec.Modules)
	case noDriver:
		return fmt.Sprintf("it has no driver %s", w.Driver)
	case notIsolated:
		return "it runs processes of its site's project only, because it does not isolate projects"
	case noReadiness:
		return "its agent is of a build without readiness checks; upgrade it"
	case poolFull:
		return "its pool is at its limit there"
	case portTaken:
		return fmt.Sprintf("another replica uses one of the ports %s", list(w.Ports))
	case noCPU:
		return fmt.Sprintf("%s of %s cores are free, %s are requested", cores(free.CPU), cores(room.Total.CPU), cores(w.Resources.CPU))
	case noMemory:
		return fmt.Sprintf("%s of %s memory is free, %s is requested", size(free.Memory), size(room.Total.Memory), size(w.Resources.Memory))
	case noGPU:
		return fmt.Sprintf("%d of %d GPUs are free, %d are requested", free.GPUs, room.Total.GPUs, w.Resources.GPUs)
	}
	return ""
}

func cores(n float64) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", max(0, n)), "0"), ".")
}

func size(n int64) string {
	n = max(0, n)
	for _, unit := range []struct {
		name string
		of   int64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= unit.of {
			return cores(float64(n)/float64(unit.of)) + unit.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

func byName(rooms []fleet.NodeRoom) []fleet.NodeRoom {
	rooms = slices.Clone(rooms)
	slices.SortFunc(rooms, func(a, b fleet.NodeRoom) int { return cmp.Compare(a.Node, b.Node) })
	return rooms
}
