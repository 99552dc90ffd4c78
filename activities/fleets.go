package activities

import (
	"context"
	"log/slog"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fleetStore is a region's record of fleet changes.
type fleetStore interface {
	// See attaches the entity's run to its change, takes over what was asked for, and says which
	// sites are outside of their windows.
	See(ctx context.Context, in SeeFleet) (fleet.FleetSeen, error)
	// Move takes the run of a change one step on; a repeated step changes nothing.
	Move(ctx context.Context, in MoveFleet) error
}

// Fleets is what a fleet change's entity does at the store, as local activities.
type Fleets struct {
	Store fleetStore
	Doors doorTeller
	Build string
	Log   *slog.Logger
}

// SeeFleet is one look of the entity whose run is Run.
type SeeFleet struct {
	Fleet fleet.FleetName `json:"fleet"`
	Run   string          `json:"run"`
	Build string          `json:"build,omitempty"`
}

// MoveFleet takes run number Run of a change from Wave one step on: to the next wave (On
// ""), or to its end. It is void when somebody turned the run after Turn.
type MoveFleet struct {
	Fleet   fleet.FleetName  `json:"fleet"`
	Run     int64            `json:"run"`
	Wave    int              `json:"wave"`
	Turn    int64            `json:"turn,omitempty"`
	On      fleet.FleetEvent `json:"on,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	Message string           `json:"message,omitempty"`
}

// SeeFleet looks at the change.
func (f *Fleets) SeeFleet(ctx context.Context, in SeeFleet) (fleet.FleetSeen, error) {
	in.Build = f.Build
	seen, err := f.Store.See(ctx, in)
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
func (f *Fleets) MoveFleet(ctx context.Context, in MoveFleet) error {
	return fail(ctx, f.Store.Move(ctx, in))
}
