package deployments_test

import (
	"flag"
	"log"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// A run of a property here takes a database, and a part of a second; -rapid.checks=500 plays more.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "20"); err != nil {
		log.Fatal(err)
	}
	goleak.VerifyTestMain(m)
}

const (
	linkServer = stores.LinkServer
	project    = stores.Project
	nodeA      = stores.NodeA
	nodeB      = stores.NodeB
	run1       = stores.Run1
)

// bench is a region with one site, and what the tests of this area do to it.
type bench struct{ *stores.Bench }

// setup opens a fresh region whose site has two enrolled nodes.
func setup(t *testing.T) *bench {
	t.Helper()
	return &bench{stores.Setup(t)}
}
