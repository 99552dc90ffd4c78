package node

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/guardian"
)

// tenancy is the runtime as the keeper of the deadline of all that it runs.
type tenancy interface {
	// Lease says until when everything may run. Nothing starts before the first call, and what
	// was said last outlives the agent.
	Lease(ctx context.Context, l guardian.Lease) error
	// Enforce kills, until the context ends, what runs on when that time is over.
	Enforce(ctx context.Context) error
}

// mayRunUntil is the one place that says until when this node may run its instances. A node
// holds no lease yet, so there is no deadline.
func (a *Agent) mayRunUntil() guardian.Lease { return guardian.NoDeadline() }

// grant comes before anything is started.
func (a *Agent) grant(ctx context.Context) error {
	if a.opt.Tenancy == nil {
		return nil
	}
	return a.opt.Tenancy.Lease(ctx, a.mayRunUntil())
}

func (a *Agent) enforce(ctx context.Context) error {
	if a.opt.Tenancy == nil {
		return nil
	}
	return a.opt.Tenancy.Enforce(ctx)
}
