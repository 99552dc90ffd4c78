package nodes

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// CordonRequest asks that a node is kept out of new work, or that it is let in again. It opens no operation.
type CordonRequest struct {
	postgres.Request
	Node   fleet.NodeName
	Reason string
}

// Cordon keeps a node out of new work; one that is cordoned keeps its first reason.
func (s *Store) Cordon(ctx context.Context, in CordonRequest) error {
	return s.turnCordon(ctx, in, func(q *db.Queries, site *fleet.Object) error {
		return cordon(ctx, q, in, site)
	})
}

// Uncordon lets a node in again. While it drains that is illegal_state.
func (s *Store) Uncordon(ctx context.Context, in CordonRequest) error {
	return s.turnCordon(ctx, in, func(q *db.Queries, site *fleet.Object) error {
		d, err := q.GetNodeDrain(ctx, string(in.Node))
		if err != nil && !postgres.NoRows(err) {
			return err
		}
		if err == nil && d.EndedAt == nil {
			return fleet.Errorf(fleet.IllegalState, "node %s is being drained", in.Node).At("name").
				WithHint("cancel operation " + d.Newest + " first")
		}
		reason, err := q.UncordonNode(ctx, string(in.Node))
		if postgres.NoRows(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := tellCordon(ctx, q, in.Node, site); err != nil {
			return err
		}
		return cordonEvent(ctx, q, in, site, cordonChange{before: cordoned{Cordoned: true, Reason: reason}})
	})
}

func (s *Store) turnCordon(ctx context.Context, in CordonRequest, turn func(*db.Queries, *fleet.Object) error) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		of := ReconcileRequest{Node: in.Node}
		_, site, err := LockNodes(ctx, q, of)
		if err != nil {
			return err
		}
		if !in.OfSite(site) {
			return of.Missing()
		}
		if err := turn(q, site); err != nil {
			return err
		}
		if in.DryRun {
			return postgres.ErrRollback
		}
		return nil
	})
}

func cordon(ctx context.Context, q *db.Queries, in CordonRequest, site *fleet.Object) error {
	n, err := q.CordonNode(ctx, db.CordonNodeParams{Reason: in.Reason, Name: string(in.Node)})
	if err != nil || n == 0 {
		return err
	}
	if err := tellCordon(ctx, q, in.Node, site); err != nil {
		return err
	}
	return cordonEvent(ctx, q, in, site, cordonChange{after: cordoned{Cordoned: true, Reason: in.Reason}})
}

// CordonTurned notifies listeners for connections that their node was cordoned or uncordoned.
const CordonTurned fleet.ConnectionEvent = "cordon_turned"

// tellCordon makes executor pools refresh, and the site's nodes notified: a
// cordoned one does not stand for the lease by itself.
func tellCordon(ctx context.Context, q *db.Queries, node fleet.NodeName, site *fleet.Object) error {
	name := string(node)
	ids, err := q.LiveOfNode(ctx, &name)
	if err != nil {
		return err
	}
	if err := tellLinkAll(ctx, q, ids, CordonTurned); err != nil {
		return err
	}
	return postgres.TellSite(ctx, q, site.Name)
}

// cordoned is what the feed keeps of a node's cordon.
type cordoned struct {
	Cordoned bool   `json:"cordoned"`
	Reason   string `json:"reason,omitempty"`
}

type cordonChange struct{ before, after cordoned }

// cordonEvent records who changed it. A node has no uid; the event carries its site's.
func cordonEvent(ctx context.Context, q *db.Queries, in CordonRequest, site *fleet.Object, c cordonChange) error {
	return postgres.AppendStatus(ctx, q, db.AppendEventParams{
		Kind: string(postgres.KindNode), Project: string(site.Project), Scope: site.Name, Name: string(in.Node),
		Uid: site.UID, Generation: site.Generation, Actor: in.Actor,
	}, c.before, c.after)
}
