package fleets

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// GetFleetRun reads one run with what its targets came to; run 0 is the newest.
func (s *Store) GetFleetRun(ctx context.Context, name fleet.FleetName, run int64) (FleetRun, error) {
	var row db.FleetRun
	var err error
	if run == 0 {
		row, err = s.Q.NewestFleetRun(ctx, string(name))
	} else {
		row, err = s.Q.GetFleetRun(ctx, db.GetFleetRunParams{Fleet: string(name), Run: run})
	}
	if postgres.NoRows(err) {
		return FleetRun{}, postgres.OrNotFound(nil, "run", fmt.Sprintf("of fleet change %s", name), "holdfast fleet runs "+string(name))
	}
	if err != nil {
		return FleetRun{}, err
	}
	counts, err := countFleet(ctx, s.Q, &row)
	if err != nil {
		return FleetRun{}, err
	}
	out, err := fleetRunOf(row, counts)
	out.PerWave = counts.waves
	return out, err
}

// ListFleetRuns gives the runs of a fleet change newest first, from below a number on (0 is
// from the newest).
func (s *Store) ListFleetRuns(ctx context.Context, name fleet.FleetName, before int64, limit int32) ([]FleetRun, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.Q.ListFleetRuns(ctx, db.ListFleetRunsParams{Fleet: string(name), BeforeRun: before, MaxRows: limit})
	if err != nil {
		return nil, err
	}
	return s.fleetRuns(ctx, rows)
}

// NewestFleetRuns gives the newest run of each fleet change that was ever run.
func (s *Store) NewestFleetRuns(ctx context.Context, names ...string) (map[string]FleetRun, error) {
	rows, err := s.Q.NewestFleetRuns(ctx, names)
	if err != nil {
		return nil, err
	}
	runs, err := s.fleetRuns(ctx, rows)
	out := map[string]FleetRun{}
	for _, r := range runs {
		out[string(r.Fleet)] = r
	}
	return out, err
}

func (s *Store) fleetRuns(ctx context.Context, rows []db.FleetRun) ([]FleetRun, error) {
	counts, err := countFleets(ctx, s.Q, rows)
	if err != nil {
		return nil, err
	}
	out := make([]FleetRun, len(rows))
	for i, r := range rows {
		if out[i], err = fleetRunOf(r, counts[fleetRunKey{r.Fleet, r.Run}]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func fleetRunOf(r db.FleetRun, counts fleetCounts) (FleetRun, error) {
	out := FleetRun{
		Fleet: fleet.FleetName(r.Fleet), Run: r.Run, Generation: r.Generation, RollbackOf: r.RollbackOf,
		State: fleet.FleetState(r.State), Reason: r.Reason, Message: r.Message, Cancel: r.CancelRequested,
		Wave: int(r.Wave), Waves: int(r.Waves), Until: int(r.UntilWave), Retrying: r.Retrying,
		RequestedBy: r.RequestedBy, CreatedAt: r.CreatedAt, Deadline: r.DeadlineAt, EndedAt: r.EndedAt, Counts: counts.all,
	}
	return out, postgres.Unreadable("the spec of a run", json.Unmarshal(r.Spec, &out.Spec))
}

// ListFleetTargets pages through the instances of a run in the order of site and name.
func (s *Store) ListFleetTargets(ctx context.Context, f FleetTargetFilter) ([]FleetTargetView, error) {
	p := db.ListFleetTargetsInParams{
		Fleet: string(f.Fleet), Run: f.Run, State: string(f.State),
		AfterSite: string(f.AfterSite), AfterName: string(f.AfterName), MaxRows: f.Limit,
	}
	var rows []db.FleetTarget
	var err error
	if f.State != "" {
		rows, err = s.Q.ListFleetTargetsIn(ctx, p)
	} else {
		rows, err = s.Q.ListFleetTargets(ctx, db.ListFleetTargetsParams{
			Fleet: p.Fleet, Run: p.Run, AfterSite: p.AfterSite, AfterName: p.AfterName, MaxRows: p.MaxRows,
		})
	}
	out := make([]FleetTargetView, len(rows))
	for i, r := range rows {
		out[i] = FleetTargetView{
			Site: fleet.SiteName(r.Site), Instance: fleet.InstanceName(r.Name), Wave: int(r.Wave),
			State: fleet.FleetTargetState(r.State), Revision: r.Revision, Before: r.BeforeRevision, Tries: int(r.Tries),
			Delivery: fleet.DeliveryID(r.DeliveryID), Reason: r.Reason, Message: r.Message, Updated: r.UpdatedAt,
		}
	}
	return out, err
}
