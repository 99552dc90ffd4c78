package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// explain describes what is missing for the replicas that found no room.
func (p *Placer) explain(want *PlaceRequest, placed *Placed) {
	var e explanation
	for i := range p.rooms {
		e.add(want, p.room(i))
	}
	placed.Reason, placed.Message = e.reason(want), e.message(want)
	if !e.soon {
		placed.Yield = e.yield
	}
}

// explanation counts the nodes by obstacle, and remembers where most is free.
type explanation struct {
	nodes, matching, inPool int
	count                   [noGPU + 1]int
	most                    [noGPU + 1]fleet.NodeRoom
	away                    []string
	yield                   []fleet.ReplicaID
	soon                    bool // a matching node may reconnect soon
}

func (e *explanation) add(want *PlaceRequest, room fleet.NodeRoom) {
	o := want.obstacle(&room)
	if o == otherProject { // this deployment cannot see it
		return
	}
	e.nodes++
	e.count[o]++
	if slices.ContainsFunc(want.Spec.Pools, func(p fleet.PoolName) bool { return slices.Contains(room.Pools, p) }) {
		e.inPool++
	}
	if !o.matches() {
		return
	}
	e.matching++
	e.soon = e.soon || o == isAway && room.Away == awayNotConnected && room.Unheard.After(want.LostBefore)
	for _, old := range room.Old {
		if o > isAway && want.obstacle(without(room, old)) == fits {
			e.yield = append(e.yield, old.ID)
		}
	}
	switch {
	case o == isAway && !slices.Contains(e.away, room.Away):
		e.away = append(e.away, room.Away)
	case o >= noCPU && (e.count[o] == 1 || more(o, room, e.most[o])):
		e.most[o] = room
	}
}

// awayNotConnected is the reason of a node that may reconnect by itself.
const awayNotConnected = "not_connected"

// without is a node as it is once one of its replicas has ended.
func without(room fleet.NodeRoom, old fleet.OldReplica) *fleet.NodeRoom {
	room.Taken.CPU -= old.Resources.CPU
	room.Taken.Memory -= old.Resources.Memory
	room.Taken.GPUs -= old.Resources.GPUs
	room.Ports = slices.DeleteFunc(slices.Clone(room.Ports), func(p int) bool { return slices.Contains(old.Ports, p) })
	room.PoolFull = room.PoolOver
	return &room
}

func more(o obstacle, a, b fleet.NodeRoom) bool {
	x, y := freeOf(a), freeOf(b)
	if o == noCPU {
		return x.CPU > y.CPU
	}
	if o == noMemory {
		return x.Memory > y.Memory
	}
	return x.GPUs > y.GPUs
}

func (e *explanation) reason(want *PlaceRequest) string {
	switch {
	case len(want.Spec.Pools) > 0 && e.inPool == 0:
		return PoolMisconfigured
	case e.matching == 0 && e.count[notIsolated] > 0:
		return IsolationMissing
	case e.matching == 0 && e.count[noReadiness] > 0:
		return ReadinessMissing
	case e.matching == e.count[isAway]:
		return NoNode
	case e.matching == e.count[isAway]+e.count[portTaken]:
		return PortsTaken
	}
	return NoRoom
}

func (e *explanation) message(want *PlaceRequest) string {
	switch {
	case e.nodes == 0:
		return "the region has no node of its project and no shared one"
	case len(want.Spec.Pools) > 0 && e.inPool == 0:
		return "no node is in the pools " + list(want.Spec.Pools)
	case e.matching == 0:
		return fmt.Sprintf("none of %d nodes matches: %s", e.nodes, strings.Join(e.mismatches(want), ", "))
	}
	return fmt.Sprintf("%d of %d nodes match, and none has room: %s", e.matching, e.nodes, strings.Join(e.shortages(want), ", "))
}

func (e *explanation) mismatches(want *PlaceRequest) []string {
	var out []string
	for _, m := range []struct {
		of    obstacle
		words string
	}{
		{otherSite, "not at the sites " + list(want.Spec.Sites)},
		{otherPool, "not in the pools " + list(want.Spec.Pools)},
		{otherLabels, "without the labels " + labelList(want.Spec.Labels)},
		{noModule, "without one of the modules " + list(want.Spec.Modules)},
		{noDriver, "without the driver " + string(want.Driver)},
		{notIsolated, "that run processes of their site's project only (they do not isolate projects)"},
		{noReadiness, "whose agents are of a build without readiness checks (upgrade them)"},
	} {
		if n := e.count[m.of]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, m.words))
		}
	}
	return out
}

func (e *explanation) shortages(want *PlaceRequest) []string {
	var out []string
	add := func(of obstacle, words string) {
		if n := e.count[of]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, words))
		}
	}
	add(isAway, "not available ("+strings.Join(e.away, ", ")+")")
	add(poolFull, "at the limit of their pool")
	add(portTaken, "with one of the ports "+list(want.Ports)+" in use")
	add(noCPU, fmt.Sprintf("with less than %s cores free (most is %s on %s)", cores(want.Resources.CPU), cores(freeOf(e.most[noCPU]).CPU), e.most[noCPU].Node))
	add(noMemory, fmt.Sprintf("with less than %s memory free (most is %s on %s)", size(want.Resources.Memory), size(freeOf(e.most[noMemory]).Memory), e.most[noMemory].Node))
	add(noGPU, fmt.Sprintf("with fewer than %d GPUs free (most is %d on %s)", want.Resources.GPUs, max(0, freeOf(e.most[noGPU]).GPUs), e.most[noGPU].Node))
	return out
}
