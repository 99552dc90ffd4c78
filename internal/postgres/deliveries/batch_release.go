package deliveries

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// maxTargetTries bounds how often an instance of a run is taken into a batch.
const maxTargetTries = 5

// The states of a batch.
const (
	batchOpen  = "open"
	batchEnded = "ended"
	batchLost  = "lost"
)

// ReleaseBatch writes the specs, numbers the revisions and claims the deliveries of a batch
// in one transaction (N98, X2). Items are independent: what cannot be released is recorded
// in its target, and the others continue.
func (s *Store) ReleaseBatch(ctx context.Context, in BatchRelease) (BatchReleased, error) {
	if err := in.validate(); err != nil {
		return BatchReleased{}, err
	}
	var out BatchReleased
	err := s.Tx(ctx, func(q *db.Queries) error {
		out = BatchReleased{}
		r := &batchRelease{s: s.Store, q: q, in: in}
		if err := r.lock(ctx); err != nil {
			return err
		}
		known, err := q.GetBatch(ctx, string(in.ID))
		if err == nil {
			out, err = releasedAs(known, in)
			return err
		}
		if !postgres.NoRows(err) {
			return err
		}
		if err := r.run(ctx); err != nil {
			return err
		}
		out = r.released()
		return nil
	})
	if postgres.IsCode(err, "23505") { // the same batch made at the same moment, of other items
		if known, missing := s.Q.GetBatch(ctx, string(in.ID)); missing == nil {
			return releasedAs(known, in)
		}
	}
	return out, err
}

func (in BatchRelease) validate() error {
	if len(in.Items) > fleet.MaxBatchItems {
		return fleet.Errorf(fleet.Invalid, "%d items given; the limit is %d", len(in.Items), fleet.MaxBatchItems).At("items")
	}
	seen := map[fleet.InstanceName]bool{}
	for _, i := range in.Items {
		if seen[i.Instance] {
			return fleet.Errorf(fleet.Invalid, "instance %s is given twice", i.Instance).At("items")
		}
		seen[i.Instance] = true
	}
	return nil
}

// releasedAs answers a repeated release as the first.
func releasedAs(b db.Batch, in BatchRelease) (BatchReleased, error) {
	if b.Site != string(in.Site) || b.Fleet != string(in.Fleet) || b.FleetRun != in.FleetRun || b.Stage != in.Stage {
		return BatchReleased{}, fleet.Errorf(fleet.Conflict, "batch %s exists with other contents", in.ID)
	}
	return batchReleased(b), nil
}

func batchReleased(b db.Batch) BatchReleased {
	out := BatchReleased{ID: fleet.BatchID(b.ID), Claimed: int(b.Claimed)}
	for _, n := range b.Nodes {
		out.Nodes = append(out.Nodes, fleet.NodeName(n))
	}
	return out
}

// batchRelease is one release under way.
type batchRelease struct {
	s  *postgres.Store
	q  *db.Queries
	in BatchRelease

	names    []string // of the items, sorted
	lease    *db.SiteLease
	subjects map[string]db.Subject
	objects  map[string]*fleet.Object
	governed map[string]postgres.Governed
	desired  map[string]*db.Revision
	deployed map[string]db.SnapshotsOfRow
	owed     map[string]bool
	targets  map[string]db.FleetTarget
	missing  map[string]bool // bodies that are not there

	claims   []*batchClaim
	moves    targetMoves
	nodes    []string
	notified *db.Node // the active, if it is notified at once
}

// lock takes the locks of all instances and the shared one of their site, in one order with
// every other writer.
func (r *batchRelease) lock(ctx context.Context) error {
	site := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(r.in.Site)}
	keys := map[int64]bool{postgres.LockID(site): true}
	for _, i := range r.in.Items {
		r.names = append(r.names, string(i.Instance))
		keys[postgres.LockID(fleet.InstanceKey(r.in.Site, i.Instance))] = false
	}
	slices.Sort(r.names)
	if err := postgres.LockKeys(ctx, r.q, keys); err != nil {
		return err
	}
	var err error
	r.subjects, err = lockNames(ctx, r.q, string(r.in.Site), r.names...)
	return err
}

func byName[T any](rows []T, name func(T) string) map[string]T {
	out := make(map[string]T, len(rows))
	for _, row := range rows {
		out[name(row)] = row
	}
	return out
}

// run claims what can be claimed, and writes the batch down; one without a delivery has
// ended already.
func (r *batchRelease) run(ctx context.Context) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	if live {
		if err := r.judge(ctx); err != nil {
			return err
		}
	}
	if len(r.claims) > 0 {
		if err := r.write(ctx); err != nil {
			return err
		}
	}
	return r.insertBatch(ctx)
}

// insertBatch writes the batch, and what its targets came to.
func (r *batchRelease) insertBatch(ctx context.Context) error {
	p := db.InsertBatchParams{
		ID: string(r.in.ID), Site: string(r.in.Site), Fleet: string(r.in.Fleet), FleetRun: r.in.FleetRun, Stage: r.in.Stage,
		State: batchOpen, WorkflowID: r.in.Workflow, RunID: r.in.Run, Actor: r.in.Actor, Claimed: int32(len(r.claims)), //nolint:gosec // at most MaxBatchItems
		Nodes: r.nodes, Seconds: r.in.Deadline.Seconds(),
	}
	if len(r.claims) == 0 {
		p.State, p.Nodes = batchEnded, []string{}
	}
	if r.lease != nil {
		p.Node, p.Epoch = r.lease.Holder, r.lease.Epoch
	}
	if err := r.q.InsertBatch(ctx, p); err != nil {
		return err
	}
	return r.moves.write(ctx, r.q, p.Fleet, p.FleetRun, p.Site)
}

func (r *batchRelease) released() BatchReleased {
	out := BatchReleased{ID: r.in.ID, Claimed: len(r.claims), Notify: r.notify()}
	for _, n := range r.nodes {
		out.Nodes = append(out.Nodes, fleet.NodeName(n))
	}
	return out
}

// live locks the run of the fleet change, and says whether it still delivers.
func (r *batchRelease) live(ctx context.Context) (bool, error) {
	if r.in.Fleet == "" {
		return true, nil
	}
	run, err := r.q.HoldFleetRun(ctx, db.HoldFleetRunParams{Fleet: string(r.in.Fleet), Run: r.in.FleetRun})
	if postgres.NoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	rows, err := r.q.LockFleetTargets(ctx, db.LockFleetTargetsParams{
		Fleet: string(r.in.Fleet), Run: r.in.FleetRun, Site: string(r.in.Site), Names: r.names,
	})
	r.targets = byName(rows, func(t db.FleetTarget) string { return t.Name })
	return run.State == string(fleet.FleetRunning) && !run.CancelRequested, err
}

// judge decides what becomes of each item.
func (r *batchRelease) judge(ctx context.Context) error {
	reason, message, err := r.closed(ctx)
	if err != nil {
		return err
	}
	if reason == "" {
		if err := r.read(ctx); err != nil {
			return err
		}
	}
	items := slices.SortedFunc(slices.Values(r.in.Items), func(a, b BatchChange) int {
		return cmp.Compare(a.Instance, b.Instance)
	})
	for i := range items {
		if r.in.Fleet != "" && !r.waits(items[i].Instance) {
			continue // another batch has it, or it is done
		}
		if reason != "" {
			r.fail(items[i].Instance, reason, message)
			continue
		}
		if err := r.item(&items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *batchRelease) waits(name fleet.InstanceName) bool {
	state := fleet.FleetTargetState(r.targets[string(name)].State)
	return state == fleet.FleetTargetWaiting || state == fleet.FleetTargetStaged
}

// closed says why nothing can be delivered at the site, "" when it can.
func (r *batchRelease) closed(ctx context.Context) (reason, message string, err error) {
	site, err := postgres.Find(ctx, r.q, fleet.ObjectKey{Kind: fleet.KindSite, Name: string(r.in.Site)})
	if err != nil {
		return "", "", err
	}
	if site == nil || site.DeletingSince != nil {
		return string(fleet.NotFound), "the site is gone", nil
	}
	lease, err := r.q.LockLease(ctx, string(r.in.Site))
	if postgres.NoRows(err) {
		return "no_active_node", "the site has no active node", nil
	}
	r.lease = &lease
	return "", "", err
}

// read reads all that is decided on, set by set.
func (r *batchRelease) read(ctx context.Context) error {
	site := string(r.in.Site)
	objects, err := r.q.ObjectsOfSite(ctx, db.ObjectsOfSiteParams{Site: site, Names: r.names})
	if err != nil {
		return err
	}
	r.objects = make(map[string]*fleet.Object, len(objects))
	for _, row := range objects {
		o := postgres.ObjectOf(row)
		r.objects[o.Name] = &o
	}
	p := db.GetRevisionsParams{Site: site}
	for _, name := range r.names {
		if s, is := r.subjects[name]; is {
			p.Names, p.Revisions = append(p.Names, name), append(p.Revisions, s.DesiredRevision)
		}
	}
	revisions, err := r.q.GetRevisions(ctx, p)
	if err != nil {
		return err
	}
	r.desired = make(map[string]*db.Revision, len(revisions))
	for i := range revisions {
		r.desired[revisions[i].Name] = &revisions[i]
	}
	snapshots, err := r.q.SnapshotsOf(ctx, db.SnapshotsOfParams{Site: site, Names: r.names})
	if err != nil {
		return err
	}
	r.deployed = byName(snapshots, func(s db.SnapshotsOfRow) string { return s.Name })
	owed, err := r.q.OwedNames(ctx, db.OwedNamesParams{Site: site, Names: r.names})
	if err != nil {
		return err
	}
	r.owed = map[string]bool{}
	for _, name := range owed {
		r.owed[name] = true
	}
	if err := r.hold(ctx); err != nil {
		return err
	}
	return r.govern(ctx)
}

// govern reads the policies over the objects, once for all of them. The locks of holders come last.
func (r *batchRelease) govern(ctx context.Context) error {
	objects := slices.Collect(maps.Values(r.objects))
	governed, err := r.s.Govern(ctx, r.q, objects...)
	r.governed = make(map[string]postgres.Governed, len(objects))
	for i, g := range governed {
		r.governed[objects[i].Name] = g
	}
	return err
}

// hold keeps the bodies of all items from being collected, and notes those that were: their
// items wait until the bytes are put again, and the others continue.
func (r *batchRelease) hold(ctx context.Context) error {
	distinct := map[fleet.Hash]bool{}
	var hashes [][]byte
	for _, i := range r.in.Items {
		for _, h := range i.bodies() {
			if b := postgres.HashBytes(h); b != nil && !distinct[h] {
				distinct[h] = true
				hashes = append(hashes, b)
			}
		}
	}
	missing, err := unknownBodies(ctx, r.q, hashes)
	r.missing = map[string]bool{}
	for _, h := range missing {
		r.missing[string(postgres.HashText(h))] = true
	}
	return err
}

func (i BatchChange) bodies() []fleet.Hash {
	if i.Refused != nil || i.Revision != 0 {
		return nil
	}
	return append(i.Spec.Bodies(), i.Content.Hash)
}
