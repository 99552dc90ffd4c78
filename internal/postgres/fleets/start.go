package fleets

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// start begins a run of what is declared; the one that is under way is superseded.
func (f fleetWork) start(ctx context.Context, live *db.FleetRun) (*postgres.Operation, error) {
	var spec fleet.FleetSpec
	if err := json.Unmarshal(f.object.Spec, &spec); err != nil {
		return nil, postgres.Unreadable("the spec", err)
	}
	if live != nil && fleet.FleetState(live.State).Live() {
		if err := f.supersede(ctx, live); err != nil {
			return nil, err
		}
	}
	members, err := f.members(ctx, spec)
	if err != nil {
		return nil, err
	}
	waves, count := decide.Waves(spec, members)
	run, err := f.insert(ctx, spec, count, db.InsertFleetRunParams{Generation: f.object.Generation})
	if err != nil {
		return nil, err
	}
	p := db.InsertFleetTargetsParams{Fleet: run.Fleet, Run: run.Run}
	for i, m := range members {
		p.Sites, p.Names = append(p.Sites, string(m.Site)), append(p.Names, string(m.Instance))
		p.Waves = append(p.Waves, postgres.WaveNumber(waves[i]))
	}
	if err := f.q.InsertFleetTargets(ctx, p); err != nil {
		return nil, err
	}
	was, err := f.status(ctx, live)
	if err != nil {
		return nil, err
	}
	return f.begin(ctx, was, run)
}

// begin opens the operation of a run that has just been written or reopened.
func (f fleetWork) begin(ctx context.Context, was *fleetStatus, run *db.FleetRun) (*postgres.Operation, error) {
	if err := f.announce(ctx, was, run); err != nil {
		return nil, err
	}
	spec, err := specOf(run)
	if err != nil {
		return nil, err
	}
	return f.open(ctx, run, spec.Deadline())
}

// members are the instances that a spec selects now, in the order of site and name.
func (f fleetWork) members(ctx context.Context, spec fleet.FleetSpec) ([]fleet.FleetMember, error) {
	labels, err := json.Marshal(spec.Selector.Labels)
	if err != nil {
		return nil, err
	}
	if spec.Selector.Labels == nil {
		labels = json.RawMessage("{}")
	}
	rows, err := f.q.SelectFleetMembers(ctx, db.SelectFleetMembersParams{
		Project: string(f.object.Project), Labels: labels, Sites: postgres.TextOf(spec.Selector.Sites), Template: string(spec.Change.Template),
	})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fleet.Errorf(fleet.Invalid, "the selector matches no instance of project %s", f.object.Project).At("/selector").
			WithHint("see holdfast get instances; a change with a template selects only instances that use it")
	}
	out := make([]fleet.FleetMember, len(rows))
	for i, r := range rows {
		out[i] = fleet.FleetMember{Site: fleet.SiteName(r.Site), Instance: fleet.InstanceName(r.Name)}
	}
	return out, nil
}

func (f fleetWork) insert(ctx context.Context, spec fleet.FleetSpec, waves int, p db.InsertFleetRunParams) (*db.FleetRun, error) {
	if err := postgres.Hold(ctx, f.q, spec.Bodies()...); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	p.Fleet, p.Uid, p.Project, p.RequestedBy = f.object.Name, f.object.UID, string(f.object.Project), f.in.Actor
	p.Spec, p.Message, p.Waves, p.Seconds = raw, f.why, postgres.WaveNumber(waves), spec.Deadline().Seconds()
	run, err := f.q.InsertFleetRun(ctx, p)
	return &run, err
}

// supersede ends a run in favour of the next; its targets stay as they are.
func (f fleetWork) supersede(ctx context.Context, run *db.FleetRun) error {
	to, err := fleet.FleetState(run.State).Next(fleet.FleetSupersede)
	if err != nil {
		return err
	}
	was, err := f.status(ctx, run)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("%s started another run", f.in.Actor)
	return f.finish(ctx, run, fleetEnding{was, to, fleet.OperationSuperseded, "superseded", message})
}

// open opens an operation that waits for a run.
func (f fleetWork) open(ctx context.Context, run *db.FleetRun, limit time.Duration) (*postgres.Operation, error) {
	o, err := postgres.OpenOperation(ctx, f.q, postgres.Request{Actor: f.in.Actor, Door: f.in.Door, Limit: limit}, postgres.NewOperation{
		Kind: fleet.OperationFleet, Name: run.Fleet, Subject: f.subject(), Revision: run.Run, Project: fleet.ProjectName(run.Project),
	})
	return &o, err
}
