package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// pageSize is how many objects one transaction visits at most.
const pageSize = decide.PolicyPage

// PolicyRequest asks that a holder's policy is applied to all that it governs.
type PolicyRequest struct {
	postgres.Request
	Holder fleet.ObjectKey
	Region fleet.RegionName // that created it, "" as in a write
}

// AskPolicy opens an operation for a full turn. It joins the turn that is under way: that applies the same policy.
func (s *Store) AskPolicy(ctx context.Context, in PolicyRequest) (postgres.Operation, error) {
	var holder *fleet.Object
	return postgres.Only(s.Request(ctx, in.Request, func(q *db.Queries) (err error) {
		if err = postgres.Lock(ctx, q, nil, in.Holder); err == nil {
			holder, err = s.FindNamed(ctx, q, fleet.CopyKey{Region: in.Region, ObjectKey: in.Holder})
		}
		return err
	}, func(q *db.Queries) ([]postgres.Operation, error) {
		if holder == nil || in.Project != "" && holder.Project != in.Project {
			return nil, fleet.NoObject(in.Holder)
		}
		p := db.WantPolicyTurnParams{Kind: string(in.Holder.Kind), Name: in.Holder.Name, Generation: holder.Generation}
		if err := q.WantPolicyTurn(ctx, p); err != nil {
			return nil, err
		}
		op, err := postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
			Kind: fleet.OperationApplyPolicy, Name: in.Holder.Name, Subject: fleet.PolicySubject(in.Holder), Project: holder.Project,
		})
		return []postgres.Operation{op}, err
	}))
}

// ApplyPolicyPage refreshes the syncing of the next objects that a holder governs, in one transaction with the position
// of the turn. Its outbox row goes only with the end of the turn: until then the relay wakes the entity again.
//
// Holders among the objects get a transaction each, before the page: their locks come after those of other objects
// everywhere, and a page takes none of them alone.
func (s *Store) ApplyPolicyPage(ctx context.Context, v fleet.PolicyVisit) (fleet.PolicyTurn, error) {
	done, refreshed := map[fleet.ObjectKey]bool{}, int64(0)
	moving, err := s.handOver(ctx, v)
	if err != nil {
		return fleet.PolicyTurn{}, err
	}
	for {
		p := &page{}
		err := s.Tx(ctx, func(q *db.Queries) error {
			p = &page{s: s, q: q, visit: v, moving: moving, above: done, refreshed: refreshed}
			return p.apply(ctx)
		})
		if err != nil || len(p.holders) == 0 {
			return p.turn(), err
		}
		for _, key := range p.holders {
			n, err := s.refreshHolder(ctx, key)
			if err != nil {
				return p.turn(), err
			}
			done[key], refreshed = true, refreshed+n
		}
	}
}

// refreshHolder refreshes the policy holders of a name, as a write of them would.
func (s *Store) refreshHolder(ctx context.Context, key fleet.ObjectKey) (refreshed int64, err error) {
	err = s.Tx(ctx, func(q *db.Queries) error {
		refreshed = 0
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		all, err := s.named(ctx, q, key)
		if err != nil {
			return err
		}
		refreshed, err = s.refreshShared(ctx, q, all)
		return err
	})
	return refreshed, err
}

// refresh writes the syncing of those objects that differ and that this region owns, each with its event. Nothing is
// delivered and no generation rises. The caller holds their locks.
func (s *Store) refresh(ctx context.Context, q *db.Queries, objects []*fleet.Object) (int64, error) {
	governed, err := s.Govern(ctx, q, objects...)
	if err != nil {
		return 0, err
	}
	var refreshed []postgres.Refreshed
	for i, o := range objects {
		if owner := governed[i].Was.OwningRegion; !governed[i].Same && (owner == "" || owner == s.Region) {
			refreshed = append(refreshed, postgres.Refreshed{Object: o, Syncing: governed[i].Syncing})
		}
	}
	if len(refreshed) == 0 {
		return 0, nil
	}
	return postgres.RefreshSyncing(ctx, q, postgres.RegionActor, refreshed)
}

// place is an object in the order in which a policy is applied; the zero value is before all.
type place struct{ project, service, kind, scope, name string }

func placeOf(at []string) place {
	if len(at) == 0 {
		return place{}
	}
	return place{at[0], at[1], at[2], at[3], at[4]}
}

func (p place) columns() []string {
	if p == (place{}) {
		return []string{}
	}
	return []string{p.project, p.service, p.kind, p.scope, p.name}
}

// page is one transaction of a turn.
type page struct {
	s     *Store
	q     *db.Queries
	visit fleet.PolicyVisit
	// moving is what the holder waits for, nil if nothing.
	moving *fleet.HandOver

	row                db.PolicyTurn
	at, began          place
	wrapped, done      bool
	visited, refreshed int64
	above              map[fleet.ObjectKey]bool // holders that were refreshed before
	holders            []fleet.ObjectKey        // that are in this page, and were not
	feed               int64
}

// size is how many objects the page has at most.
func (p *page) size() int {
	if p.visit.Objects > 0 {
		return min(p.visit.Objects, pageSize)
	}
	return pageSize
}

func (p *page) turn() fleet.PolicyTurn {
	return fleet.PolicyTurn{
		Generation: p.row.Generation, At: strings.Trim(strings.Join(p.at.columns(), "/"), "/"), Done: p.done && p.moving == nil, Waits: p.done && p.moving != nil, HandOver: p.moving,
		Visited: p.row.Visited + p.visited, Refreshed: p.row.Refreshed + p.refreshed, Feed: p.feed,
	}
}

func (p *page) apply(ctx context.Context) error {
	subject := fleet.PolicySubject(p.visit.Holder())
	by := db.ServeOperationsParams{Run: p.visit.Run, Build: p.visit.Build, Subjects: []string{subject}}
	if err := p.q.ServeOperations(ctx, by); err != nil {
		return err
	}
	row, err := p.q.GetPolicyTurn(ctx, db.GetPolicyTurnParams{Kind: string(p.visit.Kind), Name: p.visit.Name})
	if postgres.NoRows(err) {
		return p.end(ctx, p.deleted())
	}
	if err != nil {
		return err
	}
	p.row, p.at, p.began, p.wrapped = row, placeOf(row.At), placeOf(row.Began), row.Wrapped
	if row.EndedAt == nil {
		if err := p.visitPage(ctx); err != nil {
			return err
		}
		if moved, err := p.move(ctx); err != nil || !moved {
			return err
		}
	}
	if row.EndedAt != nil || p.done {
		turn := p.turn()
		return p.end(ctx, postgres.Ending{
			State: fleet.OperationSucceeded, Reason: "applied",
			Message: fmt.Sprintf("generation %d: %d objects visited, the syncing of %d changed", turn.Generation, turn.Visited, turn.Refreshed),
		})
	}
	return nil
}

// deleted is the end of what was asked of a holder that is gone.
func (p *page) deleted() postgres.Ending {
	return postgres.Ending{State: fleet.OperationFailed, Reason: string(fleet.NotFound), Message: p.visit.Holder().String() + " was deleted"}
}

// end ends what was asked, and takes the outbox row; a hand-over that is under way keeps both.
func (p *page) end(ctx context.Context, e postgres.Ending) error {
	p.done = true
	subject := fleet.PolicySubject(p.visit.Holder())
	if e.State == fleet.OperationSucceeded {
		e.Kind = fleet.OperationApplyPolicy
	}
	if err := postgres.EndOperations(ctx, p.q, subject, e); err != nil || p.moving != nil {
		return err
	}
	if err := p.endHandOver(ctx, subject); err != nil {
		return err
	}
	return p.q.TakeOutbox(ctx, []string{subject})
}

// move stores the position. If the turn was moved or restarted since it was read, nothing of this page is kept.
func (p *page) move(ctx context.Context) (bool, error) {
	feed, err := p.q.MovePolicyTurn(ctx, db.MovePolicyTurnParams{
		Kind: p.row.Kind, Name: p.row.Name, Wanted: p.row.Wanted, WasAt: p.row.At, WasWrapped: p.row.Wrapped,
		At: p.at.columns(), Wrapped: p.wrapped, Visited: p.visited, Refreshed: p.refreshed, Done: p.done,
	})
	if err != nil && !postgres.NoRows(err) {
		return false, err
	}
	if p.feed = feed; err != nil {
		p.done, p.at, p.visited, p.refreshed = false, placeOf(p.row.At), 0, 0
		return false, postgres.ErrRollback
	}
	return true, nil
}

// visitPage reads the next keys, refreshes their objects, and moves on.
func (p *page) visitPage(ctx context.Context) error {
	project, err := p.project(ctx)
	if err != nil || project == "" {
		p.finish()
		return err
	}
	keys, err := p.keys(ctx, project)
	if err != nil {
		return err
	}
	if err := p.refresh(ctx, project, keys); err != nil {
		return err
	}
	p.visited = int64(len(keys))
	if len(keys) >= p.size() {
		last := keys[len(keys)-1]
		p.at = place{project, last.Service, last.Kind, last.Scope, last.Name}
		return nil
	}
	next, err := p.nextProject(ctx, project)
	if err != nil {
		return err
	}
	p.at = place{project: next}
	if next == "" {
		p.finish()
	}
	return nil
}

// finish is the end of what the holder governs: the turn is done, or starts again at the beginning.
func (p *page) finish() {
	p.at = place{}
	p.done = p.wrapped || p.began == place{}
	p.wrapped = true
}

// project is the one that the next page is of.
func (p *page) project(ctx context.Context) (string, error) {
	switch {
	case p.at.project != "":
		return p.at.project, nil
	case p.visit.Kind == fleet.KindProject:
		return p.visit.Name, nil
	}
	return p.nextProject(ctx, "")
}

// nextProject of an organization or a service, "" after the last one of the turn.
func (p *page) nextProject(ctx context.Context, after string) (name string, err error) {
	until := ""
	if p.wrapped {
		until = p.began.project
	}
	if p.visit.Kind == fleet.KindOrganization {
		name, err = p.q.ProjectUnder(ctx, db.ProjectUnderParams{Organization: p.visit.Name, After: after, Until: until})
	}
	if p.visit.Kind == fleet.KindService {
		name, err = p.q.ProjectOfService(ctx, db.ProjectOfServiceParams{Service: p.visit.Name, After: after, Until: until})
	}
	return name, err
}

func (p *page) keys(ctx context.Context, project string) ([]db.GovernedAfterRow, error) {
	in := db.GovernedAfterParams{
		Project: project, Service: p.at.service, Kind: p.at.kind, Scope: p.at.scope, Name: p.at.name, MaxRows: int32(p.size()), //nolint:gosec // at most a page
		Bounded:      p.wrapped && p.began.project == project,
		UntilService: p.began.service, UntilKind: p.began.kind, UntilScope: p.began.scope, UntilName: p.began.name,
	}
	if p.visit.Kind == fleet.KindService {
		in.Within = p.visit.Name
	}
	if err := p.q.PlanInOrder(ctx); err != nil {
		return nil, err
	}
	keys, err := p.q.GovernedAfter(ctx, in)
	return keys, err
}

// refresh locks the objects of a page and refreshes them, unless a holder among them has to come first.
func (p *page) refresh(ctx context.Context, project string, rows []db.GovernedAfterRow) error {
	locks := make(map[int64]bool, len(rows))
	objects := make([]*fleet.Object, 0, len(rows))
	var shared []fleet.CopyKey
	for _, r := range rows {
		key := fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}
		o := &fleet.Object{ObjectKey: key, UID: r.Uid, Project: fleet.ProjectName(project), Service: r.Service, Syncing: r.Syncing}
		switch {
		case key.Kind.Declared().Holder:
			if !p.above[key] && !slices.Contains(p.holders, key) {
				p.holders = append(p.holders, key)
			}
		case key.Kind.Declared().Shared:
			locks[postgres.LockID(key)] = false
			shared = append(shared, fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: key})
		default:
			locks[postgres.LockID(key)] = false
			objects = append(objects, o)
		}
	}
	if len(p.holders) > 0 {
		return postgres.ErrRollback
	}
	if len(locks) == 0 {
		return nil
	}
	if err := postgres.LockKeys(ctx, p.q, locks); err != nil {
		return err
	}
	if len(objects) > 0 {
		n, err := p.s.refresh(ctx, p.q, objects)
		if p.refreshed += n; err != nil {
			return err
		}
	}
	found, err := p.s.find(ctx, p.q, shared)
	if err != nil {
		return err
	}
	n, err := p.s.refreshShared(ctx, p.q, found)
	p.refreshed += n
	return err
}
