package deliveries

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// batchClaim is an item of a batch that gets a delivery. Release is nil when the revision
// was released before.
type batchClaim struct {
	Name       string
	Object     *fleet.Object
	Before     *db.Revision // the desired one
	Release    *release
	Spec       []byte
	Generation int64
	Action     string

	ID       string
	Revision int64
	Era      int64 // if the active is notified at once
	Attempt  int64
}

// hash and size are of what is delivered.
func (c *batchClaim) content() (hash []byte, size int64) {
	if c.Release != nil {
		return postgres.HashBytes(c.Release.Content.Hash), c.Release.Content.Size
	}
	return c.Before.BodyHash, c.Before.Size
}

// write does for all claims what a PUT and a claim do for one, each step in one statement.
func (r *batchRelease) write(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		r.changeSpecs, r.number, r.insertRevisions, r.supersede, r.tell, r.insertDeliveries,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	for _, c := range r.claims {
		m := targetMove{Name: c.Name, State: fleet.FleetTargetDelivering, Tries: 1, Delivery: c.ID, Revision: c.Revision}
		if c.Before != nil {
			m.Before = c.Before.Revision
		}
		r.moves.add(m)
	}
	return nil
}

// changeSpecs writes the objects whose spec changed, each with its event.
func (r *batchRelease) changeSpecs(ctx context.Context) error {
	p := db.ChangeSpecsParams{Site: string(r.in.Site), Actor: r.in.Actor}
	for _, c := range r.claims {
		governed := r.governed[c.Name]
		if c.Release == nil || c.Generation == c.Object.Generation && governed.Same {
			continue
		}
		after := *c.Object
		after.Spec, after.Syncing = c.Spec, governed.Syncing
		p.Syncings = append(p.Syncings, string(governed.Syncing))
		p.Names, p.Generations = append(p.Names, c.Name), append(p.Generations, c.Generation)
		p.Specs = append(p.Specs, string(c.Spec))
		p.Befores, p.Afters = append(p.Befores, string(postgres.Declared(c.Object))), append(p.Afters, string(postgres.Declared(&after)))
	}
	if len(p.Names) == 0 {
		return nil
	}
	return r.q.ChangeSpecs(ctx, p)
}

// number counts the attempts, and numbers the revisions that are released (N18).
func (r *batchRelease) number(ctx context.Context) error {
	next := numbered{Site: string(r.in.Site)}
	byName := make(map[string]*batchClaim, len(r.claims))
	for _, c := range r.claims {
		raise := int64(0)
		if c.Release != nil {
			raise = 1
		}
		next.add(c.Name, c.Object.Project, raise, 1)
		byName[c.Name] = c
	}
	rows, err := next.write(ctx, r.q)
	for _, row := range rows {
		byName[row.Name].Revision, byName[row.Name].Attempt = row.DesiredRevision, row.Attempts
	}
	return err
}

func (r *batchRelease) insertRevisions(ctx context.Context) error {
	rows := revisionRows{Site: string(r.in.Site), CreatedBy: r.in.Actor, Reason: r.in.Reason}
	for _, c := range r.claims {
		if c.Release != nil {
			rows.add(revisionRow{c.Release, c.Name, c.Revision, c.Action, c.Generation, c.Spec})
		}
	}
	return rows.write(ctx, r.q)
}

// supersede ends what was under way of the same instances, and what asked for older revisions.
func (r *batchRelease) supersede(ctx context.Context) error {
	if err := supersede(ctx, r.q, string(r.in.Site), r.claimed()...); err != nil {
		return err
	}
	var ends endings
	for _, c := range r.claims {
		ends.add(r.subject(c.Name), postgres.Ending{
			To: c.Revision - 1, State: fleet.OperationSuperseded, Reason: "newer_revision", Message: "a newer revision was released",
		})
	}
	return ends.write(ctx, r.q)
}

func (r *batchRelease) claimed() []string {
	names := make([]string, len(r.claims))
	for i, c := range r.claims {
		names[i] = c.Name
	}
	return names
}

func (r *batchRelease) subject(name string) string {
	return fleet.InstanceSubject(r.in.Site, fleet.InstanceName(name))
}

func (r *batchRelease) insertDeliveries(ctx context.Context) error {
	rows := openedRows{rows: db.InsertDeliveriesParams{
		Site: string(r.in.Site), BatchID: string(r.in.ID), Node: r.lease.Holder, Epoch: r.lease.Epoch,
		WorkflowID: r.in.Workflow, RunID: r.in.Run, Seconds: r.in.Deadline.Seconds(), Phase: phasePersisted,
	}}
	told := ""
	if r.notified != nil {
		rows.rows.Phase, told = phaseNotified, r.notified.Name
	}
	a := db.AttachDeliveriesParams{Running: string(fleet.OperationRunning)}
	for _, c := range r.claims {
		id, err := postgres.NewID()
		if err != nil {
			return err
		}
		c.ID = id
		by := r.in.Actor
		if c.Release == nil {
			by = c.Before.CreatedBy
		}
		hash, size := c.content()
		rows.add(opened{
			ID: id, Name: c.Name, Claim: string(r.in.ID) + "/" + c.Name, Revision: c.Revision, Attempt: c.Attempt,
			From: r.deployed[c.Name].Revision, RequestedBy: by, Hash: hash, Size: size,
		})
		a.Subjects, a.Revisions = append(a.Subjects, r.subject(c.Name)), append(a.Revisions, c.Revision)
		a.DeliveryIds = append(a.DeliveryIds, id)
	}
	var err error
	r.nodes, err = r.q.NodesOfBatch(ctx, db.NodesOfBatchParams{Site: string(r.in.Site), Holder: r.lease.Holder})
	if err != nil {
		return err
	}
	if err := rows.write(ctx, r.q, spared(r.in.TTL), told); err != nil {
		return err
	}
	if err := r.q.HoldOperations(ctx, a.Subjects); err != nil {
		return err
	}
	return r.q.AttachDeliveries(ctx, a)
}

// endings end operations of many subjects with one statement.
type endings db.EndOperationsManyParams

func (e *endings) add(subject string, how postgres.Ending) {
	e.Subjects, e.ToRevisions = append(e.Subjects, subject), append(e.ToRevisions, how.To)
	e.States, e.Reasons = append(e.States, string(how.State)), append(e.Reasons, how.Reason)
	e.Messages, e.DeliveryIds = append(e.Messages, how.Message), append(e.DeliveryIds, string(how.Delivery))
}

func (e endings) write(ctx context.Context, q *db.Queries) error {
	if len(e.Subjects) == 0 {
		return nil
	}
	if err := q.HoldOperations(ctx, e.Subjects); err != nil {
		return err
	}
	e.Running = string(fleet.OperationRunning)
	return q.EndOperationsMany(ctx, db.EndOperationsManyParams(e))
}
