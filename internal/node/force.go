package node

import (
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// ForceVote makes good the lost vote of the node that owns a directory and does not run now. It
// gives the node's name, and the highest epoch that it grants nobody any more.
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
