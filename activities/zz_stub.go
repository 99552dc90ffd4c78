package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func (n *Node) RefreshBatch(context.Context, fleet.BatchCommand) (fleet.BatchOutcome, error) {
	return fleet.BatchOutcome{}, nil
}
