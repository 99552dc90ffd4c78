package postgres

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// releaseLimit bounds an operation that the region opens by itself.
const releaseLimit = time.Hour

// ComparePage sets one page of a site's deployed revisions against what a node of the pair
// said it holds, by name. next is "" on the last page.
func (s *Store) ComparePage(ctx context.Context, node fleet.NodeName, after string, limit int32) (page []fleet.Comparison, next string, err error) {
	n, err := s.q.GetNode(ctx, string(node))
	if noRows(err) {
		return nil, "", orNotFound(nil, "node", string(node), "holdfast get nodes")
	}
	if err != nil || n.Role == string(fleet.RoleWorker) {
		return nil, "", failed("read the node", err)
	}
	rows, err := s.q.SnapshotsOfSite(ctx, db.SnapshotsOfSiteParams{Site: n.Site, After: after, MaxRows: limit})
	if err != nil {
		return nil, "", failed("read deployed revisions", err)
	}
	page, err = s.compare(ctx, n, rows)
	if len(rows) == int(limit) {
		next = rows[len(rows)-1].Name
	}
	return page, next, err
}

func (s *Store) compare(ctx context.Context, n db.Node, rows []db.SnapshotsOfSiteRow) ([]fleet.Comparison, error) {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	list, err := s.q.HeldByNode(ctx, db.HeldByNodeParams{Node: n.Name, Names: names})
	if err != nil {
		return nil, failed("read what the node holds", err)
	}
	held := map[string]fleet.Held{}
	for _, h := range list {
		held[h.Name] = fleet.Held{Known: true, Revision: fleet.Revision{
			Version: fleet.Version{Era: h.Era, Revision: h.Revision},
			Content: fleet.Content{Hash: hashText(h.Hash)}, Enabled: h.Enabled,
		}}
	}
	open, err := s.q.ExpectedOfNode(ctx, db.ExpectedOfNodeParams{Site: n.Site, Names: names, Node: n.Name})
	if err != nil {
		return nil, failed("read what is under way", err)
	}
	expected := map[string]bool{}
	for _, name := range open {
		expected[name] = true
	}
	page := make([]fleet.Comparison, len(rows))
	for i, r := range rows {
		page[i] = fleet.Comparison{
			Instance: fleet.InstanceName(r.Name), Held: held[r.Name], Expected: expected[r.Name],
			Snapshot: fleet.Revision{
				Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
				Content: fleet.Content{Hash: hashText(r.BodyHash)}, RunHash: hashText(r.RunHash), Enabled: r.Enabled,
			},
		}
	}
	return page, nil
}

// Owe writes that a node should hold the deployed revision of an instance, due now, with
// the outbox row of its entity, whose id is given back. A revision that is not the
// deployed one any more changes nothing: its own delivery serves the node.
func (s *Store) Owe(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (string, error) {
	return s.mend(ctx, node, name, revision, func(q *db.Queries, key fleet.ObjectKey, snap *db.Revision) error {
		return q.UpsertOwed(ctx, db.UpsertOwedParams{
			Site: key.Scope, Name: key.Name, Node: string(node), Revision: snap.Revision, Action: snap.Action,
			Due: true, Reason: "reconcile",
		})
	})
}

// ReleaseAgain numbers the deployed content anew, above what a node turned out to hold.
func (s *Store) ReleaseAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (string, error) {
	return s.mend(ctx, node, name, revision, func(q *db.Queries, key fleet.ObjectKey, snap *db.Revision) error {
		o, err := find(ctx, q, key)
		if err != nil || o == nil {
			return err
		}
		r := revisionAgain(snap, InstanceTurn{
			Write: Write{Key: key, Actor: "region"}, Kind: fleet.OperationDeploy, Limit: releaseLimit,
			Reason: "node " + string(node) + " holds a revision that was never recorded",
		})
		if snap.Action == string(fleet.ActionDelete) {
			r.Action, r.Operation = fleet.ActionDelete, fleet.OperationDelete
		}
		_, err = s.release(ctx, q, r, o)
		return err
	})
}

func (s *Store) mend(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version,
	f func(q *db.Queries, key fleet.ObjectKey, snap *db.Revision) error,
) (string, error) {
	n, err := s.q.GetNode(ctx, string(node))
	if err != nil {
		return "", failed("read the node", err)
	}
	key := fleet.InstanceKey(fleet.SiteName(n.Site), name)
	subject := fleet.InstanceSubject(fleet.SiteName(n.Site), name)
	return subject, s.tx(ctx, "reconcile "+key.String(), func(q *db.Queries) error {
		if err := lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		snap, err := snapshot(ctx, q, key)
		if err != nil || snap == nil || snap.Revision != revision.Revision {
			return err
		}
		if err := f(q, key, snap); err != nil {
			return failed("write what is owed", err)
		}
		return failed("write the outbox", q.PutOutbox(ctx, subject))
	})
}
