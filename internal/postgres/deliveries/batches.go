package deliveries

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// BatchRelease writes the changes of many instances of one site, and claims a delivery for
// each, as a PUT and a claim would (N98). Run is the workflow run that serves the batch;
// with a Fleet, the targets of FleetRun say what became of them.
type BatchRelease struct {
	ID            fleet.BatchID
	Site          fleet.SiteName
	Fleet         fleet.FleetName
	FleetRun      int64
	Stage         bool
	Workflow, Run string
	Actor, Reason string
	Deadline      time.Duration // of every delivery
	TTL           time.Duration // of the pending rows (N20)
	// TokenHash is of the token for the active, which is then notified at once: the notify is
	// prepared in the same transaction, as PrepareBatch would prepare it.
	TokenHash []byte
	Items     []BatchChange
}

// BatchChange is the change of one instance. Content is its flattened body, already stored.
type BatchChange struct {
	Instance fleet.InstanceName
	// Generation is the object's that the change was made from. When it is another by now, the
	// instance is left out, and its target waits for the next batch.
	Generation int64
	// Revision is set when it was released before: then it is only claimed again.
	Revision int64
	Spec     fleet.InstanceSpec
	Content  fleet.Content
	RunJSON  json.RawMessage
	RunHash  fleet.Hash
	// Refused is why there is no change to write, nil when there is one.
	Refused error
}

// BatchReleased is what a release came to. A repeated one is answered as the first.
type BatchReleased struct {
	ID      fleet.BatchID
	Claimed int
	// Nodes are the nodes to notify, the active first; none when nothing was claimed.
	Nodes []fleet.NodeName
	// Notify is of the active; nil if none was requested, or the node cannot be notified, or the
	// release is repeated.
	Notify *fleet.BatchNotify
}
