package node

import (
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// ForceVote restores the lost vote of the node of a directory; the node must not run. It returns the node's
// name, and the highest epoch that the vote will not grant again.
func ForceVote(dir string, site fleet.SiteName, floor int64) (of fleet.NodeName, promised int64, err error) {
	key, err := identity.Load(filepath.Join(dir, "node.key"))
	if err != nil {
		return "", 0, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return key.Node(), 0, err
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	r, err := tenure.ForceVote(dir, site, key.Node(), floor)
	return key.Node(), r.Promised, err
}
