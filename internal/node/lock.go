package node

import (
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/internal/dirlock"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// lockDir locks a directory for this node: two nodes on one would undo each other's changes.
func lockDir(dir string) (*os.File, error) {
	f, err := dirlock.Take(dir)
	var held *dirlock.HeldError
	if errors.As(err, &held) {
		return nil, fleet.Errorf(fleet.Conflict, "a node is already running on %s (process %s)", dir, held.Process).
			WithHint("stop that node, or use another directory for this one")
	}
	if err != nil {
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	}
	return f, nil
}
