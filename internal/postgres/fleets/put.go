package fleets

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PutFleet declares a fleet change and starts a run of it, with its operation and the
// outbox row, when its spec changed or was never run. The same spec again joins the run
// that is under way, and changes nothing once that has ended.
func (s *Store) PutFleet(ctx context.Context, p FleetPut) (postgres.Started, error) {
	var shared []fleet.ObjectKey
	if p.Spec.Change.Template != "" {
		shared = append(shared, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(p.Spec.Change.Template)})
	}
	return s.Change(ctx, p.Write, shared, func(q *db.Queries, out *postgres.Started) error {
		spec, err := pinned(ctx, q, p.Spec)
		if err != nil {
			return err
		}
		if err := postgres.Hold(ctx, q, spec.Bodies()...); err != nil {
			return err
		}
		if out.Written, err = s.Write(ctx, q, p.Write, spec); err != nil || !p.Start {
			return err
		}
		f := fleetWork{q: q, object: out.After, in: p.Request, why: p.Reason}
		out.Operation, err = f.declared(ctx)
		return err
	})
}

// pinned is the spec with the generation that its template has now, unless it names one.
func pinned(ctx context.Context, q *db.Queries, spec fleet.FleetSpec) (fleet.FleetSpec, error) {
	c := &spec.Change
	if c.Template == "" {
		return spec, nil
	}
	if c.TemplateGeneration == 0 {
		o, err := postgres.FindReferred(ctx, q, fleet.TemplateKey(string(c.Template)))
		if err != nil {
			return spec, err
		}
		if o == nil {
			return spec, fleet.Errorf(fleet.NotFound, "template %s not found", c.Template).At("/change/template").
				WithHint("holdfast get templates")
		}
		c.TemplateGeneration = o.Generation
	}
	pin := fleet.TemplatePin{Name: c.Template, Generation: c.TemplateGeneration}
	return spec, postgres.HoldGeneration(ctx, q, pin, "/change/templateGeneration")
}

// fleetWork is a change of a fleet change's runs, in one transaction that holds its lock.
type fleetWork struct {
	q      *db.Queries
	object *fleet.Object
	in     postgres.Request
	why    string // in a person's words
}

func (f fleetWork) name() fleet.FleetName { return fleet.FleetName(f.object.Name) }

func (f fleetWork) subject() string { return fleet.FleetSubject(f.name()) }

// newest is the newest run of this very object, nil when there is none: one of the same
// name that was deleted had its own runs. It is locked against batches.
func (f fleetWork) newest(ctx context.Context) (*db.FleetRun, error) {
	r, err := f.q.NewestFleetRunForUpdate(ctx, f.object.Name)
	if postgres.NoRows(err) || err == nil && r.Uid != f.object.UID {
		return nil, nil
	}
	return &r, err
}

// declared starts a run after a PUT, unless there was one of this generation.
func (f fleetWork) declared(ctx context.Context) (*postgres.Operation, error) {
	run, err := f.newest(ctx)
	if err != nil {
		return nil, err
	}
	if f.runs(run) {
		return f.running(ctx, run)
	}
	p := db.FleetWasRunParams{Fleet: f.object.Name, Uid: f.object.UID, Generation: f.object.Generation}
	if was, err := f.q.FleetWasRun(ctx, p); err != nil || was {
		return nil, err
	}
	return f.start(ctx, run)
}

// runs says that a run is under way to what is declared now.
func (f fleetWork) runs(run *db.FleetRun) bool {
	return run != nil && fleet.FleetState(run.State).Live() && run.Generation == f.object.Generation && run.RollbackOf == 0
}

// running is the operation that waits for a run, nil when none does.
func (f fleetWork) running(ctx context.Context, run *db.FleetRun) (*postgres.Operation, error) {
	row, err := f.q.RunningFleetOperation(ctx, db.RunningFleetOperationParams{Subject: f.subject(), Run: run.Run})
	if postgres.NoRows(err) {
		return nil, nil
	}
	o := postgres.OperationOf(row)
	return &o, err
}

func specOf(run *db.FleetRun) (fleet.FleetSpec, error) {
	var spec fleet.FleetSpec
	return spec, postgres.Unreadable("the spec of a run", json.Unmarshal(run.Spec, &spec))
}
