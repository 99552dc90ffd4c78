package decide_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// room is a node of a site with 4 cores, 8 GiB and no GPU, which runs processes and keeps projects apart.
func room(node, site string, change ...func(*fleet.NodeRoom)) fleet.NodeRoom {
	r := fleet.NodeRoom{
		Node: fleet.NodeName(node), Site: fleet.SiteName(site), Drivers: []fleet.Driver{fleet.DriverProcess},
		Total: fleet.Resources{CPU: 4, Memory: 8 << 30}, Separation: fleet.SeparationUID,
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func own(n int) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Own, r.Replicas = n, r.Replicas+n }
}
func failing(n int) func(*fleet.NodeRoom) { return func(r *fleet.NodeRoom) { r.Failing = n } }
func away(s string) func(*fleet.NodeRoom) { return func(r *fleet.NodeRoom) { r.Away = s } }
func taken(cpu float64) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Taken.CPU, r.Replicas = cpu, r.Replicas+1 }
}

func inPool(p fleet.PoolName) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Pools = append(r.Pools, p) }
}

func full(p fleet.PoolName) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.PoolFull = append(r.PoolFull, p) }
}

func label(name, value string) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Labels = map[string]string{name: value} }
}

func port(n int) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Ports = append(r.Ports, n) }
}

// old has a replica of an earlier version with so many cores.
func old(id fleet.ReplicaID, cpu float64, ports ...int) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) {
		r.Taken.CPU, r.Ports = r.Taken.CPU+cpu, append(r.Ports, ports...)
		r.Old = append(r.Old, fleet.OldReplica{ID: id, Resources: fleet.Resources{CPU: cpu}, Ports: ports})
	}
}

// want is a request for processes that ask for nothing, spread over sites.
func want(count int, change ...func(*decide.PlaceRequest)) decide.PlaceRequest {
	w := decide.PlaceRequest{Count: count, Driver: fleet.DriverProcess, Spec: fleet.PlacementSpec{Spread: fleet.SpreadSites}}
	for _, c := range change {
		c(&w)
	}
	return w
}

func spread(s fleet.Spread) func(*decide.PlaceRequest) {
	return func(w *decide.PlaceRequest) { w.Spec.Spread = s }
}

func cpu(n float64) func(*decide.PlaceRequest) {
	return func(w *decide.PlaceRequest) { w.Resources.CPU = n }
}

func fixed(n int) func(*decide.PlaceRequest) {
	return func(w *decide.PlaceRequest) { w.Ports = []int{n} }
}

func pools(p ...fleet.PoolName) func(*decide.PlaceRequest) {
	return func(w *decide.PlaceRequest) { w.Spec.Pools = p }
}

func of(p fleet.ProjectName) func(*fleet.NodeRoom) {
	return func(r *fleet.NodeRoom) { r.Project = p }
}

// mixed is a node that keeps no projects apart.
func mixed(r *fleet.NodeRoom) { r.Separation = fleet.SeparationNone }

func checksReadiness(r *fleet.NodeRoom) { r.Readiness = true }
func ready(w *decide.PlaceRequest)      { w.Readiness = true }

func inDocker(w *decide.PlaceRequest) { w.Driver = fleet.DriverDocker }
func hasDocker(r *fleet.NodeRoom)     { r.Drivers = append(r.Drivers, fleet.DriverDocker) }

func forProject(p fleet.ProjectName) func(*decide.PlaceRequest) {
	return func(w *decide.PlaceRequest) { w.Project = p }
}

// S30, S94, S95, X8
func TestPlace(t *testing.T) {
	t.Parallel()
	a1, a2, b1 := room("a1", "a"), room("a2", "a"), room("b1", "b")
	for _, c := range []struct {
		name   string
		rooms  []fleet.NodeRoom
		want   decide.PlaceRequest
		nodes  []fleet.NodeName
		reason string
		says   string
	}{
		{"over sites first", []fleet.NodeRoom{a1, a2, b1}, want(4), []fleet.NodeName{"a1", "b1", "a2", "b1"}, "", ""},
		{"over nodes, whatever their sites", []fleet.NodeRoom{a1, a2, b1}, want(3, spread(fleet.SpreadNodes)), []fleet.NodeName{"a1", "a2", "b1"}, "", ""},
		{"counts what is there", []fleet.NodeRoom{room("a1", "a", own(1)), a2, b1}, want(2), []fleet.NodeName{"b1", "a2"}, "", ""},
		{"where there is most room", []fleet.NodeRoom{room("a1", "a", taken(3)), room("a2", "a", taken(1), own(5)), room("b1", "b", taken(2))}, want(1, spread(fleet.SpreadNone), cpu(1)), []fleet.NodeName{"a2"}, "", ""},
		{"most room is not where it failed", []fleet.NodeRoom{room("a1", "a", failing(1)), room("a2", "a", taken(3))}, want(1, spread(fleet.SpreadNone), cpu(1)), []fleet.NodeName{"a2"}, "", ""},
		{"one failure does not undo the spread", []fleet.NodeRoom{room("a1", "a", own(1)), room("b1", "b", failing(1))}, want(1), []fleet.NodeName{"b1"}, "", ""},
		{"failing often does", []fleet.NodeRoom{room("a1", "a", own(1)), room("b1", "b", failing(2))}, want(1), []fleet.NodeName{"a1"}, "", ""},
		{"where it fails when there is nothing else", []fleet.NodeRoom{room("a1", "a", failing(9))}, want(1), []fleet.NodeName{"a1"}, "", ""},
		{"a fixed port once on a node", []fleet.NodeRoom{a1, a2}, want(3, fixed(80)), []fleet.NodeName{"a1", "a2"}, decide.PortsTaken, "2 with one of the ports 80 in use"},
		{"as many as there is room for", []fleet.NodeRoom{a1, room("a2", "a", taken(2.5))}, want(4, cpu(2)), []fleet.NodeName{"a1", "a1"}, decide.NoRoom, "2 with less than 2 cores free (most is 1.5 on a2)"},
		{"in one of the pools", []fleet.NodeRoom{a1, room("a2", "a", inPool("gpu"))}, want(1, pools("gpu", "other")), []fleet.NodeName{"a2"}, "", ""},
		{"not in a full pool", []fleet.NodeRoom{room("a2", "a", inPool("gpu"), full("gpu"))}, want(1, pools("gpu")), nil, decide.NoRoom, "1 at the limit of their pool"},
		{"a full pool bounds those who name it", []fleet.NodeRoom{room("a2", "a", inPool("gpu"), full("gpu"))}, want(1), []fleet.NodeName{"a2"}, "", ""},
		{"no node is in the pool", []fleet.NodeRoom{a1}, want(1, pools("gpu")), nil, decide.PoolMisconfigured, "no node is in the pools gpu"},
		{"no node at all", nil, want(1), nil, decide.NoNode, "the region has no node of its project"},
		{"no node with the labels", []fleet.NodeRoom{room("a1", "a", label("disk", "hdd"))}, want(1, func(w *decide.PlaceRequest) { w.Spec.Labels = map[string]string{"disk": "ssd"} }), nil, decide.NoNode, "1 without the labels disk=ssd"},
		{"no node of the sites", []fleet.NodeRoom{a1}, want(1, func(w *decide.PlaceRequest) { w.Spec.Sites = []fleet.SiteName{"z"} }), nil, decide.NoNode, "1 not at the sites z"},
		{"no node with the module", []fleet.NodeRoom{a1}, want(1, func(w *decide.PlaceRequest) { w.Spec.Modules = []string{"acme.vision.detect"} }), nil, decide.NoNode, "1 without one of the modules acme.vision.detect"},
		{"no node with the driver", []fleet.NodeRoom{a1}, want(1, func(w *decide.PlaceRequest) { w.Driver = fleet.DriverDocker }), nil, decide.NoNode, "1 without the driver docker"},
		{"on shared nodes and its project's own", []fleet.NodeRoom{room("a1", "a", of("blue")), room("b1", "b", of("red")), room("c1", "c", of("default"))}, want(3, forProject("red")), []fleet.NodeName{"b1", "c1", "b1"}, "", ""},
		{"not where projects are not kept apart", []fleet.NodeRoom{room("a1", "a", of("default"), mixed), room("c1", "c", of("default"))}, want(2, forProject("red")), []fleet.NodeName{"c1", "c1"}, "", ""},
		{"but on its own", []fleet.NodeRoom{room("a1", "a", of("red"), mixed)}, want(1, forProject("red")), []fleet.NodeName{"a1"}, "", ""},
		{"and in a container", []fleet.NodeRoom{room("a1", "a", of("default"), mixed, hasDocker)}, want(1, forProject("red"), inDocker), []fleet.NodeName{"a1"}, "", ""},
		{"only where readiness is checked", []fleet.NodeRoom{a1, room("a2", "a", checksReadiness)}, want(2, ready), []fleet.NodeName{"a2", "a2"}, "", ""},
		{"or says that no agent does", []fleet.NodeRoom{a1, room("a2", "a", label("disk", "hdd"))}, want(1, ready), nil, decide.ReadinessMissing, "none of 2 nodes matches: 2 whose agents are of a build without readiness checks (upgrade them)"},
		{"where readiness is checked there is no room", []fleet.NodeRoom{a1, room("a2", "a", checksReadiness, taken(4))}, want(1, ready, cpu(1)), nil, decide.NoRoom, "1 of 2 nodes match"},
		{"or says that no node keeps them apart", []fleet.NodeRoom{room("a1", "a", of("default"), mixed), room("b1", "b", of("blue"))}, want(1, forProject("red")), nil, decide.IsolationMissing, "none of 1 nodes matches: 1 that run processes of their site's project only (they do not isolate projects)"},
		{"never on another project's, nor a word of them", []fleet.NodeRoom{room("a1", "a", of("blue"))}, want(1, forProject("red")), nil, decide.NoNode, "the region has no node of its project"},
		{"nor in a pool that has them", []fleet.NodeRoom{room("a1", "a", of("blue"), inPool("all"))}, want(1, forProject("red"), pools("all")), nil, decide.PoolMisconfigured, ""},
		{"nodes are away", []fleet.NodeRoom{room("a1", "a", away("cordoned")), room("a2", "a", away("not_connected"))}, want(1), nil, decide.NoNode, "2 not available (cordoned, not_connected)"},
		{"no memory", []fleet.NodeRoom{a1}, want(1, func(w *decide.PlaceRequest) { w.Resources.Memory = 9 << 30 }), nil, decide.NoRoom, "1 with less than 9Gi memory free (most is 8Gi on a1)"},
		{"no GPU", []fleet.NodeRoom{a1}, want(1, func(w *decide.PlaceRequest) { w.Resources.GPUs = 1 }), nil, decide.NoRoom, "1 with fewer than 1 GPUs free (most is 0 on a1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := decide.Place(c.want, c.rooms)
			require.Equal(t, c.nodes, got.Nodes)
			require.Equal(t, c.want.Count-len(c.nodes), got.Missing)
			require.Equal(t, c.reason, got.Reason, got.Message)
			require.Contains(t, got.Message, c.says)
		})
	}
}

// X9, X19: what is said of a placement that names a lot is kept, and sent through workflows: it is cut.
func TestPlaceSaysLittle(t *testing.T) {
	t.Parallel()
	many := func(w *decide.PlaceRequest) {
		w.Spec.Labels = map[string]string{}
		for i := range 256 {
			w.Spec.Sites = append(w.Spec.Sites, fleet.SiteName(fmt.Sprintf("%063d", i)))
			w.Spec.Pools = append(w.Spec.Pools, fleet.PoolName(fmt.Sprintf("%063d", i)))
			w.Spec.Modules = append(w.Spec.Modules, strings.Repeat("ä", 127)+fmt.Sprint(i))
			w.Spec.Labels[fmt.Sprint(i)] = strings.Repeat("ö", 128)
		}
	}
	first := fleet.PoolName(fmt.Sprintf("%063d", 0))
	labelled := func(r *fleet.NodeRoom) { r.Labels = want(1, many).Spec.Labels }
	site := string(first)
	rooms := []fleet.NodeRoom{
		room("a1", "z"), room("a2", site), room("a3", site, inPool(first)), room("a4", site, inPool(first), labelled),
	}
	got := decide.Place(want(1, many), rooms)
	require.Equal(t, decide.NoNode, got.Reason)
	require.Contains(t, got.Message, "1 not at the sites "+site+", ")
	for _, list := range []string{"pools", "labels", "modules"} {
		require.Regexp(t, list+" [^…]+…? … and 25[3-5] more", got.Message)
	}
	require.Less(t, len(got.Message), 1280)
	require.True(t, utf8.ValidString(got.Message))
	require.Regexp(t, "^no node is in the pools .{1,200} … and 253 more$", decide.Place(want(1, many), rooms[:2]).Message)
	for _, r := range rooms {
		_, says := decide.Refused(want(1, many), r)
		require.Less(t, len(says), 320)
	}
	for _, all := range [][]fleet.PoolName{{"a"}, {"a", "b"}} {
		require.Contains(t, decide.Place(want(1, pools(all...)), rooms).Message, "the pools "+strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ", "))
	}
}

// What an old replica leaves is taken where there is no other room: port, resources or place in a pool.
func TestPlaceYields(t *testing.T) {
	t.Parallel()
	held := room("a1", "a", old("a", 1, 80))
	busy := room("a1", "a", taken(2), old("a", 1), old("b", 1))
	inFull := func(r *fleet.NodeRoom) { r.Pools, r.PoolFull = []fleet.PoolName{"gpu"}, []fleet.PoolName{"gpu"} }
	over := func(r *fleet.NodeRoom) { r.PoolOver = r.PoolFull }
	unheard := func(ago time.Duration) func(*fleet.NodeRoom) {
		return func(r *fleet.NodeRoom) { r.Away, r.Unheard = "not_connected", noon.Add(-ago) }
	}
	port80, gpu := want(1, fixed(80), cpu(1)), want(1, pools("gpu"))
	for _, c := range []struct {
		name  string
		want  decide.PlaceRequest
		rooms []fleet.NodeRoom
		yield []fleet.ReplicaID
	}{
		{"its own port on the only node", port80, []fleet.NodeRoom{held}, []fleet.ReplicaID{"a"}},
		{"its own port on every node", port80, []fleet.NodeRoom{held, room("b1", "b", old("b", 1, 80))}, []fleet.ReplicaID{"a", "b"}},
		{"nodes that do not match do not count", port80, []fleet.NodeRoom{held, room("b1", "b", func(r *fleet.NodeRoom) { r.Drivers = nil })}, []fleet.ReplicaID{"a"}},
		{"nor those that are cordoned", port80, []fleet.NodeRoom{held, room("b1", "b", old("b", 1, 80), away("cordoned"))}, []fleet.ReplicaID{"a"}},
		{"nor those that are full of others", port80, []fleet.NodeRoom{held, room("b1", "b", taken(4))}, []fleet.ReplicaID{"a"}},
		{"another node may be back soon", port80, []fleet.NodeRoom{held, room("b1", "b", unheard(time.Second))}, nil},
		{"another node is away for long", port80, []fleet.NodeRoom{held, room("b1", "b", unheard(time.Minute))}, []fleet.ReplicaID{"a"}},
		{"another's port", port80, []fleet.NodeRoom{room("a1", "a", port(80))}, nil},
		{"another's port beside its own", want(1, func(w *decide.PlaceRequest) { w.Ports = []int{80, 81} }), []fleet.NodeRoom{room("a1", "a", port(81), old("a", 1, 80))}, nil},
		{"a machine that is too small", port80, []fleet.NodeRoom{room("a1", "a", old("a", 1, 80), func(r *fleet.NodeRoom) { r.Total.CPU = 0.5 })}, nil},
		{"cores of an old one", want(1, cpu(1)), []fleet.NodeRoom{busy}, []fleet.ReplicaID{"a", "b"}},
		{"more than any one leaves", want(1, cpu(2)), []fleet.NodeRoom{busy}, nil},
		{"a place in a pool that is full", gpu, []fleet.NodeRoom{room("a1", "a", inFull, old("a", 1))}, []fleet.ReplicaID{"a"}},
		{"none in one that has too many", gpu, []fleet.NodeRoom{room("a1", "a", inFull, over, old("a", 1))}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.want.LostBefore = noon.Add(-30 * time.Second)
			got := decide.Place(c.want, c.rooms)
			require.Equal(t, 1, got.Missing)
			require.Equal(t, c.yield, got.Yield)
		})
	}
}

// The plan says what is missing, looks again after 15 s, and ends an old one first only where it has to.
func TestPlanIsPlaced(t *testing.T) {
	t.Parallel()
	update := deployment(released(2, 2), began(2, 2), has(replica(1), replica(2)))
	noRoom := decide.Places{Placed: decide.Placed{Missing: 1, Reason: decide.PortsTaken, Message: "what is missing"}}

	waits := decide.WithPlaces(decide.Deployment(update), update, noRoom)
	require.Equal(t, decide.PortsTaken, waits.Rule)
	require.Equal(t, noon.Add(15*time.Second), waits.Next)
	require.Empty(t, waits.Terminate)
	require.Contains(t, waits.Awaited, "what is missing")
	require.False(t, waits.Done)

	noRoom.Yield = []fleet.ReplicaID{replica(2).ID}
	yields := decide.WithPlaces(decide.Deployment(update), update, noRoom)
	require.Equal(t, decide.ReasonOldFirst, yields.Rule)
	require.Equal(t, "2", ids(yields.Terminate))
	require.Contains(t, yields.Message, "on node n2")
	require.Equal(t, noon.Add(40*time.Second), yields.Next, "it has 10 s to stop, and its node as long as any to say so")
	short := deployment(released(2, 2), began(2, 2), target(3, 1), has(replica(1), replica(2)))
	require.Equal(t, "2", ids(decide.WithPlaces(decide.Deployment(short), short, noRoom).Terminate), "also where there was no room for all before")
	for _, waits := range []fleet.ReplicaSeen{replica(3, version(2), state(fleet.ReplicaStarting)), replica(3, ending(time.Second)), replica(3, version(2), unheard(time.Second))} {
		busy := deployment(released(2, 2), began(2, 2), target(4, 1), has(replica(1), replica(2), waits))
		require.Empty(t, decide.WithPlaces(decide.Deployment(busy), busy, noRoom).Terminate, "one at a time: %s", waits.State)
	}
	both := deployment(released(2, 2), began(2, 2), target(4, 1), has(replica(1), replica(2), replica(3, exited), replica(4, ending(time.Second))))
	require.Equal(t, "3", ids(decide.WithPlaces(decide.Deployment(both), both, noRoom).Terminate), "one ends, and one is told to")

	more := deployment(target(3, 1), has(replica(1)))
	require.Empty(t, decide.WithPlaces(decide.Deployment(more), more, noRoom).Terminate, "nothing is to be replaced")

	first := deployment(fresh, target(2, 1))
	plan := decide.WithPlaces(decide.Deployment(first), first, decide.Places{Placed: decide.Placed{Missing: 2, Reason: decide.NoRoom, Message: "x"}})
	require.Empty(t, plan.Events, "nothing is begun")
	require.Zero(t, plan.Create)
	plan = decide.WithPlaces(decide.Deployment(first), first, decide.Places{Placed: decide.Placed{Nodes: []fleet.NodeName{"a"}, Missing: 1, Reason: decide.NoRoom, Message: "x"}})
	require.Equal(t, []fleet.DeploymentEvent{fleet.DeploymentBegun}, plan.Events)
	require.Equal(t, 1, plan.Create)
}

// Whatever there is: nobody gets more than he has room for, a port is had once, nothing is placed
// where it must not be, and what is missing is missing.
func TestPlaceKeepsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var rooms []fleet.NodeRoom
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			r := room(fmt.Sprint("n", i), fmt.Sprint("s", i%3), own(rapid.IntRange(0, 3).Draw(t, "own")), failing(rapid.IntRange(0, 4).Draw(t, "failing")))
			r.Taken.CPU = float64(rapid.IntRange(0, 5).Draw(t, "taken"))
			if rapid.IntRange(0, 4).Draw(t, "away") == 0 {
				r.Away = "not_connected"
			}
			if rapid.IntRange(0, 4).Draw(t, "port") == 0 {
				r.Ports = []int{80}
			}
			rooms = append(rooms, r)
		}
		w := want(rapid.IntRange(1, 30).Draw(t, "count"), spread(rapid.SampledFrom([]fleet.Spread{fleet.SpreadSites, fleet.SpreadNodes, fleet.SpreadNone}).Draw(t, "spread")))
		w.Resources.CPU = float64(rapid.IntRange(0, 2).Draw(t, "cpu"))
		if rapid.Bool().Draw(t, "fixed") {
			w.Ports = []int{80}
		}
		got := decide.Place(w, rooms)
		require.Equal(t, w.Count, len(got.Nodes)+got.Missing)
		require.Equal(t, got.Missing > 0, got.Reason != "")
		reversed := slices.Clone(rooms)
		slices.Reverse(reversed)
		require.Equal(t, got, decide.Place(w, reversed), "the order of the nodes does not matter")
		for _, r := range rooms {
			n := 0
			for _, node := range got.Nodes {
				if node == r.Node {
					n++
				}
			}
			if n == 0 {
				reason, _ := decide.Refused(w, r)
				require.True(t, got.Missing == 0 || reason != "", "%s would have had room", r.Node)
				continue
			}
			require.Empty(t, r.Away)
			require.True(t, w.Resources.CPU == 0 || r.Taken.CPU+float64(n)*w.Resources.CPU <= r.Total.CPU)
			if len(w.Ports) > 0 {
				require.Empty(t, r.Ports)
				require.Equal(t, 1, n)
			}
		}
	})
}

// A placer goes on with what it has placed itself.
func TestPlacerRemembers(t *testing.T) {
	t.Parallel()
	p := decide.NewPlacer([]fleet.NodeRoom{room("a1", "a"), room("b1", "b")})
	require.Equal(t, []fleet.NodeName{"a1"}, p.Place(want(1, cpu(3))).Nodes)
	require.Equal(t, []fleet.NodeName{"b1"}, p.Place(want(1, cpu(3))).Nodes)
	p.Another()
	got := p.Place(want(2, cpu(1)))
	require.Equal(t, []fleet.NodeName{"a1", "b1"}, got.Nodes)
	require.Equal(t, 1, p.Place(want(1, cpu(1))).Missing)
}

func BenchmarkPlace(b *testing.B) {
	var rooms []fleet.NodeRoom
	for i := range 5000 {
		rooms = append(rooms, room(fmt.Sprint("n", i), fmt.Sprint("s", i/2), func(r *fleet.NodeRoom) { r.Total.CPU = 64 }))
	}
	p := decide.NewPlacer(rooms)
	for b.Loop() {
		p.Place(want(1, cpu(0.0001)))
	}
}
