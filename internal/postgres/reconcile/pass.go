package reconcile

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// keptReconciles is how many ended comparisons of a node are kept.
const keptReconciles = 20

// BeginReconcile writes a comparison down, takes over the node's operations and its outbox
// rows, and returns what the node gets.
func (s *Store) BeginReconcile(ctx context.Context, in fleet.ReconcileStart) (fleet.ReconcileBegun, error) {
	var out fleet.ReconcileBegun
	subject := fleet.NodeSubject(in.Node)
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = fleet.ReconcileBegun{}
		n, err := q.GetNode(ctx, string(in.Node))
		if postgres.NoRows(err) {
			return postgres.OrNotFound(nil, "node", string(in.Node), "holdfast get nodes")
		}
		if err != nil {
			return err
		}
		if err := postgres.Serve(ctx, q, postgres.Server{Run: in.Run, Build: in.Build}, subject); err != nil {
			return err
		}
		if out.By, err = q.Now(ctx); err != nil {
			return err
		}
		if out.Why = cannotCompare(n); out.Why != "" {
			return nil
		}
		return s.beginReconcile(ctx, q, in, n, &out)
	})
	return out, err
}

// cannotCompare says why a node has nothing to compare with, "" when it has.
func cannotCompare(n db.Node) string {
	switch {
	case n.RemovedAt != nil:
		return "node_removed"
	case n.Role == string(fleet.RoleWorker):
		return "worker_holds_no_instances"
	case n.SealingKey == nil || n.RevokedAt != nil:
		return "node_not_enrolled"
	}
	return ""
}

func (s *Store) beginReconcile(ctx context.Context, q *db.Queries, in fleet.ReconcileStart, n db.Node, out *fleet.ReconcileBegun) error {
	err := q.InsertReconcile(ctx, db.InsertReconcileParams{
		ID: in.ID, Node: n.Name, Site: n.Site, Reason: in.Reason, TokenHash: in.TokenHash, Run: in.Run, Seconds: in.TokenLife.Seconds(),
	})
	if err != nil {
		return err
	}
	if err := q.EndOtherReconciles(ctx, db.EndOtherReconcilesParams{Node: n.Name, ID: in.ID}); err != nil {
		return err
	}
	if err := q.ForgetReconciles(ctx, db.ForgetReconcilesParams{Node: n.Name, Keep: keptReconciles}); err != nil {
		return err
	}
	at, err := nodes.On(s.Store).Welcome(ctx, q, in.Node)
	if err != nil {
		return err
	}
	out.SealingKey = n.SealingKey
	out.Command = &fleet.ReconcileCommand{ID: in.ID, Site: fleet.SiteName(n.Site), Role: at.Role, Epoch: at.Epoch, Files: in.Files}
	return nil
}

// Pass is a comparison as its token finds it.
type Pass struct {
	ID   string
	Node fleet.NodeName
	Site fleet.SiteName
}

// ReconcileOf finds the running comparison that a token opens, and keeps the token alive.
func (s *Store) ReconcileOf(ctx context.Context, tokenHash []byte, life time.Duration) (Pass, error) {
	r, err := s.Q.UseReconcileToken(ctx, db.UseReconcileTokenParams{TokenHash: tokenHash, Seconds: life.Seconds()})
	if postgres.NoRows(err) {
		return Pass{}, fleet.Errorf(fleet.Unauthenticated, "the token is not valid for a comparison under way")
	}
	return Pass{r.ID, fleet.NodeName(r.Node), fleet.SiteName(r.Site)}, err
}

// ReportReconcile stores a node's result of a comparison. A node that was asked to wait
// for an operator by none but earlier passes has nothing listed any more.
func (s *Store) ReportReconcile(ctx context.Context, pass Pass, report fleet.ReconcileReport) error {
	raw, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.ReportReconcile(ctx, db.ReportReconcileParams{ID: pass.ID, Report: raw})
		if err != nil || n == 0 || report.Refused != "" || report.Unchanged {
			return err
		}
		p := db.ForgetOrphansParams{Node: string(pass.Node), Reconcile: pass.ID}
		return q.ForgetOrphans(ctx, p)
	})
}

// EndReconcile ends a comparison; the same end again changes nothing.
func (s *Store) EndReconcile(ctx context.Context, e fleet.ReconcileEnd) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if e.ID != "" {
			state := "succeeded"
			if e.State != fleet.OperationSucceeded {
				state = "failed"
			}
			if _, err := q.EndReconcile(ctx, db.EndReconcileParams{ID: e.ID, State: state, Message: e.Message}); err != nil {
				return err
			}
		}
		return q.EndNodeOperations(ctx, db.EndNodeOperationsParams{
			Subject: fleet.NodeSubject(e.Node), State: string(e.State), Reason: e.Reason, Message: e.Message, AskedBy: e.By,
		})
	})
}

// Reconcile is one comparison of a node, as operators see it.
type Reconcile struct {
	ID        string
	Node      fleet.NodeName
	Reason    string
	State     string
	Message   string
	Report    fleet.ReconcileReport
	CreatedAt time.Time
	EndedAt   *time.Time
}

// ListReconciles gives the newest comparisons of a node.
func (s *Store) ListReconciles(ctx context.Context, node fleet.NodeName, limit int32) ([]Reconcile, error) {
	rows, err := s.Q.ListReconciles(ctx, db.ListReconcilesParams{Node: string(node), MaxRows: limit})
	if err != nil {
		return nil, err
	}
	out := make([]Reconcile, len(rows))
	for i, r := range rows {
		out[i] = Reconcile{
			ID: r.ID, Node: fleet.NodeName(r.Node), Reason: r.Reason, State: r.State, Message: r.Message,
			CreatedAt: r.CreatedAt, EndedAt: r.EndedAt,
		}
		if err := json.Unmarshal(r.Report, &out[i].Report); err != nil {
			return nil, postgres.Unreadable("a comparison's report", err)
		}
	}
	return out, nil
}

// PeersOf gives the other nodes of a node's pair that have started.
func (s *Store) PeersOf(ctx context.Context, node fleet.NodeName) ([]fleet.NodeName, error) {
	rows, err := s.Q.PeersOf(ctx, string(node))
	out := make([]fleet.NodeName, len(rows))
	for i, r := range rows {
		out[i] = fleet.NodeName(r)
	}
	return out, err
}

// NodeShard is a part of the nodes, and when one of them is due: not compared for Full, or
// holding otherwise than what is deployed for longer than Settle; not when unheard of for Lost.
type NodeShard struct {
	Shard, Shards      int
	Full, Settle, Lost time.Duration
}

// NodesToReconcile gives one page of the nodes of a shard that are due, by name.
func (s *Store) NodesToReconcile(ctx context.Context, in NodeShard, after string, limit int32) ([]fleet.NodeName, error) {
	rows, err := s.Q.NodesToReconcile(ctx, db.NodesToReconcileParams{
		After: after, Shards: int64(in.Shards), Shard: int64(in.Shard), MaxRows: limit,
		LostSeconds: in.Lost.Seconds(), FullSeconds: in.Full.Seconds(), SettleSeconds: in.Settle.Seconds(),
	})
	out := make([]fleet.NodeName, len(rows))
	for i, r := range rows {
		out[i] = fleet.NodeName(r)
	}
	return out, err
}

// CountPairNodes counts the nodes that hold instances.
func (s *Store) CountPairNodes(ctx context.Context) (int, error) {
	n, err := s.Q.CountPairNodes(ctx)
	return int(n), err
}
