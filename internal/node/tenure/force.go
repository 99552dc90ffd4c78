package tenure

import (
	"path/filepath"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// ForceVote restores a node's lost vote on the word of an operator, who guarantees that no epoch above floor
// was given. The node must not be running. A node that finds its vote lost records that when it starts; only a
// vote with that record is forced.
func ForceVote(dir string, site fleet.SiteName, node fleet.NodeName, floor int64) (lease.Record, error) {
	path := filepath.Join(dir, votefile.Name)
	state, err := votefile.Load(path, votefile.State{Site: site, Node: node}, votefile.Enrolled)
	switch {
	case fleet.KindOf(err) == fleet.Gone:
		return lease.Record{}, fleet.Errorf(fleet.IllegalState, "%w", err).WithHint("start the node once; it records that its vote is lost")
	case err != nil:
		return lease.Record{}, err
	case !state.Record.Lost:
		return lease.Record{}, fleet.Errorf(fleet.IllegalState, "the vote of node %s is not lost: it knows epochs up to %d", node, state.Record.Promised).
			WithHint("nothing needs to be forced")
	}
	state.Record = state.Record.Force(floor)
	return state.Record, votefile.Save(path, state)
}
