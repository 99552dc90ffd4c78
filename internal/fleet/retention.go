package fleet

import "time"

// Retention is how long the region keeps what is no longer needed. Whatever is referred to, open, unsettled, owed
// or not yet notified is kept, however old it is.
type Retention struct {
	// Bodies is how long a body stays after the last write that referred to it.
	Bodies time.Duration
	// Uploads is how long an upload may go without progress.
	Uploads time.Duration
	// Newest is how many revisions and deliveries of each instance, and runs of each fleet change, always stay.
	// Older runs stay as long as operations.
	Newest int
	// Deliveries and Operations count from their end; batches are kept as long as operations.
	Deliveries, Operations time.Duration
	// Events is how far back a watch can be resumed.
	Events time.Duration
}

const day = 24 * time.Hour

// DefaultRetention is the default retention.
func DefaultRetention() Retention {
	return Retention{Bodies: day, Uploads: day, Newest: 10, Deliveries: 30 * day, Operations: 30 * day, Events: 7 * day}
}

// idempotencyLife is how long a repeated request is answered from its first operation.
const idempotencyLife = day

// Validate rejects settings that would remove what is still needed.
func (r Retention) Validate() error {
	for _, keep := range []struct {
		field string
		time.Duration
	}{{"keep-bodies", r.Bodies}, {"keep-uploads", r.Uploads}, {"keep-deliveries", r.Deliveries}, {"keep-events", r.Events}} {
		if keep.Duration <= 0 {
			return Errorf(Invalid, "invalid duration %s", keep.Duration).At(keep.field).
				WithHint("use a duration above 0, for example 24h")
		}
	}
	if r.Newest < 1 {
		return Errorf(Invalid, "invalid number %d of newest to keep", r.Newest).At("keep-newest").WithHint("keep at least 1; a rollback needs some")
	}
	if r.Operations < idempotencyLife {
		return Errorf(Invalid, "operations cannot be kept for only %s", r.Operations).At("keep-operations").
			WithHint("use at least " + idempotencyLife.String() + ", because repeated requests are answered from their operation that long")
	}
	return nil
}

// CollectedKind is a kind of row that the collection removes.
type CollectedKind string

// The kinds, in an order in which each one frees the next.
const (
	CollectDeliveries CollectedKind = "deliveries"
	CollectRevisions  CollectedKind = "revisions"
	CollectBatches    CollectedKind = "batches"
	CollectOperations CollectedKind = "operations"
	// CollectFleetRuns are runs of fleet changes, each with its targets first.
	CollectFleetRuns CollectedKind = "fleet_runs"
	CollectEvents    CollectedKind = "events"
	CollectUploads   CollectedKind = "uploads"
	CollectBodies    CollectedKind = "bodies"
	// CollectChunks are chunks of incomplete uploads and large bodies, removed a few at a time.
	CollectChunks CollectedKind = "chunks"
	// CollectConnections are ended connections of the link, kept as long as events; CollectRefusals are kept as
	// long as operations.
	CollectConnections CollectedKind = "connections"
	CollectRefusals    CollectedKind = "refusals"
	// CollectMarkers are what is left of copies that went: kept as long as events, and while a comparison runs that began
	// before. CollectLost are lost writes, kept as long as operations.
	CollectMarkers CollectedKind = "markers"
	CollectLost    CollectedKind = "lost"
	// CollectReplicas are ended replicas besides the newest of each deployment, kept as long as bodies.
	CollectReplicas CollectedKind = "replicas"
	// CollectDeployments are old revisions and history lines, records of ended deployments, kept as long as
	// operations, and the sets of nodes that are gone.
	CollectDeployments CollectedKind = "deployments"
)

// CollectedKinds lists all kinds in that order.
func CollectedKinds() []CollectedKind {
	return []CollectedKind{
		CollectDeliveries, CollectRevisions, CollectBatches, CollectOperations, CollectFleetRuns, CollectReplicas, CollectDeployments,
		CollectEvents, CollectUploads, CollectBodies, CollectChunks, CollectConnections, CollectRefusals, CollectMarkers, CollectLost,
	}
}
