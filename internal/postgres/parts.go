package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Open connects, migrates, and checks that this is the database that the region knows: a
// changed system identifier or timeline means a restored backup, which is refused until
// `holdfast admin raise-era`.
func Open(ctx context.Context, url, region string) (*Store, error) {
	return Connect(ctx, url, region, areas())
}

// OpenMigrated opens a database that an operator migrates: Precondition unless it has the schema
// of this version.
func OpenMigrated(ctx context.Context, url, region string) (*Store, error) {
	return ConnectMigrated(ctx, url, region, areas())
}

// areas has what each area adds. Instances, deployments and fleet changes are written by requests of their own.
func areas() Parts {
	return Parts{
		Kinds: map[fleet.ObjectKind]StoredKind{
			fleet.KindProject: {Unused: unusedProject},
			fleet.KindSite: {
				Check:   Checked(keepOne),
				Written: Following(siteWritten), Unused: unusedSite,
				Removed: func(ctx context.Context, q *db.Queries, w Write, o *fleet.Object) error {
					return setNodes(ctx, q, w, o, fleet.SiteSpec{})
				},
			},
			fleet.KindPool: {
				Written: Following(poolWritten),
				Unused: func(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
					return unnamed(ctx, q, "pools", key)
				},
			},
			fleet.KindTemplate: {
				Check: Checked(pinCompositions), Written: Following(templateWritten), Unused: unusedTemplate,
			},
			fleet.KindFleet: {Unused: notUnderWay},
			fleet.KindDeployment: {Unused: func(_ context.Context, _ *db.Queries, key fleet.ObjectKey) error {
				return fleet.Errorf(fleet.Invalid, "%s cannot be deleted this way: it ends with its replicas", key).WithHint("destroy it")
			}},
		},
		Cancels: map[fleet.OperationKind]func(context.Context, *db.Queries, Operation) error{fleet.OperationFleet: cancelFleet},
	}
}
