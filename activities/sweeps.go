package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// purger removes expired rows, a bounded number of each kind, and says how many.
type purger interface {
	PurgeOnce(ctx context.Context, limit int32) (removed int64, err error)
}

// operationsSweeper closes or moves what lost its workflow (X25).
type operationsSweeper interface {
	SweepOperations(ctx context.Context, beat func()) (SweptOperations, error)
}

// nodeSweeper finds the nodes of a shard that are to be compared, in pages by name.
type nodeSweeper interface {
	NodesToReconcile(ctx context.Context, shard, shards int, after string, limit int32) ([]fleet.NodeName, error)
}

// failbackSweeper asks for the failovers of a shard that autoFailback calls for, and counts them.
type failbackSweeper interface {
	FailBack(ctx context.Context, shard, shards int) (int, error)
}

// nodeStarter starts the comparison of a node, or has the one that runs look again.
type nodeStarter interface {
	StartReconcile(ctx context.Context, node fleet.NodeName, reason string) error
}

// collector removes one page of a kind that nobody needs any more; more says that there may
// be another. It may run twice at once.
type collector interface {
	CollectPage(ctx context.Context, kind fleet.CollectedKind, keep fleet.Retention) (removed int64, more bool, err error)
}

// Sweeps are the scheduled duties of the region. Collected, unless it is nil, is told what
// each page removed.
type Sweeps struct {
	Purger     purger
	Operations operationsSweeper
	Nodes      nodeSweeper
	Failbacks  failbackSweeper
	Starter    nodeStarter
	Collector  collector
	Keep       fleet.Retention
	Now        func() time.Time
	Collected  func(kind fleet.CollectedKind, removed int64)
}

// SweptOperations counts what one sweep of the operations did.
type SweptOperations struct {
	Looked  int `json:"looked"`
	Moved   int `json:"moved"`
	Closed  int `json:"closed"`
	Overdue int `json:"overdue"`
	Told    int `json:"told"`

	Stranded int `json:"stranded,omitempty"` // runs that were at no operation
}

const (
	purgeRows  = 1000
	purgePages = 20
)

// Purge removes expired rows, bounded per run (N15).
func (s *Sweeps) Purge(ctx context.Context) (int64, error) {
	var total int64
	for range purgePages {
		n, err := s.Purger.PurgeOnce(ctx, purgeRows)
		total += n
		if err != nil || n == 0 {
			return total, fail(ctx, err)
		}
		activity.RecordHeartbeat(ctx)
	}
	return total, nil
}

// SweepOperations makes sure that every operation ends.
func (s *Sweeps) SweepOperations(ctx context.Context) (SweptOperations, error) {
	swept, err := s.Operations.SweepOperations(ctx, func() { activity.RecordHeartbeat(ctx) })
	return swept, fail(ctx, err)
}

// SweepNodes starts the comparison of the nodes of a shard that need one (X12), and hands
// leases back whose sites ask for it.
func (s *Sweeps) SweepNodes(ctx context.Context, shard, shards int) (int, error) {
	started, err := s.Failbacks.FailBack(ctx, shard, shards)
	if err != nil {
		return started, fail(ctx, err)
	}
	after := ""
	for {
		page, err := s.Nodes.NodesToReconcile(ctx, shard, shards, after, pageOfActions)
		if err != nil {
			return started, fail(ctx, err)
		}
		for _, node := range page {
			if err := s.Starter.StartReconcile(ctx, node, fleet.ReconcileSchedule); err != nil {
				return started, fail(ctx, err)
			}
			started++
			activity.RecordHeartbeat(ctx)
		}
		if len(page) < pageOfActions {
			return started, nil
		}
		after = string(page[len(page)-1])
	}
}
