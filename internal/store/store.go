// Package store is the region's database: the kernel in internal/postgres, which has transactions, locks, the write path,
// the feed, bodies, operations and the outbox, and its areas in the packages beside it.
package store

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/collect"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/modules"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
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
			fleet.KindProject: {Unused: postgres.UnusedProject},
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
			fleet.KindDeployment: {Unused: func(_ context.Context, _ *db.Queries, key fleet.ObjectKey) error {
				return fleet.Errorf(fleet.Invalid, "%s cannot be deleted this way: it ends with its replicas", key).WithHint("destroy it")
			}},
		},
		Cancels: map[fleet.OperationKind]func(context.Context, *db.Queries, *postgres.Operation) error{
			fleet.OperationFleet:     fleets.CancelFleet,
			fleet.OperationDrain:     nodes.CancelDrain,
			fleet.OperationReconcile: postgres.EndsCancelled("it was cancelled; a comparison under way ends by itself"),
			fleet.OperationExecute:   postgres.EndsCancelled("it was cancelled; the module may finish what it has started"),
		},
	}
}
