package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// The phases of a fleet change that no state of a run says.
const (
	phaseDeclared  = "Declared"
	phaseRunning   = "Running"
	phasePaused    = "Paused"
	phaseStopped   = "Stopped"
	phaseSucceeded = "Succeeded"
	phaseCancelled = "Cancelled"
)

// fleetSeen is what the status of a fleet change is decided from: Run.Run is 0 when it was
// never run.
type fleetSeen struct {
	object fleet.Object
	fleets.FleetRun
}

// fleetStatuses reads all of a page at once.
func (s *server) fleetStatuses(ctx context.Context, page []fleet.Object) ([]any, error) {
	names := make([]string, len(page))
	for i, o := range page {
		names[i] = o.Name
	}
	runs, err := s.store.NewestFleetRuns(ctx, names...)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(page))
	for i, o := range page {
		out[i] = fleetSeen{o, runs[o.Name]}.status()
	}
	return out, nil
}

// fleetDetail is fleetStatuses of one, with the counts of each wave.
func (s *server) fleetDetail(ctx context.Context, one []fleet.Object) ([]any, error) {
	run, err := s.store.GetFleetRun(ctx, fleet.FleetName(one[0].Name), 0)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return nil, err
	}
	if err := s.opening(ctx, &run); err != nil {
		return nil, err
	}
	return []any{fleetSeen{one[0], run}.status()}, nil
}

// opening finds out what a run waits for: commands that must run on, and when its window opens.
func (s *server) opening(ctx context.Context, r *fleets.FleetRun) (err error) {
	if r.State == fleet.FleetRunning && r.Spec.MinRun() > 0 {
		if r.Proving, err = s.store.CountFleetStarts(ctx, *r); err != nil {
			return err
		}
	}
	if r.State != fleet.FleetRunning || r.Counts.Staged == 0 || len(r.Spec.Windows) == 0 {
		return nil
	}
	sites, now, err := s.store.StagedFleetSites(ctx, *r)
	if err == nil {
		r.Opens = decide.FirstOpening(r.Spec.Windows, sites, now, time.LoadLocation)
	}
	return err
}

func (f fleetSeen) status() api.FleetStatus {
	status := api.FleetStatus{
		Phase: f.phase(), Run: f.Run, ObservedGeneration: f.Generation, RollbackOf: f.RollbackOf, Wave: f.Wave, Waves: f.Waves,
		Counts: f.Counts, Conditions: []api.Condition{f.synced(), f.healthy()},
	}
	if f.Run == 0 {
		return status
	}
	status.Deadline = &f.Deadline
	status.Reason, status.Message = fleetReason(f.FleetRun)
	for wave := 1; wave <= f.Waves && f.PerWave != nil; wave++ {
		status.PerWave = append(status.PerWave, f.PerWave[wave])
	}
	return status
}

func (f fleetSeen) phase() string {
	switch {
	case f.object.DeletingSince != nil:
		return phaseDeleting
	case f.Run == 0:
		return phaseDeclared
	}
	switch f.State {
	case fleet.FleetRunning:
		return phaseRunning
	case fleet.FleetPaused:
		return phasePaused
	case fleet.FleetStopped:
		return phaseStopped
	case fleet.FleetSucceeded:
		return phaseSucceeded
	case fleet.FleetCancelled, fleet.FleetSuperseded: // the newest run is superseded only while the next begins
		return phaseCancelled
	}
	return phaseDeclared
}

// fleetReason says why a run is where it is, and what it waits for (X8).
func fleetReason(r fleets.FleetRun) (reason, message string) {
	switch {
	case r.Reason != "":
		return r.Reason, r.Message
	case r.State == fleet.FleetRunning && r.Cancel:
		return "cancelling", "waiting for the deliveries that are under way"
	case r.State == fleet.FleetRunning:
		return "delivering", fleetProgressText(r)
	case r.State == fleet.FleetPaused:
		return "paused", "it was paused: resume or cancel it"
	}
	return "", r.Message
}

// fleetProgressText counts what is done, of all waves.
func fleetProgressText(r fleets.FleetRun) string {
	c := r.Counts
	text := fmt.Sprintf("wave %d of %d: %d of %d instances are done", r.Wave, r.Waves, c.Good()+c.Failed, c.Total)
	if c.Failed > 0 {
		text += fmt.Sprintf(", %d of them failed", c.Failed)
	}
	if r.Proving > 0 {
		text += fmt.Sprintf(", %d of them must run for %s first", r.Proving, r.Spec.MinRun())
	}
	if c.Staged > 0 {
		text += fmt.Sprintf(", %d are fetched and wait for their window", c.Staged)
	}
	if !r.Opens.IsZero() {
		text += ", which opens at " + r.Opens.UTC().Format(time.RFC3339)
	}
	return text
}

func (f fleetSeen) since() time.Time {
	switch {
	case f.Run == 0:
		return f.object.UpdatedAt
	case f.EndedAt != nil:
		return *f.EndedAt
	}
	return f.CreatedAt
}

// synced: has what is declared reached every instance?
func (f fleetSeen) synced() api.Condition {
	c := api.Condition{Type: decide.ConditionSynced, Status: fleet.ConditionFalse, Since: f.since()}
	name := f.object.Name
	switch {
	case f.object.DeletingSince != nil:
		c.Reason, c.Since = decide.SyncedDeleting, *f.object.DeletingSince
	case f.Run == 0 || f.Generation != f.object.Generation:
		c.Reason, c.Message, c.Since = decide.SyncedNotReleased, "what is declared was not run yet", f.object.UpdatedAt
		c.Hint = "holdfast fleet run " + name
	case f.RollbackOf != 0:
		c.Reason, c.Message = decide.SyncedRolledBack, fmt.Sprintf("run %d takes run %d back", f.Run, f.RollbackOf)
		c.Hint = "holdfast fleet run " + name
	case f.State == fleet.FleetPaused:
		c.Reason, c.Hint = decide.SyncedPaused, "holdfast fleet resume "+name
		_, c.Message = fleetReason(f.FleetRun)
	case f.State.Live() && f.Cancel, f.State == fleet.FleetCancelled, f.State == fleet.FleetSuperseded:
		c.Reason, c.Message, c.Hint = decide.SyncedCancelled, f.Message, "holdfast fleet run "+name
	case f.State.Live():
		c.Reason, c.Hint = decide.SyncedRollingOut, "holdfast describe fleet "+name
		_, c.Message = fleetReason(f.FleetRun)
	case f.State != fleet.FleetSucceeded:
		c.Reason, c.Hint = decide.SyncedGivenUp, "holdfast fleet targets "+name+" --state failed"
		c.Message = strings.TrimSuffix(cmp.Or(f.Reason, string(f.State))+": "+f.Message, ": ")
	case f.Counts.Failed > 0:
		c.Reason, c.Message = "targets_failed", fmt.Sprintf("%d of %d instances failed", f.Counts.Failed, f.Counts.Total)
		c.Hint = "holdfast fleet retry " + name
	default:
		c.Status, c.Reason = fleet.ConditionTrue, decide.SyncedAsDeclared
	}
	return c
}

// healthy: does what the run delivers work?
func (f fleetSeen) healthy() api.Condition {
	c := api.Condition{Type: "healthy", Status: fleet.ConditionTrue, Reason: "no_failures", Since: f.since()}
	switch {
	case f.Run == 0:
		c.Status, c.Reason = fleet.ConditionUnknown, "not_run"
	case f.Counts.Failed > 0:
		c.Status, c.Reason = fleet.ConditionFalse, "targets_failed"
		c.Message = fmt.Sprintf("%d of %d instances failed", f.Counts.Failed, f.Counts.Total)
	case f.State == fleet.FleetStopped:
		c.Status, c.Reason, c.Message = fleet.ConditionFalse, cmp.Or(f.Reason, "stopped"), f.Message
	}
	return c
}

// fillFleets says of the operations of fleet changes how far their runs are. One that ended
// before the newest run began speaks of an older one, which the list of runs shows.
func (s *server) fillFleets(ctx context.Context, names []string, rows []postgres.Operation, views []api.Operation) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	runs, err := s.store.NewestFleetRuns(ctx, slices.Compact(names)...)
	if err != nil {
		return err
	}
	for i, o := range rows {
		if o.Kind != fleet.OperationFleet {
			continue
		}
		run, found := runs[string(o.Fleet)]
		if found && (o.EndedAt == nil || !run.CreatedAt.After(*o.EndedAt)) {
			views[i].FleetRun = &api.FleetProgress{Run: run.Run, State: run.State, Wave: run.Wave, Waves: run.Waves, Counts: run.Counts}
		}
		if o.State == fleet.OperationRunning && views[i].Reason == "" {
			if err := s.opening(ctx, &run); err != nil {
				return err
			}
			views[i].Reason, views[i].Message = waitsForFleet(o, run)
		}
	}
	return nil
}

// waitsForFleet says why the operation of a fleet change still runs (X8).
func waitsForFleet(o postgres.Operation, run fleets.FleetRun) (reason, message string) {
	if o.EntityRun == "" || run.Run == 0 {
		return "queued", "waiting for the workflow of fleet change " + string(o.Fleet) + " to begin"
	}
	if reason, message = fleetReason(run); reason == "" {
		return "closing", "the run has ended, the operation is being closed"
	}
	return reason, message
}
