package deployments

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// failedLately is how long a node counts as one where replicas of a deployment fail.
const failedLately = 10 * time.Minute

// Rooms gives every node of the region by name, as the placement of a deployment looks at it.
func (s *Store) Rooms(ctx context.Context, deployment fleet.DeploymentName) ([]fleet.NodeRoom, error) {
	r, err := readRooms(ctx, s.Q, roomsFor{deployment: deployment})
	return r.all, err
}

// nodeRooms are nodes with what their pools leave.
type nodeRooms struct {
	all   []fleet.NodeRoom
	pools []pool
	taken map[poolPlace]int
}

type pool struct {
	name fleet.PoolName
	spec fleet.PoolSpec
}

type poolPlace struct {
	node fleet.NodeName
	pool fleet.PoolName
}

// roomsFor is what nodes are looked at for: a revision of a deployment, 0 for its own.
type roomsFor struct {
	deployment fleet.DeploymentName
	revision   int64
}

func readRooms(ctx context.Context, q *db.Queries, of roomsFor) (nodeRooms, error) {
	var r nodeRooms
	rows, err := q.Rooms(ctx)
	if err != nil {
		return r, err
	}
	at := make(map[string]*fleet.NodeRoom, len(rows))
	r.all = make([]fleet.NodeRoom, len(rows))
	for i, row := range rows {
		if r.all[i], err = roomOf(row); err != nil {
			return r, err
		}
		at[row.Name] = &r.all[i]
	}
	for _, fill := range []func(context.Context, *db.Queries, roomsFor, map[string]*fleet.NodeRoom) error{fillOwn, fillOld, fillPorts, fillModules} {
		if err := fill(ctx, q, of, at); err != nil {
			return r, err
		}
	}
	if r.pools, err = readPools(ctx, q, of.deployment); err != nil {
		return r, err
	}
	if r.taken, err = poolsTaken(ctx, q, r.pools); err != nil {
		return r, err
	}
	for i := range r.all {
		r.pool(&r.all[i])
	}
	return r, nil
}

func roomOf(r db.RoomsRow) (fleet.NodeRoom, error) {
	var facts fleet.NodeFacts
	if err := json.Unmarshal(r.Facts, &facts); err != nil {
		return fleet.NodeRoom{}, postgres.Unreadable("the facts of node "+r.Name, err)
	}
	room := fleet.NodeRoom{
		Node: fleet.NodeName(r.Name), Site: fleet.SiteName(r.Site), Project: fleet.ProjectName(r.Project), Labels: facts.Labels, Drivers: facts.Drivers, Separation: facts.Separation, Readiness: facts.Readiness, Total: facts.Resources,
		Taken: fleet.Resources{CPU: r.Cpu, Memory: r.Memory, GPUs: int(r.Gpus)}, Replicas: int(r.Replicas), Away: awayOf(r),
	}
	if !r.Connected {
		room.Unheard = r.Unheard
	}
	return room, nil
}

// fillOwn counts what of a deployment is on its nodes, and what failed there lately.
func fillOwn(ctx context.Context, q *db.Queries, of roomsFor, at map[string]*fleet.NodeRoom) error {
	own, err := q.OwnOnNodes(ctx, db.OwnOnNodesParams{Deployment: string(of.deployment), Revision: of.revision})
	if err != nil {
		return err
	}
	for _, o := range own {
		if room := at[o.Node]; room != nil {
			room.Own = int(o.Own)
		}
	}
	fails, err := q.FailingNodes(ctx, db.FailingNodesParams{Deployment: string(of.deployment), Seconds: failedLately.Seconds()})
	for _, f := range fails {
		if room := at[f.Node]; room != nil {
			room.Failing = int(f.Failing)
		}
	}
	return err
}

// fillOld says what ends when it is replaced, and what it leaves.
func fillOld(ctx context.Context, q *db.Queries, of roomsFor, at map[string]*fleet.NodeRoom) error {
	rows, err := q.OldOnNodes(ctx, db.OldOnNodesParams{Deployment: string(of.deployment), Revision: of.revision})
	for _, r := range rows {
		room := at[r.Node]
		if room == nil {
			continue
		}
		old := fleet.OldReplica{ID: fleet.ReplicaID(r.ID), Resources: fleet.Resources{CPU: r.Cpu, Memory: r.Memory, GPUs: int(r.Gpus)}}
		for _, p := range r.FixedPorts {
			old.Ports = append(old.Ports, int(p))
		}
		room.Old = append(room.Old, old)
	}
	return err
}

func fillPorts(ctx context.Context, q *db.Queries, _ roomsFor, at map[string]*fleet.NodeRoom) error {
	ports, err := q.PortsOnNodes(ctx)
	for _, p := range ports {
		if room := at[p.Node]; room != nil {
			room.Ports = append(room.Ports, int(p.Port))
		}
	}
	return err
}

func fillModules(ctx context.Context, q *db.Queries, _ roomsFor, at map[string]*fleet.NodeRoom) error {
	modules, err := q.ModulesOnNodes(ctx)
	for _, m := range modules {
		if room := at[m.Node]; room != nil {
			room.Modules = append(room.Modules, m.Module)
		}
	}
	return err
}

// readNodes reads what placements choose by of the nodes that have live replicas: what these nodes
// have free is another matter.
func readNodes(ctx context.Context, q *db.Queries, deployment fleet.DeploymentName, of ...fleet.PlacementSpec) ([]fleet.NodeRoom, error) {
	rows, err := q.NodesOfDeployment(ctx, string(deployment))
	if err != nil {
		return nil, err
	}
	var r nodeRooms
	if slices.ContainsFunc(of, func(p fleet.PlacementSpec) bool { return len(p.Pools) > 0 }) {
		if r.pools, err = readPools(ctx, q, deployment); err != nil {
			return nil, err
		}
	}
	at := make(map[string]*fleet.NodeRoom, len(rows))
	r.all = make([]fleet.NodeRoom, len(rows))
	for i, row := range rows {
		r.all[i], err = roomOf(db.RoomsRow{Name: row.Name, Site: row.Site, Project: row.Project, Facts: row.Facts})
		if err != nil {
			return nil, err
		}
		r.all[i].Away, r.all[i].Unheard = "", time.Time{} // not requested
		r.pool(&r.all[i])
		at[row.Name] = &r.all[i]
	}
	if !slices.ContainsFunc(of, func(p fleet.PlacementSpec) bool { return len(p.Modules) > 0 }) {
		return r.all, nil
	}
	modules, err := q.ModulesOfNodes(ctx, slices.Collect(maps.Keys(at)))
	for _, m := range modules {
		at[m.Node].Modules = append(at[m.Node].Modules, m.Module)
	}
	return r.all, err
}

// awayOf says why nothing is placed on a node.
func awayOf(r db.RoomsRow) string {
	switch {
	case r.Draining || r.Asked:
		return "draining"
	case r.CordonedAt != nil:
		return "cordoned"
	case !r.Connected:
		return "not_connected"
	case r.Replicas >= fleet.MaxNodeReplicas:
		return "full"
	}
	return ""
}

// readPools reads those that the deployment may name.
func readPools(ctx context.Context, q *db.Queries, deployment fleet.DeploymentName) ([]pool, error) {
	rows, err := q.PoolSpecs(ctx, string(deployment))
	if err != nil {
		return nil, err
	}
	pools := make([]pool, len(rows))
	for i, r := range rows {
		pools[i].name = fleet.PoolName(r.Name)
		if err := json.Unmarshal(r.Spec, &pools[i].spec); err != nil {
			return nil, postgres.Unreadable("pool "+r.Name, err)
		}
	}
	return pools, nil
}

// poolsTaken counts what runs of those that have a bound.
func poolsTaken(ctx context.Context, q *db.Queries, pools []pool) (map[poolPlace]int, error) {
	var bounded []string
	for _, p := range pools {
		if p.spec.MaxReplicas > 0 {
			bounded = append(bounded, string(p.name))
		}
	}
	taken := map[poolPlace]int{}
	if len(bounded) == 0 {
		return taken, nil
	}
	counts, err := q.PoolTaken(ctx, bounded)
	for _, c := range counts {
		taken[poolPlace{fleet.NodeName(c.Node), fleet.PoolName(c.Pool)}] = int(c.Replicas)
	}
	return taken, err
}

// pool determines a node's pools, and which of them are full there.
func (r *nodeRooms) pool(n *fleet.NodeRoom) {
	for _, p := range r.pools {
		if !selects(p.spec, *n) {
			continue
		}
		n.Pools = append(n.Pools, p.name)
		if over := r.taken[poolPlace{n.Node, p.name}] - p.spec.MaxReplicas; p.spec.MaxReplicas > 0 && over >= 0 {
			n.PoolFull = append(n.PoolFull, p.name)
			if over > 0 {
				n.PoolOver = append(n.PoolOver, p.name)
			}
		}
	}
}

func selects(spec fleet.PoolSpec, n fleet.NodeRoom) bool {
	if len(spec.Sites) > 0 && !slices.Contains(spec.Sites, n.Site) || len(spec.Nodes) > 0 && !slices.Contains(spec.Nodes, n.Node) {
		return false
	}
	for name, value := range spec.Labels {
		if has, ok := n.Labels[name]; !ok || has != value { // an empty value asks for the label as any other
			return false
		}
	}
	return true
}

// fitting are those of some chosen nodes, once for each replica, that have room for all of them: a
// pool's bound and the length of a node's set count also within one choice.
func (r *nodeRooms) fitting(nodes []fleet.NodeName, named []fleet.PoolName) []fleet.NodeName {
	replicas, of := map[fleet.NodeName]int{}, map[fleet.NodeName]fleet.NodeRoom{}
	for _, n := range r.all {
		replicas[n.Node], of[n.Node] = n.Replicas, n
	}
	var out []fleet.NodeName
	for _, node := range nodes {
		if replicas[node] >= fleet.MaxNodeReplicas || !r.poolLeaves(of[node], named) {
			continue
		}
		replicas[node]++
		for _, name := range named {
			r.taken[poolPlace{node, name}]++
		}
		out = append(out, node)
	}
	return out
}

// poolLeaves says that one of the named pools lets one more run on a node, or that none is named.
func (r *nodeRooms) poolLeaves(n fleet.NodeRoom, named []fleet.PoolName) bool {
	if len(named) == 0 {
		return true
	}
	for _, p := range r.pools {
		in := slices.Contains(named, p.name) && slices.Contains(n.Pools, p.name)
		if in && (p.spec.MaxReplicas == 0 || r.taken[poolPlace{n.Node, p.name}] < p.spec.MaxReplicas) {
			return true
		}
	}
	return false
}

// PoolWritten has deployments look again that name the pool and wait for room. Labels make none.
func PoolWritten(ctx context.Context, q *db.Queries, w postgres.Write, _ fleet.PoolSpec, out postgres.Written) error {
	if out.Before != nil && out.Before.Generation == out.After.Generation {
		return nil
	}
	names, err := q.DeploymentsOfPool(ctx, w.Key.Name)
	if err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, q, postgres.DeploymentSubjects(names)...)
}
