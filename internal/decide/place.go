package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PlaceRequest asks for room for Count identical replicas of one deployment.
type PlaceRequest struct {
	Count     int                 `json:"count"`
	Project   fleet.ProjectName   `json:"project,omitempty"` // project of the deployment
	Spec      fleet.PlacementSpec `json:"spec"`
	Resources fleet.Resources     `json:"resources"`
	Driver    fleet.Driver        `json:"driver"`
	// Readiness asks for a node that runs readiness checks.
	Readiness bool `json:"readiness,omitempty"`
	// Ports are its fixed ports; a node has each only once.
	Ports []int `json:"ports,omitempty"`
	// LostBefore separates nodes that may reconnect soon from those disconnected for too long.
	LostBefore time.Time `json:"lostBefore,omitzero"`
}

// PlacementOf asks for a place for one replica of a deployment.
func PlacementOf(project fleet.ProjectName, spec fleet.PlacementSpec, d fleet.Definition) PlaceRequest {
	r := PlaceRequest{Count: 1, Project: project, Spec: spec, Resources: d.Resources, Driver: d.RunBy(), Readiness: d.ChecksReadiness()}
	for _, p := range d.Ports {
		if p.Port > 0 {
			r.Ports = append(r.Ports, p.Port)
		}
	}
	return r
}

// Placed is the node of each replica, and how many found no room. In that case Reason is a stable word and Message
// explains what is missing. Yield lists replicas of an earlier process version, each of which frees room for one
// when it ends. It is empty while a matching node may reconnect soon.
type Placed struct {
	Nodes   []fleet.NodeName  `json:"nodes,omitempty"`
	Missing int               `json:"missing,omitempty"`
	Reason  string            `json:"reason,omitempty"`
	Message string            `json:"message,omitempty"`
	Yield   []fleet.ReplicaID `json:"yield,omitempty"`
}

// Why there is no room.
const (
	NoRoom            = "no_room"            // nodes that match are full
	NoNode            = "no_node"            // no node matches, or none that does is available
	PoolMisconfigured = "pool_misconfigured" // no node is in the named pools
	PortsTaken        = "ports_taken"        // matching nodes have one of its fixed ports in use
	// IsolationMissing: nodes match, except that they do not isolate its project's processes from others.
	IsolationMissing = string(fleet.IsolationMissing)
	// ReadinessMissing: nodes match, except that their agents are of a build without readiness checks.
	ReadinessMissing = "no_readiness"
)

var noRoomReasons = []string{NoRoom, NoNode, PoolMisconfigured, PortsTaken, IsolationMissing, ReadinessMissing}

// Place finds nodes for replicas. It avoids, in this order: nodes where this deployment recently failed more than
// once, sites and nodes that have more of its replicas than others (as Spread requires), nodes where it failed
// once, and full nodes.
func Place(want PlaceRequest, rooms []fleet.NodeRoom) Placed {
	p := NewPlacer(rooms)
	p.leave(&want)
	return p.Place(want)
}

// NewPlacer takes the nodes in any order and tracks what it places in its own copy.
func NewPlacer(rooms []fleet.NodeRoom) *Placer {
	p := &Placer{rooms: byName(rooms), slots: make([]slot, len(rooms)), sites: map[fleet.SiteName]int{}}
	for i := range p.rooms {
		p.add(i)
	}
	p.bySite = make([]int, len(p.slots))
	for i := range p.bySite {
		p.bySite[i] = i
	}
	slices.SortStableFunc(p.bySite, func(a, b int) int { return cmp.Compare(p.slots[a].site, p.slots[b].site) })
	return p
}

// Placer places one deployment after the other without reading the region again. It is not safe for concurrent use.
type Placer struct {
	rooms   []fleet.NodeRoom
	slots   []slot                 // of the rooms, in the same order
	sites   map[fleet.SiteName]int // numbers, in the order of the slots
	siteOwn []int                  // replicas of the deployment, by a site's number
	bySite  []int                  // the slots, those of a site together
	chosen  selection
	buffer  []candidate
}

// slot is the part of a node that each placement reads, kept compact.
type slot struct {
	total, taken                 fleet.Resources
	ports                        []int
	site, own, failing, replicas int
}

func slotOf(r *fleet.NodeRoom) slot {
	return slot{total: r.Total, taken: r.Taken, ports: r.Ports, own: r.Own, failing: r.Failing, replicas: r.Replicas}
}

func (p *Placer) add(i int) {
	r := &p.rooms[i]
	n, known := p.sites[r.Site]
	if !known {
		n = len(p.siteOwn)
		p.sites[r.Site] = n
		p.siteOwn = append(p.siteOwn, 0)
	}
	p.siteOwn[n] += r.Own
	p.slots[i] = slotOf(r)
	p.slots[i].site = n
}

// leave excludes replicas on nodes that no longer match from how the others are spread.
func (p *Placer) leave(want *PlaceRequest) {
	for i := range p.slots {
		if s := &p.slots[i]; s.own > 0 && want.mismatch(&p.rooms[i]) != fits {
			p.siteOwn[s.site] -= s.own
			s.own = 0
		}
	}
}

// room is a node including what was placed there.
func (p *Placer) room(i int) fleet.NodeRoom {
	r, s := p.rooms[i], &p.slots[i]
	r.Taken, r.Ports, r.Own, r.Failing, r.Replicas = s.taken, s.ports, s.own, s.failing, s.replicas
	return r
}

// Another starts the next deployment, which has no replicas on any node yet.
func (p *Placer) Another() {
	for i := range p.slots {
		p.slots[i].own, p.slots[i].failing, p.rooms[i].Old = 0, 0, nil
	}
	clear(p.siteOwn)
}

// Place reserves room for the request and returns the nodes.
func (p *Placer) Place(want PlaceRequest) Placed {
	var placed Placed
	if want.Count == 1 {
		placed.Nodes = p.placeOne(&want)
	} else {
		placed.Nodes = p.placeMany(&want)
	}
	if placed.Missing = want.Count - len(placed.Nodes); placed.Missing > 0 {
		p.explain(&want, &placed)
	}
	return placed
}

// placeOne visits each node once.
func (p *Placer) placeOne(want *PlaceRequest) []fleet.NodeName {
	var best candidate
	found, bySites := false, want.bySites()
	for _, i := range p.matching(want) {
		s := &p.slots[i]
		if want.fullness(s) != fits {
			continue
		}
		c := p.candidate(i, want)
		if bySites {
			c.site = p.siteOwn[s.site]
		}
		if !found || c.compare(&best) < 0 {
			best, found = c, true
		}
	}
	if !found {
		return nil
	}
	p.reserve(best.slot, want)
	return []fleet.NodeName{p.rooms[best.slot].Node}
}

func (p *Placer) placeMany(want *PlaceRequest) []fleet.NodeName {
	var nodes []fleet.NodeName
	open := p.candidates(want)
	for range want.Count {
		i, found := open.best()
		if !found {
			break
		}
		p.reserve(i, want)
		nodes = append(nodes, p.rooms[i].Node)
		open.took(i)
	}
	return nodes
}

func (p *Placer) reserve(i int, want *PlaceRequest) {
	s := &p.slots[i]
	s.taken.CPU += want.Resources.CPU
	s.taken.Memory += want.Resources.Memory
	s.taken.GPUs += want.Resources.GPUs
	s.ports = append(s.ports[:len(s.ports):len(s.ports)], want.Ports...)
	s.replicas++
	s.own++
	p.siteOwn[s.site]++
}
