package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var batches *activities.Batches

// batchTalk is the conversation with the nodes of a site about its batches: tell the active,
// tell the standbys, end (N98). docs/batches.md draws it.
type batchTalk struct {
	limits DeliveryLimits
	absent map[fleet.NodeName]bool // that were not there for the last batch, or had not enrolled
}

func newBatchTalk(limits DeliveryLimits) *batchTalk {
	return &batchTalk{limits: limits.orDefault(), absent: map[fleet.NodeName]bool{}}
}

// deliver tells the nodes of one batch, the active first, and ends it.
func (b *batchTalk) deliver(ctx workflow.Context, batch activities.BatchNext) (fleet.BatchEnded, error) {
	var end fleet.BatchEnded
	command := batch.Command
	for i, node := range batch.Nodes {
		if i > 0 || batch.Wait > 0 {
			var err error
			if command, err = b.prepare(ctx, batch.ID, node, batch.Wait); err != nil {
				return end, err
			}
			batch.Wait = 0
		}
		if err := b.tell(ctx, batch.ID, node, command); err != nil {
			return end, err
		}
	}
	return end, insist(ctx, batches.EndBatch, batch.ID, &end)
}

// tell has a node carry the batch out, again with a new token while something of it failed
// only by communication.
func (b *batchTalk) tell(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName, command *fleet.BatchCommand) error {
	for try := 0; command != nil && try < b.limits.Tries; try++ {
		failed, err := b.ask(ctx, node, *command)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && !failed {
			return nil
		}
		if err != nil {
			if err := b.miss(ctx, id, node, err); err != nil {
				return err
			}
		}
		if command, err = b.prepare(ctx, id, node, 0); err != nil || command == nil {
			return err
		}
		if err := workflow.Sleep(ctx, storeGap<<try); err != nil {
			return err
		}
	}
	return nil
}

// absentTake is how long a node that was not there for a batch may take to take the next.
const absentTake = 5 * time.Second

// ask gives the batch to a node, and says whether some of its items failed there.
func (b *batchTalk) ask(ctx workflow.Context, node fleet.NodeName, command fleet.BatchCommand) (failed bool, err error) {
	command.IdleTimeout = b.limits.Request
	ctx = workflow.WithActivityOptions(ctx, notifyOptions(node, b.take(node), b.limits.Total))
	var out fleet.BatchOutcome
	err = workflow.ExecuteActivity(ctx, nodes.RefreshBatch, command).Get(ctx, &out)
	delete(b.absent, node)
	return out.Failed > 0, err
}

// take is how long a node may take to take a batch, and how long that waits for the node to enrol.
func (b *batchTalk) take(node fleet.NodeName) time.Duration {
	if b.absent[node] {
		return min(b.limits.Request, absentTake)
	}
	return b.limits.Request
}

// miss writes down why a node's word is missing.
func (b *batchTalk) miss(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName, why error) error {
	state, kind, message := classify(why, node)
	if kind == fleet.Unavailable {
		b.absent[node] = true
	}
	in := fleet.BatchMiss{ID: id, Node: node, State: state, Reason: kind, Message: message}
	return insist(ctx, batches.MissBatch, in, nil)
}

// prepare gives the next notify of a node, nil when there is nothing left to tell it. It looks again after a wait while the node has not
// enrolled.
func (b *batchTalk) prepare(ctx workflow.Context, id fleet.BatchID, node fleet.NodeName, wait time.Duration) (*fleet.BatchCommand, error) {
	in := fleet.BatchPrepare{ID: id, Node: node, Tries: b.limits.Tries, TTL: b.limits.PendingTTL, Take: b.take(node)}
	for {
		if wait > 0 {
			workflow.SetCurrentDetails(ctx, fmt.Sprintf("**wait** for node %s to enrol, batch %s: %s", node, id, fleet.EnrolHint))
			if err := workflow.Sleep(ctx, wait); err != nil {
				return nil, err
			}
		}
		var out activities.PreparedBatch
		if err := insist(ctx, batches.PrepareBatch, in, &out); err != nil {
			return nil, err
		}
		if out.Wait == 0 {
			if wait > 0 {
				b.absent[node] = out.Command == nil
				workflow.SetCurrentDetails(ctx, fmt.Sprintf("**deliver** batch %s", id))
			}
			return out.Command, nil
		}
		wait = out.Wait
	}
}
