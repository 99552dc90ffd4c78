package httpapi

import (
	"context"
	"io"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/machines"
	"github.com/holdfast-io/holdfast/internal/httpapi/plans"
	// Only the plain data types that stores give and take; no handler sees the adapter.
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/copies"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/modules"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/peers"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// Store is all that the handlers need of the region's truth. Errors are *fleet.Error.
type Store interface {
	machines.Store
	objectStore
	instanceStore
	operationStore
	bodyStore
	nodeStore
	reconcileStore
	verbStore
	tokenStore
	eventStore
	plans.Store
	fleetStore
	linkStore
	drainStore
	moduleStore
	deploymentStore
	replicaStore
	peerStore
}

type peerStore interface {
	// Members lists all regions that were ever known, this one included.
	Members(ctx context.Context) ([]peers.Member, error)
	ListInvitations(ctx context.Context, after postgres.Place, limit int32) ([]peers.Invitation, error)
	DeleteInvitation(ctx context.Context, id string) error
	DisablePeer(ctx context.Context, name fleet.RegionName) error
	EnablePeer(ctx context.Context, name fleet.RegionName) error
	// RemovePeer is conflict while copies of the peer's objects are kept.
	RemovePeer(ctx context.Context, name fleet.RegionName) error
}

type deploymentStore interface {
	PutDeployment(ctx context.Context, p deployments.DeploymentPut) (postgres.Started, error)
	// Repeated answers a change that was carried out before, and refuses any other.
	Repeated(ctx context.Context, w postgres.Write, refusal error) (postgres.Started, error)
	// TurnDeployment is illegal_state for anything but a delete of one that is being deleted.
	TurnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error)
	// TurnRollout is illegal_state without a rollout under way.
	TurnRollout(ctx context.Context, t deployments.RolloutTurn) (postgres.Started, error)
	// ViewDeployments takes as many queries for a page as for one. It knows deployments that have
	// ended too, as long as their record is kept.
	ViewDeployments(ctx context.Context, names ...string) (map[string]deployments.DeploymentView, error)
	// ListEndedDeployments lists those that are declared no more, as long as their record is kept.
	ListEndedDeployments(ctx context.Context, project fleet.ProjectName, after string, limit int32) ([]deployments.EndedDeployment, error)
	// RevisionBefore is the revision that a rollback without one restores; illegal_state without one.
	RevisionBefore(ctx context.Context, name fleet.DeploymentName) (int64, error)
	ListRollouts(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]deployments.Rollout, error)
	ListDeploymentRevisions(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]deployments.DeploymentRevision, error)
	ListDeploymentHistory(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]deployments.DeploymentLine, error)
	// Rooms gives every node of the region as placement sees it for one deployment.
	Rooms(ctx context.Context, name fleet.DeploymentName) ([]fleet.NodeRoom, error)
}

type replicaStore interface {
	ListReplicas(ctx context.Context, f deployments.ReplicaFilter, after string, limit int32) ([]deployments.Replica, error)
	// UncountedReplicas gives what may run of a deployment and counts no more, newest first.
	UncountedReplicas(ctx context.Context, f deployments.UncountedFilter, limit int32) ([]deployments.UncountedReplica, error)
	// LastEndedReplicas gives those of a deployment that ended last, newest first.
	LastEndedReplicas(ctx context.Context, name fleet.DeploymentName, limit int32) ([]deployments.Replica, error)
	GetReplica(ctx context.Context, id fleet.ReplicaID) (deployments.Replica, error)
	// RemoveReplica ends one by hand; another takes its place.
	RemoveReplica(ctx context.Context, w postgres.Write, id fleet.ReplicaID) error
	ReadReplicaLogs(ctx context.Context, id fleet.ReplicaID, from int64, limit int32) ([]deployments.ReplicaLogPiece, error)
	ReplicaSamples(ctx context.Context, name fleet.DeploymentName) (map[fleet.ReplicaID]deployments.ReplicaSample, error)
}

type moduleStore interface {
	ListModules(ctx context.Context, namespace fleet.ModuleNamespace, after fleet.ModuleRef, limit int32) ([]fleet.Module, error)
	ModuleMembers(ctx context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error)
	AskExecution(ctx context.Context, in modules.ExecutionRequest) (postgres.Operation, error)
	// ExecutionOutput is gone when it is not kept any more.
	ExecutionOutput(ctx context.Context, id string) (modules.ExecutionOutput, error)
	// ClaimExecution gives the id of a key, and its output when it has answered before.
	ClaimExecution(ctx context.Context, in modules.DirectExecution) (id string, output []byte, err error)
	KeepExecution(ctx context.Context, in modules.DirectExecution, id string, output []byte) error
}

type objectStore interface {
	GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error)
	ListObjects(ctx context.Context, kind fleet.ObjectKind, scope string, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error)
	// Declare writes an object of a kind that starts no work, with the spec of its type.
	Declare(ctx context.Context, w postgres.Write, spec any) (postgres.Written, error)
	// Template finds what a name means, and its name in specs: illegal_state for a copy that is gone and takes no new pins.
	Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error)
	// TemplateSpec reads one generation, 0 for the current one, and returns its number.
	TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error)
	DeleteDeclared(ctx context.Context, w postgres.Write) (postgres.Written, error)
	// Elsewhere is nil for this region, not_owner for a peer, and not_found for any other region.
	Elsewhere(ctx context.Context, key fleet.CopyKey) error
}

type instanceStore interface {
	PutInstance(ctx context.Context, c deliveries.InstanceChange) (postgres.Started, error)
	TurnInstance(ctx context.Context, t deliveries.InstanceTurn) (postgres.Started, error)
	ViewInstance(ctx context.Context, k fleet.ObjectKey) (deliveries.InstanceView, error)
	// ViewInstances takes as many queries for a page as for one.
	ViewInstances(ctx context.Context, site fleet.SiteName, names ...string) (map[string]deliveries.InstanceView, error)
	SpecOf(ctx context.Context, k fleet.ObjectKey, revision int64) (fleet.InstanceSpec, error)
	Deployed(ctx context.Context, k fleet.ObjectKey) (snap, want fleet.Revision, err error)
	ListDeliveries(ctx context.Context, k fleet.ObjectKey, before int64, limit int32) ([]deliveries.Delivery, error)
	ReadLogs(ctx context.Context, site fleet.SiteName, name fleet.InstanceName, node fleet.NodeName, from int64) ([]nodes.LogChunk, error)
}

type operationStore interface {
	GetOperation(ctx context.Context, id fleet.OperationID) (postgres.Operation, error)
	ListOperations(ctx context.Context, f postgres.OperationFilter, after postgres.Place, limit int32) ([]postgres.Operation, error)
	CancelOperation(ctx context.Context, id fleet.OperationID) (postgres.Operation, error)
	Targets(ctx context.Context, ids ...string) (map[string][]deliveries.Target, error)
	HeldByTargets(ctx context.Context, ids ...string) (map[string]map[fleet.NodeName]deliveries.TargetHeld, error)
	DeliveryWorkflow(ctx context.Context, id fleet.DeliveryID) (workflow, run string, err error)
}

type bodyStore interface {
	PutBody(ctx context.Context, project fleet.ProjectName, body []byte) (fleet.Hash, error)
	// BodySize is not_found unless the project uploaded these bytes.
	BodySize(ctx context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error)
	OpenBody(ctx context.Context, h fleet.Hash) (*postgres.Body, error)
	StartUpload(ctx context.Context, project fleet.ProjectName) (postgres.Upload, error)
	GetUpload(ctx context.Context, id string) (postgres.Upload, error)
	AppendUpload(ctx context.Context, id string, offset int64, r io.Reader, last bool) (int64, error)
	FinishUpload(ctx context.Context, id string, want fleet.Hash) (fleet.Content, error)
}

type keyStore interface {
	// AskRotation is illegal_state for a node that is not enrolled.
	AskRotation(ctx context.Context, node fleet.NodeName) error
}

type nodeStore interface {
	ListNodes(ctx context.Context, f nodes.NodeFilter, after string, limit int32) ([]nodes.Node, error)
	// RevokeNode is illegal_state for a node that never enrolled; again, it changes nothing.
	RevokeNode(ctx context.Context, node fleet.NodeName) error
	keyStore
	LeaseOf(ctx context.Context, site fleet.SiteName) (nodes.Lease, error)
}

type reconcileStore interface {
	AskReconciles(ctx context.Context, in nodes.ReconcileRequest) ([]postgres.Operation, error)
	ListReconciles(ctx context.Context, node fleet.NodeName, limit int32) ([]reconcile.Reconcile, error)
	ListOrphans(ctx context.Context, of reconcile.OrphanFilter, after string, limit int32) ([]reconcile.Orphan, error)
	ApproveOrphans(ctx context.Context, in reconcile.OrphanApproval) (*postgres.Operation, error)
}

type tokenStore interface {
	AddAPIToken(ctx context.Context, t keyring.APIToken) (keyring.APIToken, error)
	APITokenByHash(ctx context.Context, hash []byte) (keyring.APIToken, error)
	APITokensByHash(ctx context.Context, hashes [][]byte) (map[string]keyring.APIToken, error)
	ListAPITokens(ctx context.Context, project fleet.ProjectName, after postgres.Place, limit int32) ([]keyring.APIToken, error)
	RevokeAPIToken(ctx context.Context, id string) error
	AddJoinToken(ctx context.Context, t keyring.JoinToken, life time.Duration) (keyring.JoinToken, error)
	ListJoinTokens(ctx context.Context, after postgres.Place, limit int32) ([]keyring.JoinToken, error)
	DeleteJoinToken(ctx context.Context, id string) error
}

type eventStore interface {
	ListEvents(ctx context.Context, before postgres.Cursor, limit int32) ([]postgres.Event, error)
	ReadFeed(ctx context.Context, after postgres.Cursor, limit int32) ([]postgres.Event, error)
	// FeedKept is gone unless all that follows a place in the feed is kept.
	FeedKept(ctx context.Context, after postgres.Cursor) error
	FeedEnd(ctx context.Context) (postgres.Cursor, error)
	watch.Source
	copyStore
	partOwner
}

// copyStore reads what other regions own.
type copyStore interface {
	// GetCopy is conflict for a name without a region that several have.
	GetCopy(ctx context.Context, k fleet.CopyKey) (fleet.Object, error)
	ListCopies(ctx context.Context, of fleet.CopyKey, project fleet.ProjectName, after string, limit int32) ([]fleet.Object, error)
	// SeeCopies has no copies that are gone.
	SeeCopies(ctx context.Context, keys []fleet.CopyKey) (map[fleet.CopyKey]decide.SyncedCopySeen, error)
	Streams(ctx context.Context) ([]copies.Stream, error)
	About(ctx context.Context) (fleet.RegionAbout, error)
	DropPeer(ctx context.Context, peer fleet.RegionName) error
	NotCompared(ctx context.Context) ([]string, error)
	ResumeWrites(ctx context.Context, name fleet.RegionName) error
	Syncs(ctx context.Context) ([]copies.Sync, error)
	LostWrites(ctx context.Context, after int64, limit int32) ([]copies.LostWrite, error)
	KeptGenerations(ctx context.Context) (map[fleet.RegionName][]copies.KeptGeneration, error)
	Quarantined(ctx context.Context, peer fleet.RegionName, after fleet.CopyKey, limit int32) ([]copies.SetAside, error)
}

type fleetStore interface {
	PutFleet(ctx context.Context, p fleets.FleetPut) (postgres.Started, error)
	TurnFleet(ctx context.Context, t fleets.FleetTurn) (postgres.Started, error)
	// GetFleetRun reads one run, 0 for the newest; not_found when there is none.
	GetFleetRun(ctx context.Context, name fleet.FleetName, run int64) (fleets.FleetRun, error)
	ListFleetRuns(ctx context.Context, name fleet.FleetName, before int64, limit int32) ([]fleets.FleetRun, error)
	ListFleetTargets(ctx context.Context, f fleets.FleetTargetFilter) ([]fleets.FleetTargetView, error)
	// NewestFleetRuns takes as many queries for a page as for one.
	NewestFleetRuns(ctx context.Context, names ...string) (map[string]fleets.FleetRun, error)
	// CountFleetStarts is how many instances of a run's wave must still run for long enough.
	CountFleetStarts(ctx context.Context, r fleets.FleetRun) (int, error)
	// StagedFleetSites gives where the wave of a run waits for a window, and when it looked.
	StagedFleetSites(ctx context.Context, r fleets.FleetRun) ([]fleet.SiteName, time.Time, error)
	// PutBodies is PutBody of many, with a few queries.
	PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error)
}

type drainStore interface {
	// Cordon and Uncordon change nothing of a node that is so already.
	Cordon(ctx context.Context, in nodes.CordonRequest) error
	Uncordon(ctx context.Context, in nodes.CordonRequest) error
	NodeDrains(ctx context.Context, nodes ...fleet.NodeName) (map[fleet.NodeName]nodes.NodeDrain, error)
}

type linkStore interface {
	// ListConnections lists the live ones.
	ListConnections(ctx context.Context, id fleet.ConnectionID, after string, limit int32) ([]nodes.Connection, error)
	// AskDrain is illegal_state unless the connection has an open stream.
	AskDrain(ctx context.Context, id fleet.ConnectionID, reason string, limit time.Duration) (nodes.Connection, error)
	ListRefusals(ctx context.Context, identity string, before int64, limit int32) ([]postgres.Refusal, error)
}
