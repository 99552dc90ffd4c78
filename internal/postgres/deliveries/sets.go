package deliveries

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// What a delivery writes is written for a set of instances of one site, with one statement a
// step. A single delivery is a set of one.

// lockNames locks the subjects of some instances, and gives those that were ever released.
func lockNames(ctx context.Context, q *db.Queries, site string, names ...string) (map[string]db.Subject, error) {
	rows, err := q.LockSubjects(ctx, db.LockSubjectsParams{Site: site, Names: names})
	return byName(rows, func(s db.Subject) string { return s.Name }), err
}

// revisionRows are revisions to be stored.
type revisionRows db.InsertRevisionsParams

// revisionRow is one of them: what is released, under its number.
type revisionRow struct {
	*release
	Name       string
	Revision   int64
	Action     string
	Generation int64
	Spec       []byte
}

func (r *revisionRows) add(n revisionRow) {
	r.Names, r.Revisions, r.Actions = append(r.Names, n.Name), append(r.Revisions, n.Revision), append(r.Actions, n.Action)
	r.ContentKinds, r.BodyHashes = append(r.ContentKinds, string(n.Content.Kind)), append(r.BodyHashes, postgres.HashBytes(n.Content.Hash))
	r.Sizes, r.Runs = append(r.Sizes, n.Content.Size), append(r.Runs, string(n.Run))
	r.RunHashes, r.Enabled = append(r.RunHashes, postgres.HashBytes(n.RunHash)), append(r.Enabled, n.Enabled)
	r.Durabilities, r.Generations = append(r.Durabilities, string(n.Durability)), append(r.Generations, n.Generation)
	r.Specs = append(r.Specs, string(n.Spec))
}

func (r revisionRows) write(ctx context.Context, q *db.Queries) error {
	if len(r.Names) == 0 {
		return nil
	}
	return q.InsertRevisions(ctx, db.InsertRevisionsParams(r))
}

// supersede ends what is open of some instances, every pending row of them, and what was staged.
func supersede(ctx context.Context, q *db.Queries, site string, names ...string) error {
	if err := q.SupersedeOpen(ctx, db.SupersedeOpenParams{Site: site, Names: names}); err != nil {
		return err
	}
	if err := q.SettleStaged(ctx, db.SettleStagedParams{Site: site, Names: names}); err != nil {
		return err
	}
	return q.DeletePendingOf(ctx, db.DeletePendingOfParams{Site: site, Names: names})
}

// endedRows are open deliveries to be ended, with their pending rows.
type endedRows db.EndDeliveriesParams

// add ends one; what it settled as is "" while unknown.
func (r *endedRows) add(id string, e fleet.End, settledAs string) {
	r.Ids, r.States, r.Reasons = append(r.Ids, id), append(r.States, string(e.State)), append(r.Reasons, e.Reason)
	r.Messages, r.SettledAs = append(r.Messages, e.Message), append(r.SettledAs, settledAs)
}

// write is guarded by their state: what has ended stays as it ended.
func (r endedRows) write(ctx context.Context, q *db.Queries) error {
	r.Open = string(fleet.DeliveryOpen)
	if err := q.EndDeliveries(ctx, db.EndDeliveriesParams(r)); err != nil {
		return err
	}
	return q.ClosePending(ctx, r.Ids)
}

// Owing is what one node is owed of some instances.
type Owing db.UpsertOwedParams

// Add owes a revision.
func (o *Owing) Add(name string, revision int64, action, reason string) {
	o.Names, o.Revisions = append(o.Names, name), append(o.Revisions, revision)
	o.Actions, o.Reasons = append(o.Actions, action), append(o.Reasons, reason)
}

// Write writes it where nothing newer is owed.
func (o Owing) Write(ctx context.Context, q *db.Queries) error {
	if len(o.Names) == 0 {
		return nil
	}
	return q.UpsertOwed(ctx, db.UpsertOwedParams(o))
}

// parkedRows are what is owed and not tried until the node starts, reports or is swept.
type parkedRows db.ParkOwedParams

func (r *parkedRows) add(name string, node fleet.NodeName, reason string) {
	r.Names, r.Nodes, r.Reasons = append(r.Names, name), append(r.Nodes, string(node)), append(r.Reasons, reason)
}

func (r parkedRows) write(ctx context.Context, q *db.Queries) error {
	if len(r.Names) == 0 {
		return nil
	}
	return q.ParkOwed(ctx, db.ParkOwedParams(r))
}

// attach makes a run the current one of some instances, and has it serve what they were asked.
func attach(ctx context.Context, q *db.Queries, by postgres.Server, site fleet.SiteName, names ...string) error {
	if err := q.AttachRuns(ctx, db.AttachRunsParams{Run: by.Run, Site: string(site), Names: names}); err != nil {
		return err
	}
	subjects := make([]string, len(names))
	for i, name := range names {
		subjects[i] = fleet.InstanceSubject(site, fleet.InstanceName(name))
	}
	return postgres.Serve(ctx, q, by, subjects...)
}

// promotion makes the revisions of deliveries the deployed ones (N13); it never lowers one.
type promotion db.RecordSnapshotsParams

func (p *promotion) add(d *db.Delivery) {
	p.Names, p.Revisions = append(p.Names, d.Name), append(p.Revisions, d.Revision)
	p.DeliveryIds = append(p.DeliveryIds, d.ID)
}

// write gives a row for each.
func (p promotion) write(ctx context.Context, q *db.Queries) ([]db.RecordSnapshotsRow, error) {
	rows, err := q.RecordSnapshots(ctx, db.RecordSnapshotsParams(p))
	if err == nil && len(rows) != len(p.Names) {
		err = fleet.Errorf(fleet.Internal, "%d revisions found; want %d", len(rows), len(p.Names))
	}
	return rows, err
}

// oweRest owes what is deployed now to all nodes of the pair but the one that has it.
func (p promotion) oweRest(ctx context.Context, q *db.Queries, has fleet.NodeName) error {
	return q.OweRest(ctx, db.OweRestParams{
		Site: p.Site, Names: p.Names, Revisions: p.Revisions, Has: string(has),
	})
}

func setPhase(ctx context.Context, q *db.Queries, phase string, ids ...string) error {
	p := db.SetPhaseParams{Phase: phase, Ids: ids, Open: string(fleet.DeliveryOpen)}
	return q.SetPhase(ctx, p)
}

// revisionAt reads one revision.
func revisionAt(ctx context.Context, q *db.Queries, site, name string, number int64) (*db.Revision, error) {
	rows, err := q.GetRevisions(ctx, db.GetRevisionsParams{Site: site, Names: []string{name}, Revisions: []int64{number}})
	if err == nil && len(rows) == 0 {
		err = postgres.NoRow("GetRevisions")
	}
	if err != nil {
		return nil, err
	}
	return &rows[0], nil
}

// numbered are subjects that get a revision, an attempt or both.
type numbered db.NumberSubjectsParams

func (n *numbered) add(name string, project fleet.ProjectName, raise, tries int64) {
	n.Names, n.Projects = append(n.Names, name), append(n.Projects, string(project))
	n.Raises, n.Tries = append(n.Raises, raise), append(n.Tries, tries)
}

func (n numbered) write(ctx context.Context, q *db.Queries) ([]db.NumberSubjectsRow, error) {
	rows, err := q.NumberSubjects(ctx, db.NumberSubjectsParams(n))
	return rows, err
}

// openedRows are deliveries that begin, with their pending rows and their targets.
type openedRows struct {
	rows   db.InsertDeliveriesParams
	hashes [][]byte
	sizes  []int64
}

// opened is one of them.
type opened struct {
	ID, Name, Claim         string
	Revision, Attempt, From int64
	RequestedBy             string
	Hash                    []byte
	Size                    int64
}

func (r *openedRows) add(d opened) {
	p := &r.rows
	p.Ids, p.Names, p.Claims = append(p.Ids, d.ID), append(p.Names, d.Name), append(p.Claims, d.Claim)
	p.Revisions, p.Attempts = append(p.Revisions, d.Revision), append(p.Attempts, d.Attempt)
	p.FromRevisions, p.RequestedBy = append(p.FromRevisions, d.From), append(p.RequestedBy, d.RequestedBy)
	r.hashes, r.sizes = append(r.hashes, d.Hash), append(r.sizes, d.Size)
}

// write opens them; the node that is told at once may be "".
func (r openedRows) write(ctx context.Context, q *db.Queries, ttl time.Duration, told string) error {
	p := r.rows
	if err := q.InsertDeliveries(ctx, p); err != nil {
		return err
	}
	w := db.InsertPendingParams{Site: p.Site, Seconds: ttl.Seconds(), Ids: p.Ids, Names: p.Names, Revisions: p.Revisions, Hashes: r.hashes}
	if err := q.InsertPending(ctx, w); err != nil {
		return err
	}
	t := db.InsertTargetsParams{Site: p.Site, Holder: p.Node, Told: told, Ids: p.Ids, Totals: r.sizes}
	return q.InsertTargets(ctx, t)
}
