package decide_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// rank is how much is unwanted of a node, the weightiest first.
type rank struct {
	avoid, site, own, failing int
	load                      float64
	node                      fleet.NodeName
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.avoid, b.avoid), cmp.Compare(a.site, b.site), cmp.Compare(a.own, b.own),
		cmp.Compare(a.failing, b.failing), cmp.Compare(a.load, b.load), cmp.Compare(a.node, b.node))
}

func rankOf(w decide.PlaceRequest, r fleet.NodeRoom, onSite int) rank {
	out := rank{avoid: min(r.Failing/2, 4), site: onSite, own: r.Own, failing: r.Failing, load: float64(r.Replicas), node: r.Node}
	if w.Spec.Spread != fleet.SpreadSites && w.Spec.Spread != "" {
		out.site = 0
	}
	if w.Spec.Spread == fleet.SpreadNone {
		out.own = 0
	}
	var shares []float64
	if w.Resources.CPU > 0 {
		shares = append(shares, (r.Taken.CPU+w.Resources.CPU)/r.Total.CPU)
	}
	if w.Resources.Memory > 0 {
		shares = append(shares, float64(r.Taken.Memory+w.Resources.Memory)/float64(r.Total.Memory))
	}
	if w.Resources.GPUs > 0 {
		shares = append(shares, float64(r.Taken.GPUs+w.Resources.GPUs)/float64(r.Total.GPUs))
	}
	if len(shares) > 0 {
		out.load = slices.Max(shares)
	}
	return out
}

// placePlainly looks at every node for each replica, and takes room on the best one.
func placePlainly(w decide.PlaceRequest, rooms []fleet.NodeRoom) []fleet.NodeName {
	var nodes []fleet.NodeName
	for range w.Count {
		best, first := -1, rank{}
		for i, r := range rooms {
			if reason, _ := decide.Refused(w, r); reason != "" {
				continue
			}
			onSite := 0
			for _, other := range rooms {
				if other.Site == r.Site {
					onSite += other.Own
				}
			}
			if got := rankOf(w, r, onSite); best < 0 || got.compare(first) < 0 {
				best, first = i, got
			}
		}
		if best < 0 {
			break
		}
		r := &rooms[best]
		r.Taken.CPU += w.Resources.CPU
		r.Taken.Memory += w.Resources.Memory
		r.Taken.GPUs += w.Resources.GPUs
		r.Ports = slices.Concat(r.Ports, w.Ports)
		r.Own++
		r.Replicas++
		nodes = append(nodes, r.Node)
	}
	return nodes
}

// S94: many at once go where looking at every node for each of them would put them, and so does one by one.
func TestPlaceTakesTheBest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := func(most int, what string) int { return rapid.IntRange(0, most).Draw(t, what) }
		var rooms []fleet.NodeRoom
		for i := range some(14, "nodes") {
			r := room(fmt.Sprintf("n%02d", i), fmt.Sprint("s", some(3, "site")), own(some(2, "own")))
			r.Failing, r.Replicas = some(12, "failing")*some(1, "fails"), r.Replicas+some(2, "others")
			r.Total.CPU, r.Total.Memory, r.Total.GPUs = float64(4+4*some(2, "cores")), int64(4+4*some(2, "memory")), 2+some(4, "GPUs")
			r.Taken.CPU, r.Taken.Memory, r.Taken.GPUs = float64(some(4, "taken")), int64(some(4, "used")), some(2, "busy")
			if some(5, "port") == 0 {
				r.Ports = []int{80}
			}
			rooms = append(rooms, r)
		}
		w := want(1+some(20, "count"), spread(rapid.SampledFrom([]fleet.Spread{"", fleet.SpreadSites, fleet.SpreadNodes, fleet.SpreadNone}).Draw(t, "spread")))
		w.Resources = fleet.Resources{CPU: float64(some(1, "ask")), Memory: int64(some(1, "bytes")), GPUs: some(1, "cards")}
		if some(3, "fixed") == 0 {
			w.Ports = []int{80}
		}
		plainly := placePlainly(w, slices.Clone(rooms))
		require.Equal(t, plainly, decide.Place(w, rooms).Nodes)

		placer, one := decide.NewPlacer(rooms), w
		one.Count = 1
		var nodes []fleet.NodeName
		for range w.Count {
			nodes = append(nodes, placer.Place(one).Nodes...)
		}
		require.Equal(t, plainly, nodes, "one by one")
	})
}

// A placer keeps which nodes match from one request to the next, but not for another request.
func TestPlacerLooksAgain(t *testing.T) {
	t.Parallel()
	only := room("a1", "a", of("red"), inPool("p"), label("disk", "ssd"), func(r *fleet.NodeRoom) { r.Modules = []string{"m.n.o"} })
	for _, c := range []struct {
		name string
		is   func(*decide.PlaceRequest)
	}{
		{"another project's", forProject("blue")},
		{"another driver", func(w *decide.PlaceRequest) { w.Driver = fleet.DriverDocker }},
		{"another site", func(w *decide.PlaceRequest) { w.Spec.Sites = []fleet.SiteName{"b"} }},
		{"another pool", pools("q")},
		{"another module", func(w *decide.PlaceRequest) { w.Spec.Modules = []string{"m.n.p"} }},
		{"other labels", func(w *decide.PlaceRequest) { w.Spec.Labels = map[string]string{"disk": "hdd"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := decide.NewPlacer([]fleet.NodeRoom{only})
			require.Len(t, p.Place(want(1, forProject("red"))).Nodes, 1)
			require.Empty(t, p.Place(want(1, forProject("red"), c.is)).Nodes)
			require.Len(t, p.Place(want(1, forProject("red"))).Nodes, 1)
		})
	}
}

// S95, X8: what is missing is said by numbers that are so, and names where there is most left.
func TestPlaceExplains(t *testing.T) {
	t.Parallel()
	with := func(cpu float64, memory int64, gpus int) func(*fleet.NodeRoom) {
		return func(r *fleet.NodeRoom) { r.Total = fleet.Resources{CPU: cpu, Memory: memory, GPUs: gpus} }
	}
	memory := func(n int64) func(*decide.PlaceRequest) {
		return func(w *decide.PlaceRequest) { w.Resources.Memory = n }
	}
	gpus := func(n int) func(*decide.PlaceRequest) {
		return func(w *decide.PlaceRequest) { w.Resources.GPUs = n }
	}
	for _, c := range []struct {
		name   string
		rooms  []fleet.NodeRoom
		want   decide.PlaceRequest
		reason string
		says   string
	}{
		{
			"the most cores, wherever they come",
			[]fleet.NodeRoom{room("a1", "a", with(1, 0, 0)), room("a2", "a", with(3, 0, 0)), room("a3", "a", with(2, 0, 0))},
			want(1, cpu(5)), decide.NoRoom, "3 of 3 nodes match, and none has room: 3 with less than 5 cores free (most is 3 on a2)",
		},
		{
			"the first of equals",
			[]fleet.NodeRoom{room("a1", "a"), room("a2", "a")},
			want(1, cpu(5)), decide.NoRoom, "2 of 2 nodes match, and none has room: 2 with less than 5 cores free (most is 4 on a1)",
		},
		{
			"the most memory",
			[]fleet.NodeRoom{room("a1", "a", with(9, 1<<10, 0)), room("a2", "a", with(1, 3<<20, 0)), room("a3", "a", with(5, 1023, 0))},
			want(1, memory(1<<30)), decide.NoRoom, "3 of 3 nodes match, and none has room: 3 with less than 1Gi memory free (most is 3Mi on a2)",
		},
		{
			"the most GPUs",
			[]fleet.NodeRoom{room("a1", "a", with(9, 9, 1)), room("a2", "a", with(1, 1, 3)), room("a3", "a", with(5, 5, 2))},
			want(1, gpus(4)), decide.NoRoom, "3 of 3 nodes match, and none has room: 3 with fewer than 4 GPUs free (most is 3 on a2)",
		},
		{
			"fewer than none are none",
			[]fleet.NodeRoom{room("a1", "a", func(r *fleet.NodeRoom) { r.Taken = fleet.Resources{CPU: 5, Memory: 9 << 30, GPUs: 1} })},
			want(1, gpus(1)), decide.NoRoom, "1 of 1 nodes match, and none has room: 1 with fewer than 1 GPUs free (most is 0 on a1)",
		},
		{
			"small numbers of bytes",
			[]fleet.NodeRoom{room("a1", "a", with(9, 1023, 0)), room("a2", "a", with(9, 500, 0))},
			want(1, memory(1<<10)), decide.NoRoom, "2 of 2 nodes match, and none has room: 2 with less than 1Ki memory free (most is 1023 bytes on a1)",
		},
		{
			"each by what it lacks",
			[]fleet.NodeRoom{
				room("a1", "a", away("cordoned")), room("a2", "a", away("cordoned")), room("a3", "a", port(80)), room("a4", "a", taken(4)), room("b1", "b"),
			},
			want(1, fixed(80), cpu(1), func(w *decide.PlaceRequest) { w.Spec.Sites = []fleet.SiteName{"a"} }), decide.NoRoom,
			"4 of 5 nodes match, and none has room: 2 not available (cordoned), 1 with one of the ports 80 in use, 1 with less than 1 cores free (most is 0 on a4)",
		},
		{
			"ports, beside who is away",
			[]fleet.NodeRoom{room("a1", "a", away("cordoned")), room("a3", "a", port(80))},
			want(1, fixed(80)), decide.PortsTaken, "2 of 2 nodes match, and none has room: 1 not available (cordoned), 1 with one of the ports 80 in use",
		},
		{
			"what does not match",
			[]fleet.NodeRoom{room("b1", "b", of("red")), room("a1", "a", of("default")), room("a2", "a", of("blue"))},
			want(1, forProject("red"), func(w *decide.PlaceRequest) {
				w.Spec.Sites, w.Spec.Modules = []fleet.SiteName{"a"}, []string{"m"}
			}), decide.NoNode, "none of 2 nodes matches: 1 not at the sites a, 1 without one of the modules m",
		},
		{
			"in the pool, without the label",
			[]fleet.NodeRoom{room("a1", "a", inPool("p")), room("a2", "a")},
			want(1, pools("p"), func(w *decide.PlaceRequest) { w.Spec.Labels = map[string]string{"disk": "ssd"} }), decide.NoNode,
			"none of 2 nodes matches: 1 not in the pools p, 1 without the labels disk=ssd",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := decide.Place(c.want, c.rooms)
			require.Equal(t, c.says, got.Message)
			require.Equal(t, c.reason, got.Reason)
			require.Equal(t, c.want.Count, got.Missing)
		})
	}
}

// A node that may be back soon is waited for: the one that has been away for just so long is not.
func TestPlaceWaitsForWhoMayBeBack(t *testing.T) {
	t.Parallel()
	w := want(1, fixed(80))
	w.LostBefore = noon
	held := room("a1", "a", old("a", 1, 80))
	for ago, waits := range map[time.Duration]bool{-time.Nanosecond: true, 0: false, time.Nanosecond: false} {
		gone := room("b1", "b", func(r *fleet.NodeRoom) { r.Away, r.Unheard = "not_connected", noon.Add(-ago) })
		require.Equal(t, waits, decide.Place(w, []fleet.NodeRoom{held, gone}).Yield == nil, ago)
	}
	memory := want(1, func(w *decide.PlaceRequest) { w.Resources = fleet.Resources{CPU: 1, Memory: 2, GPUs: 1} })
	full := func(given fleet.Resources) fleet.NodeRoom {
		return room("a1", "a", func(r *fleet.NodeRoom) {
			r.Total = fleet.Resources{CPU: 2, Memory: 3, GPUs: 1}
			r.Taken, r.Old = r.Total, []fleet.OldReplica{{ID: "a", Resources: given}}
		})
	}
	for given, yields := range map[fleet.Resources]bool{
		{CPU: 1, Memory: 2, GPUs: 1}: true, {CPU: 0.5, Memory: 2, GPUs: 1}: false, {CPU: 1, Memory: 1, GPUs: 1}: false, {CPU: 1, Memory: 2}: false,
	} {
		require.Equal(t, yields, decide.Place(memory, []fleet.NodeRoom{full(given)}).Yield != nil, given)
	}
}

// S94, S95: the edges of what fits, and of what is said of it.
func TestPlaceEdges(t *testing.T) {
	t.Parallel()
	ask := func(r fleet.Resources) decide.PlaceRequest {
		return want(1, func(w *decide.PlaceRequest) { w.Resources = r })
	}
	offers := func(node string, total, used fleet.Resources) fleet.NodeRoom {
		return room(node, "a", func(r *fleet.NodeRoom) { r.Total, r.Taken = total, used })
	}
	refused := func(w decide.PlaceRequest, r fleet.NodeRoom) string {
		_, message := decide.Refused(w, r)
		return message
	}
	require.Empty(t, refused(ask(fleet.Resources{CPU: 1e-6}), offers("n", fleet.Resources{}, fleet.Resources{})), "the error of adding fractions")
	require.Empty(t, refused(ask(fleet.Resources{}), offers("n", fleet.Resources{GPUs: 1}, fleet.Resources{GPUs: 2})), "who asks for none needs none")
	require.Contains(t, refused(ask(fleet.Resources{Memory: 3 << 30}), offers("n", fleet.Resources{Memory: 4 << 30}, fleet.Resources{Memory: 2 << 30})), "2Gi of 4Gi memory is free, 3Gi is requested")

	memory := []fleet.NodeRoom{offers("a1", fleet.Resources{Memory: 2 << 30}, fleet.Resources{}), offers("a2", fleet.Resources{Memory: 2 << 30}, fleet.Resources{})}
	require.Contains(t, decide.Place(ask(fleet.Resources{Memory: 4 << 30}), memory).Message, "most is 2Gi on a1")
	cards := []fleet.NodeRoom{offers("a1", fleet.Resources{GPUs: 1}, fleet.Resources{}), offers("a2", fleet.Resources{GPUs: 1}, fleet.Resources{})}
	require.Contains(t, decide.Place(ask(fleet.Resources{GPUs: 2}), cards).Message, "most is 1 on a1")

	ssd := func(w *decide.PlaceRequest) { w.Spec.Labels = map[string]string{"disk": "ssd"} }
	spread := []fleet.NodeRoom{room("a1", "a", own(2)), room("a2", "a", label("disk", "ssd")), room("b1", "b", own(1), label("disk", "ssd")), room("b2", "b", label("disk", "ssd"))}
	require.Equal(t, []fleet.NodeName{"a2"}, decide.Place(want(1, ssd), spread).Nodes, "what leaves its site does not count there")

	named := func(names ...string) string {
		return decide.Place(want(1, func(w *decide.PlaceRequest) {
			for _, name := range names {
				w.Spec.Pools = append(w.Spec.Pools, fleet.PoolName(name))
			}
		}), []fleet.NodeRoom{room("a1", "a")}).Message
	}
	x := strings.Repeat("x", 98)
	require.True(t, strings.HasSuffix(named(x, x+"yz"), "yz"), "two hundred bytes are told")
	require.True(t, strings.HasSuffix(named(x, x+"xyz"), "x … and 1 more"))
	require.True(t, strings.HasSuffix(named(x+x+"abcd"), "abcd"))
	require.True(t, strings.HasSuffix(named(x+x+"abcü"), "abc…"), "not in the middle of a character")
}
