package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// PlaceRequest is what wants room: Count replicas of one deployment, all alike.
type PlaceRequest struct {
	Count     int                 `json:"count"`
	Project   fleet.ProjectName   `json:"project,omitempty"` // whose deployment it is
	Spec      fleet.PlacementSpec `json:"spec"`
	Resources fleet.Resources     `json:"resources"`
	Driver    fleet.Driver        `json:"driver"`
	// Ports are its fixed ports, of which a node has each once.
	Ports []int `json:"ports,omitempty"`
	// LostBefore parts nodes that may be back soon from those that have been away for too long.
	LostBefore time.Time `json:"lostBefore,omitzero"`
}

// Placed is where they go, one entry for each, and how many found no room. Then Reason is a stable
// word and Message says what is missing. Yield are replicas of an earlier process version, each of which
// leaves room for one when it ends; it is empty while a node that may be back soon might do instead.
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
	NoNode            = "no_node"            // no node matches, or none of them is there
	PoolMisconfigured = "pool_misconfigured" // no node is in the pools that are named
	PortsTaken        = "ports_taken"        // nodes that match have one of its fixed ports in use
	// IsolationMissing: nodes match but for keeping its project's processes from others.
	IsolationMissing = string(fleet.IsolationMissing)
)

var noRoomReasons = []string{NoRoom, NoNode, PoolMisconfigured, PortsTaken, IsolationMissing}

// Place finds nodes for replicas, with the least of what is unwanted first: a node where this
// deployment failed lately more than once, a site and a node that have more of it than others (as
// Spread says), one where it failed once, the fullest.
func Place(want PlaceRequest, rooms []fleet.NodeRoom) Placed {
	p := NewPlacer(rooms)
	p.leave(&want)
	return p.Place(want)
}

// NewPlacer takes the nodes in any order; what is placed is taken from its own copy.
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

// Placer places for one deployment after the other, without looking at the region in between. It
// is not safe for use by several goroutines.
type Placer struct {
	rooms   []fleet.NodeRoom
	slots   []slot                 // of the rooms, in the same order
	sites   map[fleet.SiteName]int // numbers, in the order of the slots
	siteOwn []int                  // replicas of the deployment, by a site's number
	bySite  []int                  // the slots, those of a site together
	chosen  selection
	buffer  []candidate
}

// slot is what each placement looks at of a node, close together.
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

// leave takes what runs where nothing is wanted any more out of how the others are spread.
func (p *Placer) leave(want *PlaceRequest) {
	for i := range p.slots {
		if s := &p.slots[i]; s.own > 0 && want.mismatch(&p.rooms[i]) != fits {
			p.siteOwn[s.site] -= s.own
			s.own = 0
		}
	}
}

// room is a node as it is now that so much was placed there.
func (p *Placer) room(i int) fleet.NodeRoom {
	r, s := p.rooms[i], &p.slots[i]
	r.Taken, r.Ports, r.Own, r.Failing, r.Replicas = s.taken, s.ports, s.own, s.failing, s.replicas
	return r
}

// Another goes on with a deployment that has nothing on any node yet.
func (p *Placer) Another() {
	for i := range p.slots {
		p.slots[i].own, p.slots[i].failing, p.rooms[i].Old = 0, 0, nil
	}
	clear(p.siteOwn)
}

// Place takes room for what is wanted and answers where.
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

// placeOne looks at each node once.
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
	p.take(best.slot, want)
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
		p.take(i, want)
		nodes = append(nodes, p.rooms[i].Node)
		open.took(i)
	}
	return nodes
}

func (p *Placer) take(i int, want *PlaceRequest) {
	s := &p.slots[i]
	s.taken.CPU += want.Resources.CPU
	s.taken.Memory += want.Resources.Memory
	s.taken.GPUs += want.Resources.GPUs
	s.ports = append(s.ports[:len(s.ports):len(s.ports)], want.Ports...)
	s.replicas++
	s.own++
	p.siteOwn[s.site]++
}
