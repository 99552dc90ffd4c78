package postgres

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// releaseLimit bounds an operation that the region opens by itself.
const releaseLimit = time.Hour

// OweMissing compares one page of a site's deployed revisions with what the node said it
// holds. What the node lacks is owed and due; where it is ahead of every record, the
// deployed content is released again under a new number.
func (s *Store) OweMissing(ctx context.Context, node fleet.NodeName, after string, limit int32) (wake []string, next string, err error) {
	n, err := s.q.GetNode(ctx, string(node))
	if noRows(err) {
		return nil, "", orNotFound(nil, "node", string(node), "holdfast get nodes")
	}
	if err != nil {
		return nil, "", failed("read the node", err)
	}
	rows, err := s.q.SnapshotsOfSite(ctx, db.SnapshotsOfSiteParams{Site: n.Site, After: after, MaxRows: limit})
	if err != nil || len(rows) == 0 || n.Role == string(fleet.RoleWorker) {
		return nil, "", failed("read deployed revisions", err)
	}
	held, expected, err := s.heldPage(ctx, n, rows)
	if err != nil {
		return nil, "", err
	}
	for _, r := range rows {
		snap := fleet.Revision{
			Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
			Content: fleet.Content{Hash: hashText(r.BodyHash)}, RunHash: hashText(r.RunHash), Enabled: r.Enabled,
		}
		gap := decide.Reconcile(snap, held[r.Name], expected[r.Name])
		if gap == decide.GapNone && !expected[r.Name] {
			continue
		}
		key := fleet.ObjectKey{Kind: fleet.KindInstance, Scope: n.Site, Name: r.Name}
		if err := s.closeGap(ctx, key, n, r.Revision, gap); err != nil {
			return wake, "", err
		}
		wake = append(wake, fleet.InstanceSubject(fleet.SiteName(n.Site), fleet.InstanceName(r.Name)))
	}
	if len(rows) == int(limit) {
		next = rows[len(rows)-1].Name
	}
	return wake, next, nil
}

func (s *Store) heldPage(ctx context.Context, n db.Node, rows []db.SnapshotsOfSiteRow) (map[string]fleet.Held, map[string]bool, error) {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	list, err := s.q.HeldByNode(ctx, db.HeldByNodeParams{Node: n.Name, Names: names})
	if err != nil {
		return nil, nil, failed("read what the node holds", err)
	}
	held := map[string]fleet.Held{}
	for _, h := range list {
		held[h.Name] = fleet.Held{
			Known: true,
			Revision: fleet.Revision{
				Version: fleet.Version{Era: h.Era, Revision: h.Revision},
				Content: fleet.Content{Hash: hashText(h.Hash)}, Enabled: h.Enabled,
			},
		}
	}
	open, err := s.q.ExpectedOfNode(ctx, db.ExpectedOfNodeParams{Site: n.Site, Names: names, Node: n.Name})
	expected := map[string]bool{}
	for _, name := range open {
		expected[name] = true
	}
	return held, expected, failed("read what is under way", err)
}

// closeGap writes what one comparison came to, under the subject's lock, together with the
// outbox row that wakes its entity.
func (s *Store) closeGap(ctx context.Context, key fleet.ObjectKey, n db.Node, revision int64, gap decide.NodeGap) error {
	return s.tx(ctx, "reconcile "+key.String(), func(q *db.Queries) error {
		if err := lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		subject := fleet.InstanceSubject(fleet.SiteName(key.Scope), fleet.InstanceName(key.Name))
		snap, err := snapshot(ctx, q, key)
		if err != nil || snap == nil || snap.Revision != revision {
			return err // deployed anew since: that delivery serves the node
		}
		switch gap {
		case decide.GapNone:
		case decide.GapBehind:
			err = q.UpsertOwed(ctx, db.UpsertOwedParams{
				Site: key.Scope, Name: key.Name, Node: n.Name, Revision: revision, Action: snap.Action, Due: true, Reason: "reconcile",
			})
		case decide.GapAhead:
			err = s.releaseAgain(ctx, q, key, snap)
		}
		if err != nil {
			return failed("write what is owed", err)
		}
		return failed("write the outbox", q.PutOutbox(ctx, subject))
	})
}

// releaseAgain numbers the deployed content anew, above what a node turned out to hold.
func (s *Store) releaseAgain(ctx context.Context, q *db.Queries, key fleet.ObjectKey, snap *db.Revision) error {
	o, err := find(ctx, q, key)
	if err != nil || o == nil {
		return err
	}
	t := InstanceTurn{
		Write: Write{Key: key, Actor: "region"}, Kind: fleet.OperationDeploy,
		Reason: "a node holds a revision that was never recorded", Limit: releaseLimit,
	}
	_, err = s.release(ctx, q, revisionAgain(snap, t), o)
	return err
}
