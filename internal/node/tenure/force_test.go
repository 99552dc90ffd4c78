package tenure_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// X21: an operator makes good a vote that nobody else is left to hear.
func TestForceVote(t *testing.T) {
	t.Parallel()
	k := newKept(t)
	path := filepath.Join(k.dir, votefile.Name)
	_, err := tenure.ForceVote(k.dir, site, nodeA, 9)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "it is not lost")
	require.NoError(t, os.Remove(path))
	_, err = tenure.ForceVote(k.dir, site, nodeA, 9)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "it may be in another directory")
	require.NoFileExists(t, path)

	k.start().tell(alone, other) // which is not there, and nor is the region
	k.eventually("it is lost", func() bool {
		s, err := votefile.Load(path, votefile.State{Site: site, Node: nodeA}, votefile.Enrolled)
		return err == nil && s.Record.Lost
	})
	k.end()
	for _, wrong := range []struct {
		site fleet.SiteName
		node fleet.NodeName
	}{{"plant-2", nodeA}, {site, nodeB}} {
		_, err = tenure.ForceVote(k.dir, wrong.site, wrong.node, 9)
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	}
	r, err := tenure.ForceVote(k.dir, site, nodeA, 9)
	require.NoError(t, err)
	require.Equal(t, lease.Record{Promised: 9}, r)
	s, err := votefile.Load(path, votefile.State{Site: site, Node: nodeA}, votefile.Enrolled)
	require.NoError(t, err)
	require.Equal(t, r, s.Record)
	_, err = tenure.ForceVote(k.dir, site, nodeA, 9)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err), "once is enough")
}
