package httpapi

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// fleetFake answers for fleet changes and batches; everything else is the real store.
type fleetFake struct {
	Store
	puts       []fleets.FleetPut
	turns      []fleets.FleetTurn
	started    func(w postgres.Write) (postgres.Started, error)
	run        *fleets.FleetRun
	staged     []fleet.SiteName // at which it waits for a window
	proving    int
	runs       func(before int64, limit int32) []fleets.FleetRun
	targets    func(f fleets.FleetTargetFilter) []fleets.FleetTargetView
	objects    map[string]fleet.Object
	operations []postgres.Operation
	filter     postgres.OperationFilter

	tokens  func(id fleet.BatchID) ([]deliveries.FetchToken, error)
	items   []fleet.BatchItem
	bodies  func(node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error
	results []fleet.BatchResult
	mu      sync.Mutex
	asked   fleet.NodeName // that asked last
}

var _ Store = (*fleetFake)(nil)

func (f *fleetFake) GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error) {
	if k.Kind != fleet.KindFleet {
		return f.Store.GetObject(ctx, k)
	}
	if o, found := f.objects[k.Name]; found {
		return o, nil
	}
	return fleet.Object{}, fleet.Errorf(fleet.NotFound, "fleet %s not found", k.Name).At("fleet")
}

func (f *fleetFake) ListObjects(ctx context.Context, kind fleet.ObjectKind, scope string, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error) {
	if kind != fleet.KindFleet {
		return f.Store.ListObjects(ctx, kind, scope, project, after, limit)
	}
	var out []fleet.Object
	for _, o := range f.objects {
		out = append(out, o)
	}
	return out, nil
}

func (f *fleetFake) PutFleet(_ context.Context, p fleets.FleetPut) (postgres.Started, error) {
	f.puts = append(f.puts, p)
	return f.started(p.Write)
}

func (f *fleetFake) TurnFleet(_ context.Context, t fleets.FleetTurn) (postgres.Started, error) {
	f.turns = append(f.turns, t)
	return f.started(t.Write)
}

func (f *fleetFake) GetFleetRun(_ context.Context, name fleet.FleetName, run int64) (fleets.FleetRun, error) {
	if f.run == nil || run != 0 && run != f.run.Run {
		return fleets.FleetRun{}, fleet.Errorf(fleet.NotFound, "fleet change %s has no such run", name).At("run")
	}
	return *f.run, nil
}

func (f *fleetFake) NewestFleetRuns(_ context.Context, names ...string) (map[string]fleets.FleetRun, error) {
	out := map[string]fleets.FleetRun{}
	for _, name := range names {
		if f.run != nil && string(f.run.Fleet) == name {
			out[name] = *f.run
		}
	}
	return out, nil
}

func (f *fleetFake) CountFleetStarts(context.Context, fleets.FleetRun) (int, error) {
	return f.proving, nil
}

func (f *fleetFake) StagedFleetSites(_ context.Context, r fleets.FleetRun) ([]fleet.SiteName, time.Time, error) {
	return f.staged, fleetTime, nil
}

func (f *fleetFake) ListFleetRuns(_ context.Context, _ fleet.FleetName, before int64, limit int32) ([]fleets.FleetRun, error) {
	return f.runs(before, limit), nil
}

func (f *fleetFake) ListFleetTargets(_ context.Context, filter fleets.FleetTargetFilter) ([]fleets.FleetTargetView, error) {
	return f.targets(filter), nil
}

func (f *fleetFake) GetOperation(_ context.Context, id fleet.OperationID) (postgres.Operation, error) {
	for _, o := range f.operations {
		if o.ID == id {
			return o, nil
		}
	}
	return postgres.Operation{}, fleet.Errorf(fleet.NotFound, "there is no operation")
}

func (f *fleetFake) ListOperations(_ context.Context, filter postgres.OperationFilter, _ postgres.Place, _ int32) ([]postgres.Operation, error) {
	f.filter = filter
	return f.operations, nil
}

func (f *fleetFake) asks(node fleet.NodeName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = node
}

func (f *fleetFake) node() fleet.NodeName {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *fleetFake) BatchTokens(_ context.Context, id fleet.BatchID) ([]deliveries.FetchToken, error) {
	return f.tokens(id)
}

func (f *fleetFake) BatchItems(_ context.Context, _ fleet.BatchID, node fleet.NodeName) ([]fleet.BatchItem, error) {
	f.asks(node)
	return slices.Clone(f.items), nil
}

func (f *fleetFake) BatchBodies(_ context.Context, _ fleet.BatchID, node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
	f.asks(node)
	return f.bodies(node, hashes, emit)
}

func (f *fleetFake) TicketBodies(_ context.Context, _ fleet.SiteName, node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error {
	f.asks(node)
	return f.bodies(node, hashes, emit)
}

func (f *fleetFake) RecordBatch(_ context.Context, _ fleet.BatchID, node fleet.NodeName, results []fleet.BatchResult) error {
	f.asks(node)
	f.results = append(f.results, results...)
	return nil
}

var fleetTime = time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)

// withFleets is a region whose fleet changes are the fake's; a change of it starts an
// operation.
func withFleets(t *testing.T) (*region, *fleetFake) {
	t.Helper()
	f := &fleetFake{objects: map[string]fleet.Object{}}
	r := setup(t, func(d *Deps) {
		f.Store, d.Store = d.Store, f
	})
	f.started = func(w postgres.Write) (postgres.Started, error) {
		o := f.declared(t, w.Key.Name, fleet.DefaultProject)
		op := postgres.Operation{
			ID: "0123456789abcdef0123456789abcdef", Kind: fleet.OperationFleet, Fleet: fleet.FleetName(w.Key.Name), Project: fleet.DefaultProject,
			Subject: fleet.FleetSubject(fleet.FleetName(w.Key.Name)), State: fleet.OperationRunning, CreatedAt: fleetTime, Deadline: fleetTime,
		}
		return postgres.Started{Written: postgres.Written{After: &o, Changed: true}, Operation: &op}, nil
	}
	return r, f
}

func (f *fleetFake) declared(t *testing.T, name string, project fleet.ProjectName) fleet.Object {
	t.Helper()
	spec, err := json.Marshal(fleet.FleetSpec{Change: fleet.FleetChange{Template: "press", TemplateGeneration: 2}}.WithDefaults())
	require.NoError(t, err)
	o := fleet.Object{
		ObjectKey: fleet.ObjectKey{Kind: fleet.KindFleet, Name: name}, Project: project, Generation: 3, ResourceVersion: 42, Spec: spec,
		Syncing: json.RawMessage(`{}`), CreatedAt: fleetTime, UpdatedAt: fleetTime,
	}
	f.objects[name] = o
	return o
}
