package deployments

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// stopSlack is what a node has beyond a replica's stop time before what it does not say is taken
// for done.
const stopSlack = 30 * time.Second

// looksPerVisit bounds how often one visit looks anew because what it saw moved before it could act.
const looksPerVisit = 5

// visit reads, decides and acts. Reports continue during that time: if they changed what the plan is about, it
// looks and decides anew. Each time more rows are locked, so that soon nothing moves any more.
func (w *deploymentWork) visit(ctx context.Context) (fleet.DeploymentVisited, error) {
	for range looksPerVisit {
		l, err := w.look(ctx)
		if err != nil {
			return fleet.DeploymentVisited{}, err
		}
		if l.rollout == nil && w.restartWaits(l.seen) {
			if err := w.beginWaiting(ctx); err != nil {
				return fleet.DeploymentVisited{}, err
			}
			continue
		}
		plan := decide.Deployment(l.seen)
		if w.looked != nil {
			w.looked(w.name())
		}
		c := carrying{deploymentWork: w, looked: l, plan: plan}
		current, err := c.prepare(ctx)
		if err != nil {
			return fleet.DeploymentVisited{}, err
		}
		if !current {
			continue
		}
		if err := c.carry(ctx); err != nil {
			return fleet.DeploymentVisited{}, err
		}
		return c.result(ctx)
	}
	return fleet.DeploymentVisited{}, fleet.Errorf(fleet.Unavailable, "the replicas of deployment %s keep changing; the visit is repeated", w.row.Name)
}

// carrying is a plan that is being carried out.
type carrying struct {
	*deploymentWork
	looked
	plan     fleet.DeploymentPlan // with its places
	created  []newReplica
	of       line                                   // of those
	steps    map[fleet.ReplicaID]db.LockReplicasRow // those that are to be moved, as they are now
	versions map[string]int64                       // of the sets that change
	history  lines
	gone     bool
}

type newReplica struct{ id, node string }

// prepare finds places and locks what has to move. It reports whether that is unchanged.
func (c *carrying) prepare(ctx context.Context) (current bool, err error) {
	if err := c.place(ctx); err != nil {
		return false, err
	}
	if err := c.hold(ctx); err != nil {
		return false, err
	}
	return c.asSeen(ctx)
}

func (c *carrying) carry(ctx context.Context) error {
	if err := c.renew(ctx); err != nil {
		return err
	}
	if err := c.raise(ctx); err != nil {
		return err
	}
	for _, do := range []func(context.Context) error{c.fail, c.end, c.terminate, c.create, c.tell, c.move, c.finish} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return c.history.write(ctx, c.q, c.row.Name, c.row.Uid)
}

// placementKey is held while nodes are chosen, so that two deployments never take the same room.
var placementKey = fleet.ObjectKey{Kind: "placement"}

// place finds nodes for the replicas to be made. Nothing is made of what is being deleted, whatever
// was decided (S32). Replicas of one revision are made in a visit: the others find out where these are.
func (c *carrying) place(ctx context.Context) error {
	if c.revision == nil || c.seen.Deleting || c.seen.State == fleet.DeploymentDestroying {
		return nil
	}
	if c.plan.Create > 0 {
		if err := c.placeOf(ctx, c.line, c.plan.Create); err != nil {
			return err
		}
	}
	if r := c.plan.Rollout; r != nil && r.Create > 0 { // no room for the others may be room for these
		return c.placeOf(ctx, c.next, r.Create)
	}
	return nil
}

func (c *carrying) placeOf(ctx context.Context, l line, count int) error {
	decided := c.plan
	if decided.Scarce { // most often there is still no room, which is found out without holding up others
		got, err := c.choose(ctx, l, count)
		if err != nil {
			return err
		}
		if len(got.Nodes) == 0 {
			c.plan = decide.WithPlaces(decided, c.seen, got)
			return nil
		}
	}
	if !c.placing.take() {
		return errNoTurn
	}
	if err := postgres.Lock(ctx, c.q, []fleet.ObjectKey{placementKey}); err != nil {
		return err
	}
	got, err := c.choose(ctx, l, count)
	if err != nil {
		return err
	}
	c.plan = decide.WithPlaces(decided, c.seen, got)
	for _, node := range got.Nodes {
		id, err := newReplicaID()
		if err != nil {
			return err
		}
		c.created = append(c.created, newReplica{id, string(node)})
	}
	c.of = l
	return nil
}

// choose chooses nodes for replicas of a revision.
func (c *carrying) choose(ctx context.Context, l line, count int) (decide.Places, error) {
	rooms, err := readRooms(ctx, c.q, roomsFor{c.name(), l.revision.Revision})
	if err != nil {
		return decide.Places{}, err
	}
	seen, next := decide.StableLine(c.seen), c.rollout != nil && l.version == c.next.version
	if next {
		seen = decide.NextLine(c.seen)
	}
	got := decide.Place(decide.PlaceRequest{
		Count: count, Project: fleet.ProjectName(c.row.Project), Spec: l.spec.Placement, Resources: l.terms.Resources,
		Driver: l.terms.Driver, Ports: l.terms.Ports, Readiness: l.terms.readiness(),
		LostBefore: c.seen.At.Add(-time.Duration(seen.Terms.WithDefaults().LostSeconds) * time.Second),
	}, decide.Spread(seen, rooms.all))
	fit := rooms.fitting(got.Nodes, l.spec.Placement.Pools)
	later := len(fit) < len(got.Nodes)
	got.Nodes = fit
	return decide.Places{Placed: got, Next: next, Later: later}, nil
}

func newReplicaID() (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(b[:]), nil
}

// moved are the replicas that the plan moves.
func (c *carrying) moved() []string {
	var ids []string
	for _, all := range [][]fleet.ReplicaStep{c.plan.Fail, c.plan.End, c.plan.Terminate} {
		for _, s := range all {
			ids = append(ids, string(s.ID))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// hold locks the replicas to be moved, those that have not ended.
func (c *carrying) hold(ctx context.Context) error {
	c.steps = map[fleet.ReplicaID]db.LockReplicasRow{}
	ids := c.moved()
	if len(ids) == 0 {
		return nil
	}
	rows, err := c.q.LockReplicas(ctx, db.LockReplicasParams{Ids: ids, Deployment: c.row.Name})
	for _, r := range rows {
		c.steps[fleet.ReplicaID(r.ID)] = r
	}
	return err
}

// asSeen says whether the replicas that are held, and how their nodes are, are as the plan was made
// of: a node may have come back, and its report been written, since the look.
func (c *carrying) asSeen(ctx context.Context) (bool, error) {
	ids := c.moved()
	if len(ids) == 0 {
		return true, nil
	}
	rows, err := c.q.SeeReplicasAgain(ctx, db.SeeReplicasAgainParams{Ids: ids, Deployment: c.row.Name})
	if err != nil {
		return false, err
	}
	before := make(map[fleet.ReplicaID]fleet.ReplicaSeen, len(c.seen.Replicas))
	for _, r := range c.seen.Replicas {
		before[r.ID] = r
	}
	for _, r := range rows {
		now := c.replicaSeen(db.SeeReplicasRow(r), &c.looked)
		was := before[now.ID]
		if was.Failing = ""; now != was { // nothing is decided by what a check says
			return false, nil
		}
	}
	return len(rows) == len(ids), nil // otherwise some have ended
}

// raise gives each node whose set changes one new number.
func (c *carrying) raise(ctx context.Context) error {
	var nodes []string
	for _, r := range c.created {
		nodes = append(nodes, r.node)
	}
	for _, all := range [][]fleet.ReplicaStep{c.plan.End, c.plan.Terminate} {
		for _, s := range all {
			if r, there := c.steps[s.ID]; there {
				nodes = append(nodes, r.Node)
			}
		}
	}
	var err error
	c.versions, err = RaiseSets(ctx, c.q, nodes)
	return err
}

// RaiseSets raises the numbers of nodes' sets, each once.
func RaiseSets(ctx context.Context, q *db.Queries, nodes []string) (map[string]int64, error) {
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	out := make(map[string]int64, len(nodes))
	if len(nodes) == 0 {
		return out, nil
	}
	rows, err := q.RaiseNodeSets(ctx, nodes)
	for _, r := range rows {
		out[r.Node] = r.Version
	}
	return out, err
}

func (c *carrying) fail(ctx context.Context) error {
	steps := c.moving(c.plan.Fail, fleet.ReplicaFailed)
	return ifAny(steps, func() error {
		return c.q.FailReplicas(ctx, db.FailReplicasParams{Ids: steps.ids, Reasons: steps.reasons, Messages: steps.messages})
	})
}

func (c *carrying) end(ctx context.Context) error {
	steps := c.moving(c.plan.End, fleet.ReplicaEnded)
	return ifAny(steps, func() error {
		if err := c.q.BuryReplicas(ctx, steps.ids); err != nil {
			return err
		}
		return c.q.EndReplicas(ctx, db.EndReplicasParams{Ids: steps.ids, Reasons: steps.reasons, Messages: steps.messages})
	})
}

func (c *carrying) terminate(ctx context.Context) error {
	steps := c.moving(c.plan.Terminate, fleet.ReplicaTerminate)
	return ifAny(steps, func() error {
		return c.q.TerminateReplicas(ctx, db.TerminateReplicasParams{
			Ids: steps.ids, Reasons: steps.reasons, Messages: steps.messages, SlackSeconds: stopSlack.Seconds(),
		})
	})
}

// replicaMoves are the columns of a statement that moves many.
type replicaMoves struct {
	ids, reasons, messages []string
}

func ifAny(m replicaMoves, do func() error) error {
	if len(m.ids) == 0 {
		return nil
	}
	return do()
}

// moving gives those of some steps that their machine allows now, and writes them down.
func (c *carrying) moving(steps []fleet.ReplicaStep, on fleet.ReplicaEvent) replicaMoves {
	var m replicaMoves
	for _, s := range steps {
		r, there := c.steps[s.ID]
		if !there {
			continue
		}
		to, err := fleet.ReplicaState(r.State).Next(on)
		if err != nil {
			continue
		}
		c.history.add(historyLine{replica: r.ID, node: r.Node, from: r.State, to: string(to), reason: s.Reason, message: s.Message, actor: postgres.RegionActor})
		r.State = string(to)
		c.steps[s.ID] = r
		m.ids, m.reasons, m.messages = append(m.ids, r.ID), append(m.reasons, s.Reason), append(m.messages, s.Message)
	}
	return m
}

func (c *carrying) create(ctx context.Context) error {
	if len(c.created) == 0 {
		return nil
	}
	t := c.of.terms
	p := db.InsertReplicasParams{
		Deployment: c.row.Name, Uid: c.row.Uid, Revision: c.of.revision.Revision, ProcessVersion: c.of.version, Definition: c.of.revision.Definition,
		Cpu: t.Resources.CPU, Memory: t.Resources.Memory, Gpus: postgres.WaveNumber(t.Resources.GPUs), FixedPorts: []int32{}, StopSeconds: postgres.WaveNumber(t.StopSeconds),
		At: c.seen.At, Amended: t.Amended,
	}
	for _, port := range t.Ports {
		p.FixedPorts = append(p.FixedPorts, postgres.WaveNumber(port))
	}
	for _, r := range c.created {
		p.Ids, p.Nodes = append(p.Ids, r.id), append(p.Nodes, r.node)
		c.history.add(historyLine{replica: r.id, node: r.node, to: string(fleet.ReplicaStarting), reason: "created", message: c.plan.Rule, actor: postgres.RegionActor})
	}
	return c.q.InsertReplicas(ctx, p)
}

// tell hurries the nodes whose sets changed.
func (c *carrying) tell(ctx context.Context) error { return TellSets(ctx, c.q, c.versions) }

// TellSets tells the servers of the link which nodes have another set, by their versions.
func TellSets(ctx context.Context, q *db.Queries, versions map[string]int64) error {
	if len(versions) == 0 {
		return nil
	}
	var p db.TellNodeSetsParams
	for node, version := range versions {
		p.Nodes, p.Versions = append(p.Nodes, node), append(p.Versions, version)
	}
	return q.TellNodeSets(ctx, p)
}
