package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// tell is the first notify of a batch, prepared as it is released: its deliveries and targets
// are then written as notified at once. A node that cannot be notified is left to
// PrepareBatch, which reports it.
func (r *batchRelease) tell(ctx context.Context) error {
	if len(r.in.TokenHash) == 0 {
		return nil
	}
	node, err := r.q.GetNode(ctx, r.lease.Holder)
	if postgres.NoRows(err) || err == nil && !tellable(node) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.readEras(ctx); err != nil {
		return err
	}
	r.notified = &node
	return r.q.PutFetchToken(ctx, db.PutFetchTokenParams{
		DeploymentID: string(r.in.ID), Node: node.Name, Hash: r.in.TokenHash, Seconds: max(r.in.TTL, r.in.Deadline).Seconds(),
	})
}

// readEras: what was released just now has the era that its statement saw.
func (r *batchRelease) readEras(ctx context.Context) error {
	era := int64(0)
	for _, c := range r.claims {
		if c.Release == nil {
			c.Era = c.Before.Era
			continue
		}
		if era == 0 {
			written, err := revisionAt(ctx, r.q, string(r.in.Site), c.Name, c.Revision)
			if err != nil {
				return err
			}
			era = written.Era
		}
		c.Era = era
	}
	return nil
}

// notify is nil if the active is not notified here.
func (r *batchRelease) notify() *fleet.BatchNotify {
	if r.notified == nil {
		return nil
	}
	items := make([]fleet.BatchItem, len(r.claims))
	for i, c := range r.claims {
		items[i] = c.item()
	}
	return &fleet.BatchNotify{SealingKey: r.notified.SealingKey, Command: fleet.BatchCommand{
		BatchID: r.in.ID, Site: r.in.Site, Role: nodes.RoleOf(*r.notified, r.lease.Holder), Epoch: r.lease.Epoch,
		Count: len(items), Digest: fleet.BatchDigest(items), Stage: r.in.Stage, DeployedBy: r.in.Actor, Timestamp: time.Now().UTC(),
	}}
}

// item is the claim as far as the digest of its batch goes.
func (c *batchClaim) item() fleet.BatchItem {
	i := fleet.BatchItem{DeploymentID: c.ID, Instance: fleet.InstanceName(c.Name)}
	if n := c.Release; n != nil {
		i.Revision = fleet.Revision{Action: fleet.Action(c.Action), Content: n.Content, RunHash: n.RunHash, Enabled: n.Enabled}
	} else {
		i.Revision = RevisionOf(c.Before)
	}
	i.Revision.Version = fleet.Version{Era: c.Era, Revision: c.Revision}
	return i
}
