package decide

import (
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// candidate is a node with room and how much is unwanted of it, the weightiest first. What fails
// often is avoided before anything is spread; a single failure only breaks ties, so that a program
// that fails once here and there stays spread. Site is how many its site has, where that counts.
type candidate struct {
	avoid, site, own, failing int
	load                      float64
	slot                      int
}

const (
	oftenFailing = 2 // failures of a deployment on a node that count as one step of avoiding it
	mostAvoided  = 4
)

// compare is negative for the better one. It is asked thousands of times for each placement.
func (a *candidate) compare(b *candidate) int {
	if n := cmp.Compare(a.avoid, b.avoid); n != 0 {
		return n
	}
	if n := cmp.Compare(a.site, b.site); n != 0 {
		return n
	}
	if n := cmp.Compare(a.own, b.own); n != 0 {
		return n
	}
	if n := cmp.Compare(a.failing, b.failing); n != 0 {
		return n
	}
	if a.load < b.load {
		return -1
	}
	if a.load > b.load {
		return 1
	}
	return cmp.Compare(a.slot, b.slot)
}

func (w *PlaceRequest) bySites() bool {
	return w.Spec.Spread == fleet.SpreadSites || w.Spec.Spread == ""
}

func (p *Placer) candidate(i int, want *PlaceRequest) candidate {
	s := &p.slots[i]
	c := candidate{avoid: min(s.failing/oftenFailing, mostAvoided), own: s.own, failing: s.failing, load: loadOf(s, &want.Resources), slot: i}
	if want.Spec.Spread == fleet.SpreadNone {
		c.own = 0
	}
	return c
}

// selection remembers which nodes match: it stays as it is, whatever is placed.
type selection struct {
	of    PlaceRequest
	slots []int
	known bool
}

// matching are the slots of the nodes that are wanted and there, those of a site together.
func (p *Placer) matching(want *PlaceRequest) []int {
	if p.chosen.known && sameNodes(&p.chosen.of, want) {
		return p.chosen.slots
	}
	all := *want
	all.Resources, all.Ports = fleet.Resources{}, nil
	p.chosen = selection{of: all, slots: p.chosen.slots[:0], known: true}
	for _, i := range p.bySite {
		if all.obstacle(&p.rooms[i]) == fits {
			p.chosen.slots = append(p.chosen.slots, i)
		}
	}
	return p.chosen.slots
}

func sameNodes(a, b *PlaceRequest) bool {
	return a.Project == b.Project && a.Driver == b.Driver && slices.Equal(a.Spec.Sites, b.Spec.Sites) && slices.Equal(a.Spec.Pools, b.Spec.Pools) &&
		slices.Equal(a.Spec.Modules, b.Spec.Modules) && maps.Equal(a.Spec.Labels, b.Spec.Labels)
}

// loadOf is how full the node would be in what is asked for, 0 to 1; where nothing is, how many
// replicas it has.
func loadOf(s *slot, ask *fleet.Resources) float64 {
	load := -1.0
	if ask.CPU > 0 {
		load = max(load, (s.taken.CPU+ask.CPU)/s.total.CPU)
	}
	if ask.Memory > 0 {
		load = max(load, float64(s.taken.Memory+ask.Memory)/float64(s.total.Memory))
	}
	if ask.GPUs > 0 {
		load = max(load, float64(s.taken.GPUs+ask.GPUs)/float64(s.total.GPUs))
	}
	if load < 0 {
		return float64(s.replicas)
	}
	return load
}

// frontier has the nodes with room in groups, each a heap with its best node first: a group for each
// site where replicas are spread over sites, else one for all.
type frontier struct {
	placer *Placer
	want   *PlaceRequest
	groups []group
	chosen int
}

type group struct {
	site int // -1 when sites do not count
	heap []candidate
}

func (p *Placer) candidates(want *PlaceRequest) *frontier {
	f := &frontier{placer: p, want: want}
	bySites := want.bySites()
	all := slices.Grow(p.buffer[:0], len(p.slots))
	began, site := 0, -1
	for _, i := range p.matching(want) {
		if want.fullness(&p.slots[i]) != fits {
			continue
		}
		if bySites && p.slots[i].site != site {
			f.group(site, all[began:])
			began, site = len(all), p.slots[i].site
		}
		all = append(all, p.candidate(i, want))
	}
	f.group(site, all[began:])
	p.buffer = all
	return f
}

func (f *frontier) group(site int, heap []candidate) {
	if len(heap) == 0 {
		return
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		down(heap, i)
	}
	f.groups = append(f.groups, group{site, heap})
}

func down(heap []candidate, i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(heap) && heap[child].compare(&heap[least]) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		heap[i], heap[least] = heap[least], heap[i]
		i = least
	}
}

// best is the slot of the best node of all groups.
func (f *frontier) best() (int, bool) {
	f.chosen = -1
	for i := range f.groups {
		if len(f.groups[i].heap) > 0 && (f.chosen < 0 || f.before(f.groups[i], f.groups[f.chosen])) {
			f.chosen = i
		}
	}
	if f.chosen < 0 {
		return 0, false
	}
	return f.groups[f.chosen].heap[0].slot, true
}

func (f *frontier) before(a, b group) bool {
	x, y := a.heap[0], b.heap[0]
	x.site, y.site = f.own(a), f.own(b)
	return x.compare(&y) < 0
}

func (f *frontier) own(g group) int {
	if g.site < 0 {
		return 0
	}
	return f.placer.siteOwn[g.site]
}

// took puts the chosen node where it belongs now that it has one more, or away when it is full.
func (f *frontier) took(i int) {
	g := &f.groups[f.chosen]
	if f.want.fullness(&f.placer.slots[i]) == fits {
		g.heap[0] = f.placer.candidate(i, f.want)
	} else {
		g.heap[0] = g.heap[len(g.heap)-1]
		g.heap = g.heap[:len(g.heap)-1]
	}
	down(g.heap, 0)
}
