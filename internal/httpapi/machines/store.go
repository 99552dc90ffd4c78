package machines

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	// Only the plain data types that stores give and take; no handler sees the adapter.
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// Store is what the calls of nodes need of the region's truth. Errors are *fleet.Error.
type Store interface {
	fetchStore
	callerStore
	reportStore
	compareStore
	batchStore
	replicaStore
}

type fetchStore interface {
	// Fetchable is not_found for an id that is dead, whatever the token.
	Fetchable(ctx context.Context, id string) (deliveries.FetchContent, error)
	OpenBody(ctx context.Context, h fleet.Hash) (*postgres.Body, error)
}

type callerStore interface {
	// Speaker is not_found for a node that may not speak.
	Speaker(ctx context.Context, node fleet.NodeName) (nodes.Node, []ed25519.PublicKey, error)
	Enrol(ctx context.Context, e nodes.Enrolment) (nodes.Welcome, error)
	// OfferKey may be repeated; it is denied unasked, and conflict after another offer.
	OfferKey(ctx context.Context, o nodes.KeyOffer) error
	// NodeKeys gives two keys while the node changes its key; UseKey voids the first.
	NodeKeys(ctx context.Context, node fleet.NodeName) ([]ed25519.PublicKey, error)
	UseKey(ctx context.Context, node fleet.NodeName, key ed25519.PublicKey) error
}

type reportStore interface {
	HeldBy(ctx context.Context, r nodes.NodeReport) (nodes.Welcome, error)
	NodeReady(ctx context.Context, node fleet.NodeName, startID string) error
	// NodeReturned makes what a node is owed due again, because it was heard.
	NodeReturned(ctx context.Context, node fleet.NodeName) ([]string, error)
	Progress(ctx context.Context, node fleet.NodeName, id string, fetched, total int64, ttl time.Duration) error
	// NodeCounted keeps what a node counted since it started.
	NodeCounted(ctx context.Context, node fleet.NodeName, counters map[string]int64) error
	AppendLog(ctx context.Context, node nodes.Node, name fleet.InstanceName, offset int64, data []byte) error
}

type compareStore interface {
	// ReconcileOf is unauthenticated for a token that opens no comparison under way.
	ReconcileOf(ctx context.Context, tokenHash []byte, life time.Duration) (reconcile.Pass, error)
	SetVersion(ctx context.Context, site fleet.SiteName) (fleet.SetVersion, error)
	ExpectedSet(ctx context.Context, site fleet.SiteName) (fleet.ExpectedSet, error)
	MakeTickets(ctx context.Context, in reconcile.TicketRequest) (reconcile.Tickets, error)
	SeeStops(ctx context.Context, site fleet.SiteName, names []fleet.InstanceName) ([]fleet.StopSeen, error)
	ConfirmAbsent(ctx context.Context, pass reconcile.Pass, extras []fleet.Extra) (fleet.Absence, error)
	ReportReconcile(ctx context.Context, pass reconcile.Pass, report fleet.ReconcileReport) error
}

type batchStore interface {
	// BatchTokens is not_found for a batch that is unknown or has ended.
	BatchTokens(ctx context.Context, id fleet.BatchID) ([]deliveries.FetchToken, error)
	BatchItems(ctx context.Context, id fleet.BatchID, node fleet.NodeName) ([]fleet.BatchItem, error)
	// BatchBodies calls emit for each body of the batch that can be had, one after the other.
	BatchBodies(ctx context.Context, id fleet.BatchID, node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error
	// TicketBodies is BatchBodies of the snapshot tickets that a node holds.
	TicketBodies(ctx context.Context, site fleet.SiteName, node fleet.NodeName, hashes []fleet.Hash, emit func(fleet.Hash, []byte) error) error
	RecordBatch(ctx context.Context, id fleet.BatchID, node fleet.NodeName, results []fleet.BatchResult) error
}

type replicaStore interface {
	NodeReplicas(ctx context.Context, node fleet.NodeName) (fleet.NodeReplicas, error)
	// DefinitionOf is not_found for what is in nothing that the node is to run.
	DefinitionOf(ctx context.Context, node fleet.NodeName, h fleet.Hash) ([]byte, error)
	// AppendReplicaLog is not_found for a replica that never was the node's.
	AppendReplicaLog(ctx context.Context, node fleet.NodeName, id fleet.ReplicaID, offset int64, data []byte) error
	ReplicaSampled(ctx context.Context, node fleet.NodeName, all []deployments.ReplicaSample) error
}
