package decide

import (
	"cmp"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// candidate is a node with room and its penalties, heaviest first. Frequent failures outweigh the spread; a single
// failure only breaks ties, so that a program with occasional failures stays spread. Site counts the replicas at
// the node's site, where that matters.
type candidate struct {
	avoid, site, own, failing int
	load                      float64
	slot                      int
}

const (
	oftenFailing = 2 // failures of a deployment on a node per step of avoidance
	mostAvoided  = 4
)

// compare is negative for the better candidate. It runs thousands of times for each placement.
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

// selection caches which nodes match; placing replicas does not change it.
type selection struct {
	of    PlaceRequest
	slots []int
	known bool
}

// matching are the slots of matching, available nodes, grouped by site.
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

// loadOf is how full the node would be in the requested resources, 0 to 1; without any, its number of replicas.
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

// frontier groups the nodes with room, each group a heap with the best node first. There is one group per site
// where replicas are spread over sites, else one for all.
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

// best is the slot of the best node over all groups.
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

// took reorders the chosen node after it got one more replica, or removes it when it is full.
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
