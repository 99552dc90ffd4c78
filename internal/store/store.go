// Package store is the region's database: the kernel in internal/postgres, which has transactions, locks, the write path,
// the feed, bodies, operations and the outbox, and its areas in the packages beside it.
package store

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/collect"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/modules"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// The parts, by areas.
type (
	keyringStore     = keyring.Store
	plansStore       = plans.Store
	deliveriesStore  = deliveries.Store
	reconcileStore   = reconcile.Store
	deploymentsStore = deployments.Store
	fleetsStore      = fleets.Store
	nodesStore       = nodes.Store
	modulesStore     = modules.Store
	collectStore     = collect.Store
	copiesStore      = copies.Store
	policiesStore    = policies.Store
	peersStore       = peers.Store
)

// Store is the region's database. It is safe for concurrent use.
type Store struct {
	*postgres.Store
	*keyringStore
	*plansStore
	*deliveriesStore
	*reconcileStore
	*deploymentsStore
	*fleetsStore
	*nodesStore
	*modulesStore
	*collectStore
	*copiesStore
	*policiesStore
	*peersStore
}

func all(s *postgres.Store, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	return &Store{
		Store:            s,
		keyringStore:     keyring.On(s),
		plansStore:       plans.On(s),
		deliveriesStore:  deliveries.On(s),
		reconcileStore:   reconcile.On(s),
		deploymentsStore: deployments.On(s),
		fleetsStore:      fleets.On(s),
		nodesStore:       nodes.On(s),
		modulesStore:     modules.On(s),
		collectStore:     collect.On(s),
		copiesStore:      copies.On(s),
		policiesStore:    policies.On(s),
		peersStore:       peers.On(s),
	}, nil
}

// Open connects, migrates, and checks that this is the database that the region knows: a
// changed system identifier or timeline means a restored backup, which is refused until
// `holdfast admin raise-era`.
func Open(ctx context.Context, url, region string) (*Store, error) {
	return all(postgres.Connect(ctx, url, region, areas()))
}

// OpenMigrated opens a database that an operator migrates: Precondition unless it has the schema
// of this version.
func OpenMigrated(ctx context.Context, url, region string) (*Store, error) {
	return all(postgres.ConnectMigrated(ctx, url, region, areas()))
}

// areas has what each area adds. Instances, deployments and fleet changes are written by requests of their own.
func areas() postgres.Parts {
	return postgres.Parts{
		Kinds: map[fleet.ObjectKind]postgres.StoredKind{
			fleet.KindOrganization: {Written: policies.HolderWritten, Unused: policies.UnusedOrganization, Removed: policies.HolderRemoved},
			fleet.KindProject: {
				Written: postgres.Following(policies.ProjectWritten), Unused: postgres.UnusedProject, Removed: policies.HolderRemoved,
			},
			fleet.KindService: {
				Check: postgres.Checked(policies.OutsideDefault), Written: policies.HolderWritten, Unused: policies.UnusedService, Removed: policies.HolderRemoved,
			},
			fleet.KindSite: {
				Check:   postgres.Checked(nodes.KeepOne),
				Written: postgres.Following(nodes.SiteWritten), Unused: nodes.UnusedSite,
				Removed: func(ctx context.Context, q *db.Queries, w postgres.Write, o *fleet.Object) error {
					return nodes.SetNodes(ctx, q, w, o, fleet.SiteSpec{})
				},
			},
			fleet.KindPool: {
				Written: postgres.Following(deployments.PoolWritten),
				Unused: func(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
					return postgres.Unnamed(ctx, q, "pools", key)
				},
			},
			fleet.KindTemplate: {
				Check: postgres.Checked(deliveries.PinCompositions), Written: postgres.Following(deliveries.TemplateWritten), Unused: deliveries.UnusedTemplate,
			},
			fleet.KindFleet: {Unused: fleets.NotUnderWay},
			fleet.KindRegion: {Unused: func(_ context.Context, _ *db.Queries, key fleet.ObjectKey) error {
				return fleet.Errorf(fleet.Invalid, "%s cannot be deleted: a region declares itself", key).
					WithHint("to remove a peer: holdfast region remove NAME")
			}},
			fleet.KindDeployment: {Unused: func(_ context.Context, _ *db.Queries, key fleet.ObjectKey) error {
				return fleet.Errorf(fleet.Invalid, "%s cannot be deleted this way: it ends with its replicas", key).WithHint("destroy it")
			}},
		},
		Cancels: map[fleet.OperationKind]func(context.Context, *db.Queries, *postgres.Operation) error{
			fleet.OperationFleet:       fleets.CancelFleet,
			fleet.OperationDrain:       nodes.CancelDrain,
			fleet.OperationReconcile:   postgres.EndsCancelled("it was cancelled; a comparison under way ends by itself"),
			fleet.OperationApplyPolicy: postgres.EndsCancelled("it was cancelled; the policy is applied nevertheless"),
			fleet.OperationSync:        postgres.EndsCancelled("it was cancelled; the comparison continues nevertheless"),
			fleet.OperationExecute:     postgres.EndsCancelled("it was cancelled; the module may finish what it has started"),
		},
	}
}
