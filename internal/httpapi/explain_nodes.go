package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// room asks placement about each node that the caller may see, and about all of them for what is
// missing. Shared ones that the caller may not see are only counted.
func (x *explaining) room(ctx context.Context) error {
	x.out.Nodes = []api.NodeFree{}
	if x.spec == nil {
		return nil
	}
	rooms, err := x.s.store.Rooms(ctx, x.name)
	if err != nil {
		return err
	}
	spec := x.spec.WithDefaults()
	spec.Process = x.defined(ctx, spec)
	want := decide.PlacementOf(fleet.ProjectName(x.out.Project), spec.Placement, fleet.Definition{Process: spec.Process, Resources: spec.Resources})
	n := totalsOf(x.view)
	if want.Count = n.Desired - n.Healthy - n.Starting - n.Unhealthy - n.Degraded; want.Count > 0 && !x.ends {
		placed := decide.Place(want, rooms)
		x.unplaced, x.unplacedMessage = placed.Reason, placed.Message
	}
	want.Count = 1
	for _, r := range rooms {
		if serve.CallOf(ctx).Sees(r.Project) {
			x.out.Nodes = append(x.out.Nodes, freeOn(want, r))
		} else if want.Project.Uses(r.Project) {
			x.out.MoreNodes++
		}
	}
	// Those that could take one, and those that have some, before those that could not.
	slices.SortStableFunc(x.out.Nodes, func(a, b api.NodeFree) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Own, a.Own), cmp.Compare(a.Node, b.Node))
	})
	if more := len(x.out.Nodes) - explainedNodes; more > 0 {
		x.out.Nodes, x.out.MoreNodes = x.out.Nodes[:explainedNodes], x.out.MoreNodes+more
	}
	return nil
}

func freeOn(want decide.PlaceRequest, r fleet.NodeRoom) api.NodeFree {
	free := api.NodeFree{
		Node: string(r.Node), Site: string(r.Site), Labels: r.Labels, Pools: r.Pools, Total: totalOf(r.Total),
		Free: api.ResourceTotal{
			CPU: max(r.Total.CPU-r.Taken.CPU, 0), Memory: max(r.Total.Memory-r.Taken.Memory, 0), GPUs: max(r.Total.GPUs-r.Taken.GPUs, 0),
		},
		Replicas: r.Replicas, Own: r.Own, Failing: r.Failing,
	}
	free.Why, free.Message = decide.Refused(want, r)
	return free
}

func rank(n api.NodeFree) int {
	switch {
	case n.Why == "":
		return 0
	case n.Own > 0:
		return 1
	}
	return 2
}
