package activities

import (
	"context"
	"log/slog"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fleetStore is a region's record of fleet changes.
type fleetStore interface {
	// SeeFleet attaches the entity's run to its change, takes over what was asked for, and says which
	// sites are outside of their windows.
	SeeFleet(ctx context.Context, in fleet.FleetVisit) (fleet.FleetSeen, error)
	// MoveFleet takes the run of a change one step on; a repeated step changes nothing.
	MoveFleet(ctx context.Context, in fleet.FleetMove) error
}

// Fleets is what a fleet change's entity does at the store, as local activities.
type Fleets struct {
	Store fleetStore
	Doors doorTeller
	Build string
	Log   *slog.Logger
}

// SeeFleet looks at the change.
func (f *Fleets) SeeFleet(ctx context.Context, in fleet.FleetVisit) (fleet.FleetSeen, error) {
	in.Build = f.Build
	seen, err := f.Store.SeeFleet(ctx, in)
	if err != nil {
		return seen, fail(ctx, err)
	}
	if seen.Untold > 0 {
		if err := f.Doors.TellDoors(ctx, fleet.FleetSubject(in.Fleet)); err != nil {
			f.Log.WarnContext(ctx, "doors are told by the next sweep", "fleet", in.Fleet, "error", err)
		}
	}
	return seen, nil
}

// MoveFleet takes a step.
func (f *Fleets) MoveFleet(ctx context.Context, in fleet.FleetMove) error {
	return fail(ctx, f.Store.MoveFleet(ctx, in))
}
