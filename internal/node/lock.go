package node

import (
	"errors"
	"fmt"
	"os"

	"github.com/holdfast-io/holdfast/internal/dirlock"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// lockDir has a directory be this node's: two nodes on one would each undo what the other applies.
func lockDir(dir string) (*os.File, error) {
	f, err := dirlock.Take(dir)
	var held *dirlock.HeldError
	if errors.As(err, &held) {
		return nil, fleet.Errorf(fleet.Conflict, "a node is already running on %s (process %s)", dir, held.Process).
			WithHint("stop it, or give this node a directory of its own")
	}
	if err != nil {
		return nil, fmt.Errorf("lock the node's directory: %w", err)
	}
	return f, nil
}
