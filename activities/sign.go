package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Signer gives the region's word for a command that was made from the database just now: tasks
// that others make have none.
type Signer interface {
	Sign(ctx context.Context, node fleet.NodeName, cmd fleet.Command) (fleet.Signature, error)
}
