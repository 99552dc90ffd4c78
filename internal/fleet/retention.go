package fleet

import "time"

// Retention says how long the region keeps what nobody needs any more. Whatever is
// referred to, open, unsettled, owed or untold is kept however old it is.
type Retention struct {
	// Bodies is how long a body stays after the last write that referred to it.
	Bodies time.Duration
	// Uploads is how long an upload may go without progress.
	Uploads time.Duration
	// Newest is how many revisions and deliveries of each instance, and runs of each fleet
	// change, always stay. Older runs stay as long as operations.
	Newest int
	// Deliveries and Operations are counted from their end; batches are kept as operations are.
	Deliveries, Operations time.Duration
	// Events is how far back a watch can be resumed.
	Events time.Duration
}

const day = 24 * time.Hour

// DefaultRetention is what a region keeps unless it is told otherwise.
func DefaultRetention() Retention {
	return Retention{Bodies: day, Uploads: day, Newest: 10, Deliveries: 30 * day, Operations: 30 * day, Events: 7 * day}
}

// idempotencyLife is how long a repeated request is answered from its first operation.
const idempotencyLife = day

// Validate refuses what would take away something that is still needed.
func (r Retention) Validate() error {
	for _, keep := range []struct {
		field string
		time.Duration
	}{{"keep-bodies", r.Bodies}, {"keep-uploads", r.Uploads}, {"keep-deliveries", r.Deliveries}, {"keep-events", r.Events}} {
		if keep.Duration <= 0 {
			return Errorf(Invalid, "%s is no time to keep anything", keep.Duration).At(keep.field).
				WithHint("give a duration above 0, for example 24h")
		}
	}
	if r.Newest < 1 {
		return Errorf(Invalid, "%d newest are too few", r.Newest).At("keep-newest").WithHint("keep at least 1; a rollback needs some")
	}
	if r.Operations < idempotencyLife {
		return Errorf(Invalid, "operations kept for %s", r.Operations).At("keep-operations").
			WithHint("at least " + idempotencyLife.String() + ": so long a repeated request is answered from its operation")
	}
	return nil
}

// CollectedKind is a kind of rows that the collection removes.
type CollectedKind string

// The kinds, in the order in which one frees another.
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
	// CollectChunks are those of half uploads and large bodies, which go a few at a time.
	CollectChunks CollectedKind = "chunks"
	// CollectConnections are ended ones of the link, kept as events are; CollectRefusals are kept
	// as operations are.
	CollectConnections CollectedKind = "connections"
	CollectRefusals    CollectedKind = "refusals"
	// CollectReplicas are ended ones beside the newest of each deployment, kept as bodies are.
	CollectReplicas CollectedKind = "replicas"
	// CollectDeployments are old revisions and history lines, records of those that ended, kept as
	// operations are, and what nodes that are gone were told to run.
	CollectDeployments CollectedKind = "deployments"
)

// CollectedKinds lists them in that order.
func CollectedKinds() []CollectedKind {
	return []CollectedKind{
		CollectDeliveries, CollectRevisions, CollectBatches, CollectOperations, CollectFleetRuns, CollectReplicas, CollectDeployments,
		CollectEvents, CollectUploads, CollectBodies, CollectChunks, CollectConnections, CollectRefusals,
	}
}
