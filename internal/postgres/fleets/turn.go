package fleets

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// TurnFleet runs what is declared, or pauses, resumes, cancels, retries or rolls back the
// newest run, in one transaction. A door that asks twice is answered with its operation.
func (s *Store) TurnFleet(ctx context.Context, t FleetTurn) (postgres.Started, error) {
	return s.Change(ctx, t.Write, nil, func(q *db.Queries, out *postgres.Started) error {
		o, err := postgres.Find(ctx, q, t.Key)
		if err != nil || o == nil || t.Project != "" && o.Project != t.Project {
			return postgres.OrNotFound(err, "fleet", t.Key.Name, "holdfast get fleets")
		}
		if err := s.CheckMatch(t.Write, o); err != nil {
			return err
		}
		if t.On != fleet.FleetPause && t.On != fleet.FleetCancel {
			if err := s.MayTurn(ctx, q, o); err != nil {
				return err
			}
		}
		out.Written = postgres.Written{Before: o, After: o}
		f := fleetWork{q: q, object: o, in: t.Request, why: t.Reason}
		out.Operation, err = f.turn(ctx, t.On)
		return err
	})
}

func (f fleetWork) turn(ctx context.Context, on fleet.FleetEvent) (*postgres.Operation, error) {
	run, err := f.newest(ctx)
	if err != nil {
		return nil, err
	}
	if on == "" {
		return f.run(ctx, run)
	}
	if !slices.Contains(fleet.FleetEvents(), on) {
		return nil, fleet.Errorf(fleet.Invalid, "unknown action %.40q of a fleet change", on)
	}
	if run == nil {
		return nil, fleet.Errorf(fleet.IllegalState, "fleet change %s was never run", f.name()).
			WithHint(fmt.Sprintf("run it first: holdfast fleet run %s", f.name()))
	}
	to, err := fleet.FleetState(run.State).Next(on)
	if err != nil {
		return nil, err
	}
	switch on {
	case fleet.FleetPause:
		return f.pause(ctx, run, to)
	case fleet.FleetResume:
		return f.resume(ctx, run, to)
	case fleet.FleetCancel:
		return f.cancel(ctx, run, to)
	case fleet.FleetRetry:
		return f.retry(ctx, run)
	case fleet.FleetRollback:
		return f.rollback(ctx, run, to)
	case fleet.FleetStop, fleet.FleetFinish, fleet.FleetSupersede:
	}
	return nil, fleet.Errorf(fleet.Invalid, "%s cannot be requested", on)
}

// run joins the run that is under way to what is declared, or starts one.
func (f fleetWork) run(ctx context.Context, run *db.FleetRun) (*postgres.Operation, error) {
	if !f.runs(run) {
		return f.start(ctx, run)
	}
	return f.join(ctx, run)
}

// join gives a door a new operation, and other callers the existing one.
func (f fleetWork) join(ctx context.Context, run *db.FleetRun) (*postgres.Operation, error) {
	if f.in.Door.Run == "" {
		if op, err := f.running(ctx, run); err != nil || op != nil {
			return op, err
		}
	}
	now, err := f.q.Now(ctx)
	if err != nil {
		return nil, err
	}
	return f.open(ctx, run, run.DeadlineAt.Sub(now))
}

func (f fleetWork) pause(ctx context.Context, run *db.FleetRun, to fleet.FleetState) (*postgres.Operation, error) {
	if err := f.set(ctx, run, to, "paused"); err != nil {
		return nil, err
	}
	return f.running(ctx, run)
}

// resume continues a paused run as it was. Of a stopped one those of its wave that failed
// are tried again, and it has its whole time again.
func (f fleetWork) resume(ctx context.Context, run *db.FleetRun, to fleet.FleetState) (*postgres.Operation, error) {
	if run.State == string(fleet.FleetPaused) {
		if err := f.set(ctx, run, to, ""); err != nil {
			return nil, err
		}
		return f.join(ctx, run)
	}
	was, err := f.status(ctx, run)
	if err != nil {
		return nil, err
	}
	again := db.RetryFleetTargetsParams{Fleet: run.Fleet, Run: run.Run, FromWave: run.Wave, ToWave: run.Wave}
	if _, err := f.q.RetryFleetTargets(ctx, again); err != nil {
		return nil, err
	}
	if err := f.q.ForgetFleetRetries(ctx, db.ForgetFleetRetriesParams{Fleet: run.Fleet, Run: run.Run}); err != nil {
		return nil, err
	}
	return f.reopen(ctx, was, run, db.ReopenFleetRunParams{Wave: run.Wave, UntilWave: run.Waves})
}

// retry tries those again that failed, up to where the run had come, and no others.
func (f fleetWork) retry(ctx context.Context, run *db.FleetRun) (*postgres.Operation, error) {
	until := run.Wave
	if run.Retrying { // a retry that stopped on its way back to where the run had come
		until = run.UntilWave
	}
	was, err := f.status(ctx, run)
	if err != nil {
		return nil, err
	}
	again := db.RetryFleetTargetsParams{Fleet: run.Fleet, Run: run.Run, FromWave: 1, ToWave: until}
	first, err := f.q.RetryFleetTargets(ctx, again)
	if err != nil {
		return nil, err
	}
	if first == 0 {
		e := fleet.Errorf(fleet.IllegalState, "no instance of run %d failed", run.Run)
		if run.State == string(fleet.FleetStopped) {
			e = e.WithHint(fmt.Sprintf("continue with those that wait: holdfast fleet resume %s", f.name()))
		}
		return nil, e
	}
	return f.reopen(ctx, was, run, db.ReopenFleetRunParams{Wave: first, UntilWave: until, Retrying: true})
}

func (f fleetWork) reopen(ctx context.Context, was *fleetStatus, run *db.FleetRun, p db.ReopenFleetRunParams) (*postgres.Operation, error) {
	spec, err := specOf(run)
	if err != nil {
		return nil, err
	}
	p.Fleet, p.Run, p.FromState, p.Message, p.Seconds = run.Fleet, run.Run, run.State, f.why, spec.Deadline().Seconds()
	again, err := f.q.ReopenFleetRun(ctx, p)
	if err != nil {
		return nil, err
	}
	return f.begin(ctx, was, &again)
}

// cancel asks the entity for the end of a run that is under way; one that stopped ends here.
func (f fleetWork) cancel(ctx context.Context, run *db.FleetRun, to fleet.FleetState) (*postgres.Operation, error) {
	if fleet.FleetState(run.State).Live() {
		if !run.CancelRequested {
			run.CancelRequested = true
			if err := f.set(ctx, run, fleet.FleetState(run.State), "cancel_requested"); err != nil {
				return nil, err
			}
		}
		return f.running(ctx, run)
	}
	return nil, f.set(ctx, run, to, "cancelled")
}

// rollback writes what was there before wherever the run released something, in a run of
// its own that continues to the end.
func (f fleetWork) rollback(ctx context.Context, run *db.FleetRun, to fleet.FleetState) (*postgres.Operation, error) {
	spec, err := specOf(run)
	if err != nil {
		return nil, err
	}
	if err := f.set(ctx, run, to, "rolled_back"); err != nil {
		return nil, err
	}
	was, err := f.status(ctx, run)
	if err != nil {
		return nil, err
	}
	spec.Waves, spec.ErrorThreshold, spec.SuccessThreshold = nil, 100, 0
	back, err := f.insert(ctx, spec, 1, db.InsertFleetRunParams{Generation: run.Generation, RollbackOf: run.Run})
	if err != nil {
		return nil, err
	}
	p := db.InsertRollbackTargetsParams{Fleet: run.Fleet, Run: back.Run, RollbackOf: run.Run}
	n, err := f.q.InsertRollbackTargets(ctx, p)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fleet.Errorf(fleet.IllegalState, "run %d changed no instance", run.Run).WithHint("there is nothing to roll back")
	}
	return f.begin(ctx, was, back)
}

// set moves a run as a person asked, and wakes its entity.
func (f fleetWork) set(ctx context.Context, run *db.FleetRun, to fleet.FleetState, reason string) error {
	was, err := f.status(ctx, run)
	if err != nil {
		return err
	}
	after, err := f.q.TurnFleetRun(ctx, db.TurnFleetRunParams{
		Fleet: run.Fleet, Run: run.Run, State: string(to), FromState: run.State, Reason: reason, Message: f.why,
		Cancel: run.CancelRequested,
	})
	if err != nil {
		return err
	}
	*run = after
	if err := f.announce(ctx, was, run); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, f.q, f.subject())
}

// CancelFleet is the cancel of a run by one of its operations.
func CancelFleet(ctx context.Context, q *db.Queries, op *postgres.Operation) error {
	o, err := postgres.Find(ctx, q, fleet.FleetKey(op.Fleet))
	if err != nil || o == nil {
		return postgres.OrNotFound(err, "fleet", string(op.Fleet), "holdfast get fleets")
	}
	f := fleetWork{q: q, object: o, in: postgres.Request{Actor: postgres.RegionActor}, why: "operation " + string(op.ID) + " was cancelled"}
	run, err := f.newest(ctx)
	if err != nil || run == nil || run.Run != op.Revision {
		return err
	}
	to, err := fleet.FleetState(run.State).Next(fleet.FleetCancel)
	if err != nil {
		return err
	}
	_, err = f.cancel(ctx, run, to)
	return err
}

// NotUnderWay refuses to delete a fleet change that still delivers, or may.
func NotUnderWay(ctx context.Context, q *db.Queries, k fleet.ObjectKey) error {
	n, err := q.LiveFleetRuns(ctx, k.Name)
	if err != nil || n == 0 {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "%s is under way", k).WithHint("cancel it first: holdfast fleet cancel " + k.Name)
}
