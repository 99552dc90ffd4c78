package nodes_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	linkServer = stores.LinkServer
	plant      = stores.Plant
	press      = stores.Press
	nodeA      = stores.NodeA
	nodeB      = stores.NodeB
	run1       = stores.Run1
	minute     = time.Minute
)

// bench is a region with one site, and what the tests of this area do to it.
type bench struct{ *stores.Bench }

// setup opens a fresh region whose site has two enrolled nodes.
func setup(t *testing.T) *bench {
	t.Helper()
	return &bench{stores.Setup(t)}
}

// bare opens a fresh region in which nothing is declared.
func bare(t *testing.T) *bench {
	t.Helper()
	return &bench{stores.Bare(t)}
}
