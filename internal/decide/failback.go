package decide

import (
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// unseenLimit is how long ago a node may last have been seen and still count as connected.
const unseenLimit = 30 * time.Second

// Failback decides whether a site's lease returns to its declared active (autoFailback), or why not. The node must
// be connected, stable for a while, and hold all that the holder holds.
func Failback(f fleet.Failback, stable time.Duration) (reason string, back bool) {
	switch {
	case f.Node == f.Holder:
		return "holds", false
	case f.UnderWay:
		return "under_way", false
	case f.Unsettled:
		return "unsettled", false
	case !f.Ready:
		return "not_ready", false
	case f.Unseen > unseenLimit:
		return "not_there", false
	case f.Up < stable || f.Held < stable: // keeps a site from moving back and forth
		return "not_stable", false
	case !f.Level:
		return "behind", false
	}
	return "failback", true
}
