package deliveries

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// PrepareBatch makes the notify of one node: it re-reads who holds the lease, marks what the
// node is notified of, and writes the token's hash, bound to the node. It is nil when there is
// nothing to tell, or the world has moved since the batch was claimed, or the node did not enrol in time.
func (s *Store) PrepareBatch(ctx context.Context, in fleet.BatchPrepare) (*fleet.BatchNotify, error) {
	var out *fleet.BatchNotify
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = nil
		b, err := q.GetBatch(ctx, string(in.ID))
		if err != nil {
			return noBatch(err, in.ID)
		}
		if err := lockSubjects(ctx, q, b); err != nil {
			return err
		}
		if b, err = q.GetBatch(ctx, b.ID); err != nil || b.State != batchOpen {
			return err
		}
		out, err = prepareBatch(ctx, q, b, in)
		return err
	})
	return out, err
}

func noBatch(err error, id fleet.BatchID) error {
	if postgres.NoRows(err) {
		return fleet.Errorf(fleet.NotFound, "batch %s not found", id)
	}
	return err
}

// lockSubjects keeps other runs from taking a step of an instance of the batch.
func lockSubjects(ctx context.Context, q *db.Queries, b db.Batch) error {
	names, err := q.NamesOfBatch(ctx, b.ID)
	if err != nil {
		return err
	}
	_, err = lockNames(ctx, q, b.Site, names...)
	return err
}

// telling is what a node is notified of.
type telling struct {
	items []fleet.BatchItem // as far as their digest goes
	ids   []string
	first []string // of which no node was notified yet
	last  int64    // the notify before
}

func toTell(ctx context.Context, q *db.Queries, b db.Batch, in fleet.BatchPrepare) (telling, error) {
	var out telling
	rows, err := q.ItemsToTell(ctx, db.ItemsToTellParams{Node: string(in.Node), BatchID: b.ID})
	for _, r := range rows {
		out.last = max(out.last, r.Notice)
		seen := fleet.TargetSeen{State: fleet.TargetState(r.State), Tries: int(r.Tries), Reason: fleet.Kind(r.Reason), Ahead: r.Ahead}
		tell := r.Open && r.Turn && decide.MayNotify(seen, in.Tries)
		if tell {
			out.ids = append(out.ids, r.ID)
			out.items = append(out.items, fleet.BatchItem{
				DeploymentID: r.ID, Instance: fleet.InstanceName(r.Name),
				Revision: RevisionOf(&db.Revision{
					Era: r.Era, Revision: r.Revision, Action: r.Action, BodyHash: r.BodyHash, RunHash: r.RunHash, Enabled: r.Enabled,
				}),
			})
		}
		if tell && r.First {
			out.first = append(out.first, r.ID)
		}
	}
	return out, err
}

func prepareBatch(ctx context.Context, q *db.Queries, b db.Batch, in fleet.BatchPrepare) (*fleet.BatchNotify, error) {
	tell, err := toTell(ctx, q, b, in)
	if err != nil || len(tell.ids) == 0 {
		return nil, err
	}
	node, err := q.GetNode(ctx, string(in.Node))
	if err != nil && !postgres.NoRows(err) {
		return nil, err
	}
	if err != nil || !tellable(node) {
		return waitToEnrol(ctx, q, b, in, tell.ids)
	}
	lease, err := q.LockLease(ctx, b.Site)
	if postgres.NoRows(err) || err == nil && lease.Epoch != b.Epoch {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := tellNode(ctx, q, b, in, tell); err != nil {
		return nil, err
	}
	return &fleet.BatchNotify{SealingKey: node.SealingKey, Command: fleet.BatchCommand{
		BatchID: in.ID, Site: fleet.SiteName(b.Site), Role: nodes.RoleOf(node, lease.Holder), Epoch: b.Epoch,
		Count: len(tell.items), Digest: fleet.BatchDigest(tell.items), Stage: b.Stage, DeployedBy: b.Actor, Timestamp: time.Now().UTC(),
	}}, nil
}

func tellable(n db.Node) bool { return n.SealingKey != nil && n.RevokedAt == nil && n.RemovedAt == nil }

// waitToEnrol records that the batch waits for the node to enrol. It is nil once that took too long.
func waitToEnrol(ctx context.Context, q *db.Queries, b db.Batch, in fleet.BatchPrepare, ids []string) (*fleet.BatchNotify, error) {
	p := db.RecordTargetsParams{Node: string(in.Node), Ids: ids}
	for range ids {
		p.States, p.Already, p.Fetched = append(p.States, string(fleet.TargetWaiting)), append(p.Already, false), append(p.Fetched, 0)
		p.Reasons, p.Messages = append(p.Reasons, string(fleet.Unavailable)), append(p.Messages, waitsToEnrol)
	}
	if _, err := recordTargets(ctx, q, p); err != nil {
		return nil, err
	}
	now, err := q.Now(ctx)
	if err != nil {
		return nil, err
	}
	if wait := decide.EnrolWait(now.Sub(b.CreatedAt), in.Take); wait > 0 {
		return &fleet.BatchNotify{Wait: wait}, nil
	}
	return nil, nil
}

// tellNode marks what the node is notified of, which is exactly what it can fetch.
func tellNode(ctx context.Context, q *db.Queries, b db.Batch, in fleet.BatchPrepare, tell telling) error {
	if err := q.TellTargets(ctx, db.TellTargetsParams{Notice: tell.last + 1, Ids: tell.ids, Node: string(in.Node)}); err != nil {
		return err
	}
	if len(tell.first) > 0 {
		if err := setPhase(ctx, q, phaseNotified, tell.first...); err != nil {
			return err
		}
	}
	extend := db.ExtendPendingManyParams{
		Deadline: b.DeadlineAt, Seconds: in.TTL.Seconds(), SpareSeconds: spared(in.TTL).Seconds(), Ids: tell.ids,
	}
	if err := q.ExtendPendingMany(ctx, extend); err != nil {
		return err
	}
	offer := db.OfferPendingManyParams{
		Deadline: b.DeadlineAt, Seconds: extend.SpareSeconds, Ids: tell.ids, Open: string(fleet.DeliveryOpen),
	}
	if err := q.OfferPendingMany(ctx, offer); err != nil {
		return err
	}
	return q.PutFetchToken(ctx, db.PutFetchTokenParams{
		DeploymentID: b.ID, Node: string(in.Node), Hash: in.TokenHash, Seconds: max(in.TTL, time.Until(b.DeadlineAt)).Seconds(),
	})
}

// spared is a time a tenth longer: what is to be held for so long at each of a few notifies is
// then written at the first.
func spared(ttl time.Duration) time.Duration { return ttl + ttl/10 }

// BatchItems lists the items of the newest notify of a node. What was superseded, cut
// short or applied since stays in it, marked as gone: the digest of the notify holds.
func (s *Store) BatchItems(ctx context.Context, id fleet.BatchID, node fleet.NodeName) ([]fleet.BatchItem, error) {
	rows, err := s.Q.ItemsTold(ctx, db.ItemsToldParams{Node: string(node), BatchID: string(id)})
	if err != nil {
		return nil, err
	}
	last := int64(0)
	for i := range rows {
		last = max(last, rows[i].Notice)
	}
	rows = slices.DeleteFunc(rows, func(r db.ItemsToldRow) bool { return r.Notice != last })
	out := make([]fleet.BatchItem, len(rows))
	for i, r := range rows {
		out[i] = fleet.BatchItem{
			DeploymentID: r.ID, Instance: fleet.InstanceName(r.Name), Gone: r.Gone,
			Revision: RevisionOf(&db.Revision{
				Era: r.Era, Revision: r.Revision, Action: r.Action, ContentKind: r.ContentKind, BodyHash: r.BodyHash, Size: r.Size,
				RunHash: r.RunHash, Enabled: r.Enabled,
			}),
		}
		if !r.Gone {
			out[i].Run = r.Run
		}
	}
	return out, nil
}
