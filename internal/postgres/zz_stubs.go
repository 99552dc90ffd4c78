package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// This file stands in for methods that are made on other branches; the merge deletes it.

func notThere() error { return fleet.Errorf(fleet.Internal, "not there yet") }

// PutFleet is a stub.
func (*Store) PutFleet(context.Context, FleetPut) (Started, error) { return Started{}, notThere() }

// TurnFleet is a stub.
func (*Store) TurnFleet(context.Context, FleetTurn) (Started, error) { return Started{}, notThere() }

// GetFleetRun is a stub.
func (*Store) GetFleetRun(context.Context, fleet.FleetName, int64) (FleetRun, error) {
	return FleetRun{}, notThere()
}

// ListFleetRuns is a stub.
func (*Store) ListFleetRuns(context.Context, fleet.FleetName, int64, int32) ([]FleetRun, error) {
	return nil, notThere()
}

// ListFleetTargets is a stub.
func (*Store) ListFleetTargets(context.Context, FleetTargetFilter) ([]FleetTargetView, error) {
	return nil, notThere()
}

// NewestFleetRuns is a stub.
func (*Store) NewestFleetRuns(context.Context, ...string) (map[string]FleetRun, error) {
	return nil, notThere()
}

// PutBodies is a stub that works: it stores one by one.
func (s *Store) PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	out := make([]fleet.Hash, len(bodies))
	for i, b := range bodies {
		var err error
		if out[i], err = s.PutBody(ctx, project, b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// BatchItems is a stub.
func (*Store) BatchItems(context.Context, fleet.BatchID, fleet.NodeName) ([]fleet.BatchItem, error) {
	return nil, notThere()
}

// BatchTokens is a stub.
func (*Store) BatchTokens(context.Context, fleet.BatchID) ([]FetchToken, error) {
	return nil, notThere()
}

// BatchBodies is a stub.
func (*Store) BatchBodies(context.Context, fleet.BatchID, fleet.NodeName, []fleet.Hash, func(fleet.Hash, []byte) error) error {
	return notThere()
}

// TicketBodies is a stub.
func (*Store) TicketBodies(context.Context, fleet.SiteName, fleet.NodeName, []fleet.Hash, func(fleet.Hash, []byte) error) error {
	return notThere()
}

// RecordBatch is a stub.
func (*Store) RecordBatch(context.Context, fleet.BatchID, fleet.NodeName, []fleet.BatchResult) error {
	return notThere()
}
