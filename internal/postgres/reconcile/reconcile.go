package reconcile

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// releaseLimit bounds an operation that the region opens by itself.
const releaseLimit = time.Hour

// ComparePage gives one page of what a node of the pair said it holds otherwise than it is
// deployed, by name. next is "" on the last page.
func (s *Store) ComparePage(ctx context.Context, node fleet.NodeName, after string, limit int32) (page []fleet.Comparison, next string, err error) {
	n, err := s.Q.GetNode(ctx, string(node))
	if postgres.NoRows(err) {
		return nil, "", postgres.OrNotFound(nil, "node", string(node), "holdfast get nodes")
	}
	if err != nil || n.Role == string(fleet.RoleWorker) {
		return nil, "", err
	}
	drifted, err := s.Q.DriftOfNode(ctx, db.DriftOfNodeParams{Node: n.Name, Site: n.Site, After: after, MaxRows: limit})
	if err != nil || len(drifted) == 0 {
		return nil, "", err
	}
	rows, err := s.Q.RevisionsOfNames(ctx, db.RevisionsOfNamesParams{Site: n.Site, Names: drifted})
	if err != nil {
		return nil, "", err
	}
	page, err = s.compare(ctx, n, rows)
	if len(drifted) == int(limit) {
		next = drifted[len(drifted)-1]
	}
	return page, next, err
}

func (s *Store) compare(ctx context.Context, n db.Node, rows []db.RevisionsOfNamesRow) ([]fleet.Comparison, error) {
	names := make([]string, len(rows))
	for i, r := range rows {
		names[i] = r.Name
	}
	held, err := s.heldBy(ctx, n, names)
	if err != nil {
		return nil, err
	}
	open, err := s.Q.ExpectedOfNode(ctx, db.ExpectedOfNodeParams{Site: n.Site, Names: names, Node: n.Name})
	if err != nil {
		return nil, err
	}
	expected := map[string]bool{}
	for _, name := range open {
		expected[name] = true
	}
	lease, err := s.Q.GetLease(ctx, n.Site)
	if err != nil && !postgres.NoRows(err) {
		return nil, err
	}
	page := make([]fleet.Comparison, len(rows))
	for i, r := range rows {
		page[i] = fleet.Comparison{
			Instance: fleet.InstanceName(r.Name), Held: held[r.Name], Expected: expected[r.Name], Active: lease.Holder == n.Name,
			Snapshot: fleet.Revision{
				Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Action: fleet.Action(r.Action),
				Content: fleet.Content{Hash: postgres.HashText(r.BodyHash)}, RunHash: postgres.HashText(r.RunHash), Enabled: r.Enabled,
			},
			Desired: fleet.Revision{
				Version: fleet.Version{Era: r.DesiredEra, Revision: r.DesiredRevision}, Action: fleet.Action(r.DesiredAction),
				Content: fleet.Content{Hash: postgres.HashText(r.DesiredHash)},
			},
		}
	}
	return page, nil
}

// heldBy is what a node said it holds, by name.
func (s *Store) heldBy(ctx context.Context, n db.Node, names []string) (map[string]fleet.Held, error) {
	list, err := s.Q.HeldByNode(ctx, db.HeldByNodeParams{Node: n.Name, Names: names})
	if err != nil {
		return nil, err
	}
	held := map[string]fleet.Held{}
	for _, h := range list {
		held[h.Name] = fleet.Held{
			Known: true, HighWater: fleet.Version{Era: h.HighEra, Revision: h.HighRevision},
			Revision: fleet.Revision{
				Version: fleet.Version{Era: h.Era, Revision: h.Revision},
				Content: fleet.Content{Hash: postgres.HashText(h.Hash)}, Enabled: h.Enabled,
			},
		}
	}
	return held, nil
}

// Owe writes that a node should hold the deployed revision of an instance, due now, with
// the outbox row of its entity, whose id is given back. A revision that is not the
// deployed one any more changes nothing: its own delivery serves the node.
func (s *Store) Owe(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (string, error) {
	return s.mend(ctx, node, name, func(q *db.Queries, key fleet.ObjectKey) (bool, error) {
		snap, err := deliveries.Snapshot(ctx, q, key)
		if err != nil || snap == nil || snap.Revision != revision.Revision {
			return false, err
		}
		return true, oweAgain(ctx, q, node, snap)
	})
}

func oweAgain(ctx context.Context, q *db.Queries, node fleet.NodeName, r *db.Revision) error {
	owe := deliveries.Owing{Site: r.Site, Node: string(node), Due: true}
	owe.Add(r.Name, r.Revision, r.Action, "reconcile")
	return owe.Write(ctx, q)
}

// SettleAgain takes back the word that the active did not apply the revision that was
// released last, so that it is asked again. Without an attempt to settle, it is owed the
// revision, which it only has to confirm.
func (s *Store) SettleAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (string, error) {
	return s.mend(ctx, node, name, func(q *db.Queries, key fleet.ObjectKey) (bool, error) {
		want, err := deliveries.Desired(ctx, q, key)
		if err != nil || want == nil || want.Revision != revision.Revision {
			return false, err
		}
		p := db.ReopenSettledParams{Site: key.Scope, Name: key.Name, Revision: want.Revision, Node: string(node)}
		n, err := q.ReopenSettled(ctx, p)
		if err != nil || n > 0 {
			return n > 0, err
		}
		return true, oweAgain(ctx, q, node, want)
	})
}

// ReleaseAgain numbers the deployed content anew, above what a node turned out to hold; what
// is being deleted, or is gone, is deleted again. While anybody waits for another revision,
// that one comes first.
func (s *Store) ReleaseAgain(ctx context.Context, node fleet.NodeName, name fleet.InstanceName, revision fleet.Version) (string, error) {
	return s.mend(ctx, node, name, func(q *db.Queries, key fleet.ObjectKey) (bool, error) {
		running, err := q.CountRunning(ctx, db.CountRunningParams{Subject: fleet.InstanceSubject(fleet.SiteName(key.Scope), name)})
		if err != nil || running > 0 {
			return false, err
		}
		snap, err := deliveries.Snapshot(ctx, q, key)
		if err != nil || snap == nil || snap.Revision != revision.Revision {
			return false, err
		}
		o, err := objectOrTombstone(ctx, q, key, snap)
		if err != nil {
			return false, err
		}
		t := deliveries.InstanceTurn{
			Write: postgres.Write{Request: postgres.Request{Actor: "region", Limit: releaseLimit}, Key: key}, Kind: fleet.OperationDeploy,
			Reason: "node " + string(node) + " holds a revision that was never recorded",
		}
		if o.DeletingSince != nil || snap.Action == string(fleet.ActionDelete) {
			t.Kind = fleet.OperationDelete
		}
		return true, deliveries.On(s.Store).ReleaseNext(ctx, q, snap, t, o)
	})
}

// objectOrTombstone is the object, or what is still known of one that was deleted.
func objectOrTombstone(ctx context.Context, q *db.Queries, key fleet.ObjectKey, last *db.Revision) (*fleet.Object, error) {
	o, err := postgres.Find(ctx, q, key)
	if err != nil || o != nil {
		return o, err
	}
	project, err := q.LastProject(ctx, db.LastProjectParams{Site: key.Scope, Name: key.Name})
	if err != nil {
		return nil, err
	}
	return &fleet.Object{
		ObjectKey: key, Project: fleet.ProjectName(project), Generation: last.Generation, Spec: last.Spec,
		DeletingSince: &last.CreatedAt,
	}, nil
}

// mend makes one repair under the instance's lock, with the outbox row of its entity, whose
// id is given back; "" when there was nothing to do.
func (s *Store) mend(ctx context.Context, node fleet.NodeName, name fleet.InstanceName,
	f func(q *db.Queries, key fleet.ObjectKey) (done bool, err error),
) (string, error) {
	n, err := s.Q.GetNode(ctx, string(node))
	if err != nil {
		return "", err
	}
	key := fleet.InstanceKey(fleet.SiteName(n.Site), name)
	subject := ""
	err = s.Tx(ctx, func(q *db.Queries) error {
		subject = ""
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		done, err := f(q, key)
		if err != nil || !done {
			return err
		}
		subject = fleet.InstanceSubject(fleet.SiteName(n.Site), name)
		return postgres.PutOutbox(ctx, q, subject)
	})
	return subject, err
}
