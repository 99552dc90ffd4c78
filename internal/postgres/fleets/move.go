package fleets

import (
	"cmp"
	"context"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// MoveFleet moves a run one step on. What was decided before another move, and the
// same step again, change nothing.
func (s *Store) MoveFleet(ctx context.Context, m fleet.FleetMove) error {
	if m.On != "" && !m.On.Ends() {
		return fleet.Errorf(fleet.Invalid, "unknown step %.40q of a fleet change", m.On)
	}
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.FleetKey(m.Fleet)}); err != nil {
			return err
		}
		run, err := q.FleetRunForUpdate(ctx, db.FleetRunForUpdateParams{Fleet: string(m.Fleet), Run: m.Run})
		if postgres.NoRows(err) {
			return postgres.OrNotFound(nil, "run", fmt.Sprintf("%d of fleet change %s", m.Run, m.Fleet), "holdfast get fleets")
		}
		if err != nil || void(m, run) {
			return err
		}
		o, err := postgres.Find(ctx, q, fleet.FleetKey(m.Fleet))
		if err != nil || o == nil {
			return postgres.OrNotFound(err, "fleet", string(m.Fleet), "holdfast get fleets")
		}
		f := fleetWork{q: q, object: o, in: postgres.Request{Actor: postgres.RegionActor}}
		if m.On == "" {
			return f.nextWave(ctx, &run)
		}
		return f.end(ctx, &run, m)
	})
}

// void says that the run is past a move.
func void(m fleet.FleetMove, run db.FleetRun) bool {
	return !fleet.FleetState(run.State).Live() || m.Wave != 0 && m.Wave != int(run.Wave) || m.Turn != 0 && m.Turn != run.Turn
}

func (f fleetWork) nextWave(ctx context.Context, run *db.FleetRun) error {
	was, err := f.status(ctx, run)
	if err != nil {
		return err
	}
	n, err := f.q.NextFleetWave(ctx, db.NextFleetWaveParams{Fleet: run.Fleet, Run: run.Run, Wave: run.Wave})
	if err != nil || n == 0 { // paused since, or the last one
		return err
	}
	run.Wave++
	return f.announce(ctx, was, run)
}

// end has no effect if the machine no longer has such a transition: a request changed the run since.
func (f fleetWork) end(ctx context.Context, run *db.FleetRun, m fleet.FleetMove) error {
	to, err := fleet.FleetState(run.State).Next(m.On)
	if fleet.KindOf(err) == fleet.IllegalState {
		return nil
	}
	if err != nil {
		return err
	}
	was, err := f.status(ctx, run)
	if err != nil {
		return err
	}
	left := db.FailFleetDeliveriesParams{Fleet: run.Fleet, Run: run.Run, Reason: "run_ended", Message: "the run ended before word of it came"}
	if err := f.q.FailFleetDeliveries(ctx, left); err != nil {
		return err
	}
	counts, err := countFleet(ctx, f.q, run)
	if err != nil {
		return err
	}
	if m.On == fleet.FleetFinish && run.Retrying && counts.all.Waiting > 0 { // that the retry left alone
		m.On, m.Reason = fleet.FleetStop, fleet.FleetRetried
		m.Message = fmt.Sprintf("those that had failed were tried again; %d instances wait for a resume", counts.all.Waiting)
		to = fleet.FleetStopped
	}
	reason, message := saidOf(m, *run, counts)
	return f.finish(ctx, run, fleetEnding{was, to, m.On.Operation(m.Reason, counts.all), reason, message})
}

// saidOf gives the reason and the message of an end, with what can be done next.
func saidOf(m fleet.FleetMove, run db.FleetRun, counts fleetCounts) (reason, message string) {
	wave, all := counts.waves[int(run.Wave)], counts.all
	switch {
	case m.On == fleet.FleetStop:
		what := cmp.Or(m.Message, fmt.Sprintf("%d of %d instances failed in wave %d of %d", wave.Failed, wave.Total, run.Wave, run.Waves))
		return m.Reason, what + "; continue with: holdfast fleet resume|retry|rollback " + run.Fleet
	case m.On == fleet.FleetFinish && all.Failed > 0:
		what := fmt.Sprintf("%d of %d instances failed", all.Failed, all.Total)
		return "with_failures", what + "; try them again with: holdfast fleet retry " + run.Fleet
	case m.On == fleet.FleetCancel:
		return cmp.Or(m.Reason, "cancelled"), m.Message
	}
	return m.Reason, m.Message
}

// fleetEnding is how a run and its operations end.
type fleetEnding struct {
	was       *fleetStatus
	state     fleet.FleetState
	operation fleet.OperationState
	reason    string
	message   string
}

// finish ends a run with its operations, and notifies watchers.
func (f fleetWork) finish(ctx context.Context, run *db.FleetRun, e fleetEnding) error {
	n, err := f.q.MoveFleetRun(ctx, db.MoveFleetRunParams{
		Fleet: run.Fleet, Run: run.Run, State: string(e.state), FromState: run.State, Reason: e.reason, Message: e.message,
	})
	if err != nil || n == 0 {
		return err
	}
	run.State, run.Reason, run.Message = string(e.state), e.reason, e.message
	how := postgres.Ending{Kind: fleet.OperationFleet, To: run.Run, State: e.operation, Reason: e.reason, Message: e.message}
	if err := postgres.EndOperations(ctx, f.q, f.subject(), how); err != nil {
		return err
	}
	return f.announce(ctx, e.was, run)
}

// fleetStatus is what events tell of a fleet change: its newest run.
type fleetStatus struct {
	Run    int64             `json:"run"`
	Wave   int32             `json:"wave"`
	Waves  int32             `json:"waves"`
	State  string            `json:"state"`
	Reason string            `json:"reason"`
	Counts fleet.FleetCounts `json:"counts"`
}

// status is nil where there is no run.
func (f fleetWork) status(ctx context.Context, run *db.FleetRun) (*fleetStatus, error) {
	if run == nil {
		return nil, nil
	}
	counts, err := countFleet(ctx, f.q, run)
	return &fleetStatus{run.Run, run.Wave, run.Waves, run.State, run.Reason, counts.all}, err
}

// announce writes the status event of a run as it stands now.
func (f fleetWork) announce(ctx context.Context, was *fleetStatus, run *db.FleetRun) error {
	now, err := f.status(ctx, run)
	if err != nil {
		return err
	}
	return postgres.AppendStatus(ctx, f.q, db.AppendEventParams{
		Kind: string(fleet.KindFleet), Project: string(f.object.Project), Name: f.object.Name, Uid: f.object.UID,
		Generation: run.Generation, Actor: f.in.Actor,
	}, was, now)
}

// fleetCounts are of a run, and of each of its waves.
type fleetCounts struct {
	all   fleet.FleetCounts
	waves map[int]fleet.FleetCounts
}

func countFleet(ctx context.Context, q *db.Queries, run *db.FleetRun) (fleetCounts, error) {
	all, err := countFleets(ctx, q, []db.FleetRun{*run})
	return all[fleetRunKey{run.Fleet, run.Run}], err
}

type fleetRunKey struct {
	fleet string
	run   int64
}

// countFleets counts the targets of some runs in one query.
func countFleets(ctx context.Context, q *db.Queries, runs []db.FleetRun) (map[fleetRunKey]fleetCounts, error) {
	var p db.CountFleetWavesParams
	for _, r := range runs {
		p.Fleets, p.Runs = append(p.Fleets, r.Fleet), append(p.Runs, r.Run)
	}
	rows, err := q.CountFleetWaves(ctx, p)
	out := map[fleetRunKey]fleetCounts{}
	for _, r := range rows {
		k := fleetRunKey{r.Fleet, r.Run}
		c, seen := out[k]
		if !seen {
			c.waves = map[int]fleet.FleetCounts{}
		}
		c.all.Add(fleet.FleetTargetState(r.State), int(r.Targets))
		w := c.waves[int(r.Wave)]
		w.Add(fleet.FleetTargetState(r.State), int(r.Targets))
		c.waves[int(r.Wave)] = w
		out[k] = c
	}
	return out, err
}
