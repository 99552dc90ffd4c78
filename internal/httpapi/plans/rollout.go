package plans

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// roomsLooked bounds for how many deployments of a plan it is looked whether their surge has room: each takes a query.
const roomsLooked = 100

// detailRollout says what a rollout of a deployment takes, if its release replaces what runs.
func (p *planner) detailRollout(ctx context.Context, o *planned, runs fleet.RunningSpec) error {
	if !slices.ContainsFunc(o.changes, func(c fleet.SpecChange) bool { return c.Path == fleet.PathNewRuntimeObject }) {
		return nil
	}
	var from fleet.DeploymentSpec
	if err := json.Unmarshal(runs.Spec, &from); err != nil {
		return fleet.Errorf(fleet.Internal, "read what runs of %s: %w", o.key, err)
	}
	var to fleet.Definition
	if err := json.Unmarshal(o.deployment.Definition, &to); err != nil {
		return fleet.Errorf(fleet.Internal, "read the definition of %s: %w", o.key, err)
	}
	spec := o.deployment.Spec
	target := min(max(runs.Target, spec.Replicas.Min), spec.Replicas.Max)
	size := decide.SizeOf(spec.Strategy, target, from.Resources, to.Resources)
	o.rollout = &api.PlanRollout{
		Strategy: cmp.Or(spec.Strategy.Type, fleet.StrategyRolling), Replicas: runs.Target, Most: size.Replicas, Surge: size.Surge,
		MinHealthyTime: spec.Strategy.MinHealthy(to.Terms().Shows()).Seconds(),
		Peak:           api.ResourceTotal{CPU: size.Peak.CPU, Memory: size.Peak.Memory, GPUs: size.Peak.GPUs},
	}
	if n := len(spec.Strategy.Plan()); n > 0 {
		o.rollout.Steps = n + 1
	}
	return p.lookForRoom(ctx, o, to)
}

// lookForRoom places the surge on what is free now.
func (p *planner) lookForRoom(ctx context.Context, o *planned, d fleet.Definition) error {
	if o.rollout.Surge == 0 || p.roomsLooked >= roomsLooked {
		return nil
	}
	p.roomsLooked++
	rooms, err := p.s.Store.Rooms(ctx, fleet.DeploymentName(o.key.Name))
	if err != nil {
		return err
	}
	want := decide.PlacementOf(o.project, o.deployment.Spec.Placement, d)
	want.Count = o.rollout.Surge
	placed := decide.Place(want, rooms)
	room := len(placed.Nodes)
	o.rollout.Room, o.rollout.Why = &room, placed.Message
	return nil
}
