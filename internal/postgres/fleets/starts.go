package fleets

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// judgedAtOnce bounds what one visit judges.
const judgedAtOnce = 5000

// proving is what a wave still waits for: how many commands, and from when on the next can be proven.
type proving struct {
	count int
	from  time.Time
}

// judgeStarts judges the commands that the wave under way started, by what their nodes report. One that has not run for
// long enough counts as failed from here on.
func judgeStarts(ctx context.Context, q *db.Queries, name fleet.FleetName) (proving, error) {
	run, err := q.NewestFleetRunForUpdate(ctx, string(name))
	if postgres.NoRows(err) || err == nil && !fleet.FleetState(run.State).Live() {
		return proving{}, nil
	}
	if err != nil {
		return proving{}, err
	}
	spec, err := specOf(&run)
	if err != nil || spec.MinRun() == 0 {
		return proving{}, err
	}
	rows, err := q.FleetStarts(ctx, db.FleetStartsParams{Fleet: run.Fleet, Run: run.Run, Wave: run.Wave, MaxRows: judgedAtOnce})
	if err != nil {
		return proving{}, err
	}
	var left proving
	p := db.JudgeFleetTargetsParams{Fleet: run.Fleet, Run: run.Run}
	for _, r := range rows {
		v := decide.JudgeFleetStart(startOf(r), spec.MinRun(), r.Now)
		state := fleet.FleetTargetSucceeded
		switch v.Do {
		case decide.FleetStartWait:
			if left.from.IsZero() || v.Until.Before(left.from) {
				left.from = v.Until
			}
			continue
		case decide.FleetStartFailed:
			state = fleet.FleetTargetFailed
		case decide.FleetStartProven:
		}
		p.Sites, p.Names, p.States = append(p.Sites, r.Site), append(p.Names, r.Name), append(p.States, string(state))
		p.Reasons, p.Messages = append(p.Reasons, v.Reason), append(p.Messages, v.Message)
	}
	if err := writeVerdicts(ctx, q, &run, p); err != nil {
		return proving{}, err
	}
	left.count = len(rows) - len(p.Names)
	if len(rows) < judgedAtOnce {
		return left, nil
	}
	n, err := q.CountFleetStarts(ctx, db.CountFleetStartsParams{Fleet: run.Fleet, Run: run.Run, Wave: run.Wave})
	return proving{count: int(n)}, err
}

// CountFleetStarts is how many instances of a run's wave nobody has judged yet.
func (s *Store) CountFleetStarts(ctx context.Context, r FleetRun) (int, error) {
	n, err := s.Q.CountFleetStarts(ctx, db.CountFleetStartsParams{Fleet: string(r.Fleet), Run: r.Run, Wave: postgres.WaveNumber(r.Wave)})
	return int(n), err
}

// writeVerdicts writes verdicts, and tells watchers of failures.
func writeVerdicts(ctx context.Context, q *db.Queries, run *db.FleetRun, p db.JudgeFleetTargetsParams) error {
	if len(p.Names) == 0 {
		return nil
	}
	f := fleetWork{q: q, in: postgres.Request{Actor: postgres.RegionActor}}
	var was *fleetStatus
	if slices.Contains(p.States, string(fleet.FleetTargetFailed)) {
		o, err := postgres.Find(ctx, q, fleet.FleetKey(fleet.FleetName(run.Fleet)))
		if err != nil {
			return err
		}
		if f.object = o; o != nil {
			if was, err = f.status(ctx, run); err != nil {
				return err
			}
		}
	}
	if _, err := q.JudgeFleetTargets(ctx, p); err != nil {
		return err
	}
	if f.object == nil {
		return nil
	}
	return f.announce(ctx, was, run)
}

func startOf(r db.FleetStartsRow) fleet.FleetStartSeen {
	seen := fleet.FleetStartSeen{
		Site: fleet.SiteName(r.Site), Instance: fleet.InstanceName(r.Name), Since: r.Since, Runs: r.Runs,
		Replaced: r.Replaced, Current: r.Current, Running: r.Running,
		Exits: int(r.Exits), ExitsBefore: int(r.ExitsBefore), LastExit: r.LastExit, Node: fleet.NodeName(r.Node),
	}
	if r.LookedAt != nil {
		seen.Looked = *r.LookedAt
	}
	return seen
}
