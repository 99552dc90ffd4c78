package plans

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	// Only the plain data types that stores give and take; no handler sees the adapter.
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// Store is what plan and apply need of the region's truth. Errors are *fleet.Error.
type Store interface {
	setStore
	writeStore
	// TemplateSpec reads one generation, 0 for the current one, and returns its number.
	TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error)
	// ViewDeployments takes as many queries for a page as for one. It knows deployments that have
	// ended too, as long as their record is kept.
	ViewDeployments(ctx context.Context, names ...string) (map[string]deployments.DeploymentView, error)
	// Rooms gives every node of the region as placement sees it for one deployment.
	Rooms(ctx context.Context, name fleet.DeploymentName) ([]fleet.NodeRoom, error)
	// RunningSpecs gives what runs of deployments by name, without bodies; nothing of one that was not released.
	RunningSpecs(ctx context.Context, names ...string) (map[string]fleet.RunningSpec, error)
}

// setStore reads many objects at once: none of it takes a query per object.
type setStore interface {
	Standing(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey]plans.Standing, error)
	// Copied gives those of some keys of shared kinds that copies have.
	Copied(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey]plans.Copied, error)
	// MayDeclare says of each of some objects why the policies over them, as all of them then have them, do not allow it here.
	MayDeclare(ctx context.Context, all []postgres.Declaring) ([]error, error)
	// MayDelete says of each of some objects why it is not to be deleted here.
	MayDelete(ctx context.Context, objects []*fleet.Object) (map[*fleet.Object]error, error)
	HeldRevisions(ctx context.Context, keys []fleet.ObjectKey) (map[fleet.ObjectKey][]plans.HeldRevision, error)
	ApplySet(ctx context.Context, name string) ([]fleet.Object, error)
	WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error)
	BodySizes(ctx context.Context, of []plans.BodyOf) (map[plans.BodyOf]int64, error)
	LastTemplateGenerations(ctx context.Context, names []string) (map[string]int64, error)
	SitesOfNodes(ctx context.Context, nodes []string) (map[string]string, error)
	SeenKeys(ctx context.Context, actor string, keys []string) (map[string]bool, error)
	// ClaimPlan is precondition for any request but the first that comes with the plan.
	ClaimPlan(ctx context.Context, digest string, request []byte) error
}

type writeStore interface {
	// Declare writes an object of a kind that starts no work, with the spec of its type.
	Declare(ctx context.Context, w postgres.Write, spec any) (postgres.Written, error)
	DeleteDeclared(ctx context.Context, w postgres.Write) (postgres.Written, error)
	PutInstance(ctx context.Context, c deliveries.InstanceChange) (postgres.Started, error)
	TurnInstance(ctx context.Context, t deliveries.InstanceTurn) (postgres.Started, error)
	PutDeployment(ctx context.Context, p deployments.DeploymentPut) (postgres.Started, error)
	// TurnDeployment is illegal_state for anything but a delete of one that is being deleted.
	TurnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error)
	PutFleet(ctx context.Context, p fleets.FleetPut) (postgres.Started, error)
}
