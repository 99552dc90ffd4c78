package nodes

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// drainRoom is what an operation has beyond the deadline of its drain, to be cut off and closed.
const drainRoom = 2 * time.Minute

// drainLeast is the least time that a drain has to move its node's work, after the region was down and nodes have reconnected.
const drainLeast = 30 * time.Second

// DrainRequest asks for the drain of a node. The order's deadline sets the limit of the operation.
type DrainRequest struct {
	postgres.Request
	Node  fleet.NodeName
	Order fleet.DrainOrder
}

// AskNodeDrain cordons a node and opens an operation for its drain. A drain that is under way is joined: the
// earlier deadline counts.
func (s *Store) AskNodeDrain(ctx context.Context, in DrainRequest) (postgres.Operation, error) {
	in.Limit = time.Duration(in.Order.DeadlineSeconds)*time.Second + drainRoom
	of := ReconcileRequest{Node: in.Node}
	var nodes []db.Node
	var site *fleet.Object
	return postgres.Only(s.Request(ctx, in.Request, func(q *db.Queries) (err error) {
		nodes, site, err = LockNodes(ctx, q, of)
		return err
	}, func(q *db.Queries) ([]postgres.Operation, error) {
		if !in.OfSite(site) {
			return nil, of.Missing()
		}
		op, err := openDrain(ctx, q, in, nodes[0], site)
		return []postgres.Operation{op}, err
	}))
}

func openDrain(ctx context.Context, q *db.Queries, in DrainRequest, n db.Node, site *fleet.Object) (postgres.Operation, error) {
	id, err := postgres.NewID()
	if err != nil {
		return postgres.Operation{}, err
	}
	why := CordonRequest{Request: in.Request, Node: in.Node, Reason: in.Order.Reason}
	if err := cordon(ctx, q, why, site); err != nil {
		return postgres.Operation{}, err
	}
	err = q.AskNodeDrain(ctx, db.AskNodeDrainParams{
		Node: n.Name, Operation: id, Reason: in.Order.Reason, Forced: in.Order.Force, Seconds: float64(in.Order.DeadlineSeconds),
	})
	if err != nil {
		return postgres.Operation{}, err
	}
	deployments, err := q.DeploymentsOnNodes(ctx, []string{n.Name})
	if err != nil {
		return postgres.Operation{}, err
	}
	if err := postgres.PutOutbox(ctx, q, postgres.DeploymentSubjects(deployments)...); err != nil {
		return postgres.Operation{}, err
	}
	return postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
		ID: id, Kind: fleet.OperationDrain, Site: n.Site, Name: n.Name, Subject: fleet.DrainSubject(in.Node), Project: site.Project,
	})
}

// SeeDrain takes over what asks for the drain of a node, notes why it waits, and reads how far
// the node is. Without a drain nothing is wanted.
func (s *Store) SeeDrain(ctx context.Context, in fleet.DrainLook) (fleet.DrainSeen, error) {
	var out fleet.DrainSeen
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = fleet.DrainSeen{Node: in.Node}
		subject := fleet.DrainSubject(in.Node)
		if err := postgres.Serve(ctx, q, postgres.Server{Run: in.Run, Build: in.Build}, subject); err != nil {
			return err
		}
		if in.Phase != "" {
			p := db.NoteNodeDrainParams{Phase: string(in.Phase), Rule: in.Rule, Message: in.Message, Node: string(in.Node)}
			if err := q.NoteNodeDrain(ctx, p); err != nil {
				return err
			}
		}
		return seeDrain(ctx, q, &out)
	})
	return out, err
}

func seeDrain(ctx context.Context, q *db.Queries, out *fleet.DrainSeen) error {
	more := db.GiveDrainTimeParams{Node: string(out.Node), Seconds: drainLeast.Seconds(), Room: drainRoom.Seconds()}
	if err := q.GiveDrainTime(ctx, more); err != nil {
		return err
	}
	d, err := q.GetNodeDrain(ctx, string(out.Node))
	if postgres.NoRows(err) || err == nil && d.EndedAt != nil {
		return nil
	}
	if err != nil {
		return err
	}
	running, err := q.CountRunning(ctx, db.CountRunningParams{Subject: fleet.DrainSubject(out.Node), Kind: string(fleet.OperationDrain)})
	if err != nil {
		return err
	}
	out.Operation, out.Wanted, out.Reason = fleet.OperationID(d.Newest), running > 0, d.Reason
	out.Force, out.Began, out.Deadline = d.Forced, d.AskedAt, d.Deadline
	if out.At, err = q.Now(ctx); err != nil {
		return err
	}
	if err := seePlace(ctx, q, out); err != nil {
		return err
	}
	if err := seeMove(ctx, q, out); err != nil {
		return err
	}
	if err := seeBefore(ctx, q, out); err != nil {
		return err
	}
	rows, err := q.ConnectionsOfDrain(ctx, &d.Node)
	for _, c := range rows {
		out.Connections = append(out.Connections, fleet.DrainConnection{
			ID: fleet.ConnectionID(c.ID), Provider: fleet.ProviderName(c.Provider), State: fleet.ConnectionState(c.State),
			Reason: fleet.ConnectionEvent(c.Reason), InFlight: int(c.InFlight), Asked: c.Asked, Acked: c.Acked,
		})
	}
	return err
}

// seeBefore reads how the node was connected before, and whether it could be again.
func seeBefore(ctx context.Context, q *db.Queries, out *fleet.DrainSeen) (err error) {
	if out.There, err = q.LinkThere(ctx); err != nil {
		return err
	}
	rows, err := q.ConnectionsBeforeDrain(ctx, new(string(out.Node)))
	for _, c := range rows {
		out.Before = append(out.Before, fleet.DrainConnection{
			ID: fleet.ConnectionID(c.ID), Provider: fleet.ProviderName(c.Provider), State: fleet.ConnectionState(c.State),
			Reason: fleet.ConnectionEvent(c.Reason), EndedAt: c.EndedAt,
		})
	}
	return err
}

// seePlace reads what the node runs, and where else that could run.
func seePlace(ctx context.Context, q *db.Queries, out *fleet.DrainSeen) error {
	n, err := q.GetNode(ctx, string(out.Node))
	if err != nil {
		return err
	}
	out.Site, out.Removed = fleet.SiteName(n.Site), n.RemovedAt != nil
	running, err := q.CountRunningOn(ctx, n.Name)
	if err != nil {
		return err
	}
	out.Running = int(running)
	there, err := q.CountReplicasOn(ctx, n.Name)
	if err != nil {
		return err
	}
	out.Replicas, out.Live = int(there.Replicas), int(there.Live)
	if err := seeGivenUp(ctx, q, out); err != nil {
		return err
	}
	orphans, err := q.CountOrphanReplicasOn(ctx, n.Name)
	if err != nil {
		return err
	}
	out.Orphans = int(orphans)
	peers, err := q.PeersForDrain(ctx, db.PeersForDrainParams{Site: n.Site, Node: n.Name})
	for _, p := range peers {
		if out.Peer == nil || p.Ready {
			out.Peer = &fleet.DrainPeer{Node: fleet.NodeName(p.Name), Ready: p.Ready}
		}
	}
	return err
}

// seeGivenUp reads what of the node's replicas will not move by itself.
func seeGivenUp(ctx context.Context, q *db.Queries, out *fleet.DrainSeen) error {
	if out.Live == 0 {
		return nil
	}
	stay, err := q.GivenUpOn(ctx, db.GivenUpOnParams{Site: string(out.Site), Node: string(out.Node)})
	if err != nil {
		return err
	}
	out.GivenUp = int(stay.Replicas)
	for _, name := range stay.Deployments {
		out.GivenUpOf = append(out.GivenUpOf, fleet.DeploymentName(name))
	}
	return nil
}

// seeMove reads where the site's lease is, and what the drain asked of it.
func seeMove(ctx context.Context, q *db.Queries, out *fleet.DrainSeen) error {
	lease, err := q.GetLease(ctx, string(out.Site))
	if postgres.NoRows(err) {
		return nil
	}
	if err != nil {
		return err
	}
	moves, err := q.FailoversOfDrain(ctx, db.FailoversOfDrainParams{Node: string(out.Node), Since: out.Began})
	if err != nil {
		return err
	}
	last := lease.Holder == string(out.Node)
	out.Holds, out.Vacant = last && !lease.Released, last && lease.Released && moves.Asked > 0
	out.Failover = fleet.OperationID(moves.Running)
	return nil
}

// AskConnections asks those of a node's connections to drain that still live, by the deadline
// of its drain; from then on nothing is sent to them (C68).
func (s *Store) AskConnections(ctx context.Context, node fleet.NodeName, ids []fleet.ConnectionID) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		asked, err := q.AskConnectionsOfDrain(ctx, db.AskConnectionsOfDrainParams{Node: string(node), Ids: postgres.TextOf(ids)})
		if err != nil {
			return err
		}
		return tellLinkAll(ctx, q, asked, postgres.DrainAsked)
	})
}

// CutConnections ends those of a node's connections whose deadline passed (C66). Their server
// does so by itself, and sooner, while it lives.
func (s *Store) CutConnections(ctx context.Context, node fleet.NodeName, ids []fleet.ConnectionID) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		cut, err := q.CutConnectionsOfDrain(ctx, db.CutConnectionsOfDrainParams{
			Reason: string(fleet.DrainDeadline), Node: string(node), Ids: postgres.TextOf(ids), States: statesLeft(fleet.DrainDeadline),
		})
		if err != nil {
			return err
		}
		return tellLinkAll(ctx, q, cut, fleet.DrainDeadline)
	})
}

func tellLinkAll(ctx context.Context, q *db.Queries, ids []string, event fleet.ConnectionEvent) error {
	for _, id := range ids {
		if err := postgres.TellLink(ctx, q, fleet.ConnectionID(id), event); err != nil {
			return err
		}
	}
	return nil
}

// EndDrain ends a drain and its operations, unless one was requested after it was
// read; a cancelled one only if no operation waits. One that did not succeed cancels what it asked of
// its site's lease. The same end again changes nothing.
func (s *Store) EndDrain(ctx context.Context, e fleet.DrainEnd) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if _, _, err := LockNodes(ctx, q, ReconcileRequest{Node: e.Node}); err != nil && fleet.KindOf(err) != fleet.NotFound {
			return err
		}
		ended, err := q.EndNodeDrain(ctx, db.EndNodeDrainParams{
			Rule: e.Reason, Message: e.Message, Node: string(e.Node), Newest: string(e.Operation),
			OnlyUnwanted: e.State == fleet.OperationCancelled,
		})
		if err != nil || ended == 0 {
			return err
		}
		if e.State != fleet.OperationSucceeded {
			moves, err := q.CancelFailoversOfDrain(ctx, string(e.Node))
			if err != nil {
				return err
			}
			if err := postgres.PutOutbox(ctx, q, moves...); err != nil {
				return err
			}
		}
		how := postgres.Ending{Kind: fleet.OperationDrain, State: e.State, Reason: e.Reason, Message: e.Message}
		return postgres.EndOperations(ctx, q, fleet.DrainSubject(e.Node), how)
	})
}

// CancelDrain ends an operation at once. Its node stays cordoned; the entity ends the drain when no other operation waits.
func CancelDrain(ctx context.Context, q *db.Queries, o *postgres.Operation) error {
	end := postgres.EndsCancelled("it was cancelled; node " + string(o.Node) + " stays cordoned, and its connection keeps draining")
	if err := end(ctx, q, o); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, q, o.Subject)
}

// NodeDrain is the last drain of a node, as people see it.
type NodeDrain struct {
	Operation         fleet.OperationID
	Reason            string
	Force             bool
	Phase             fleet.DrainPhase
	Rule, Message     string
	InFlight          int64 // now
	AskedAt, Deadline time.Time
	EndedAt           *time.Time
}

// NodeDrains reads the last drain of each node that had one.
func (s *Store) NodeDrains(ctx context.Context, nodes ...fleet.NodeName) (map[fleet.NodeName]NodeDrain, error) {
	rows, err := s.Q.NodeDrains(ctx, postgres.TextOf(nodes))
	out := make(map[fleet.NodeName]NodeDrain, len(rows))
	for _, r := range rows {
		d := r.NodeDrain
		out[fleet.NodeName(d.Node)] = NodeDrain{
			Operation: fleet.OperationID(d.Newest), Reason: d.Reason, Force: d.Forced, Phase: fleet.DrainPhase(d.Phase),
			Rule: d.Rule, Message: d.Message, InFlight: r.InFlight, AskedAt: d.AskedAt, Deadline: d.Deadline, EndedAt: d.EndedAt,
		}
	}
	return out, err
}

// hurryDrains wakes the drains that wait for connections which have ended.
func (s *Store) hurryDrains(ctx context.Context, connections []string) error {
	if len(connections) == 0 {
		return nil
	}
	nodes, err := s.Q.DrainsOfConnections(ctx, connections)
	if err != nil || len(nodes) == 0 {
		return err
	}
	subjects := make([]string, len(nodes))
	for i, n := range nodes {
		subjects[i] = fleet.DrainSubject(fleet.NodeName(n))
	}
	return postgres.PutOutbox(ctx, s.Q, subjects...)
}
