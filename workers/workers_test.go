package workers_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// X23: a row of a table is enough for the servers to run it.
func TestWorkflowsAreThoseOfTheTables(t *testing.T) {
	t.Parallel()
	all := workers.Workflows()
	for name, f := range all {
		require.Equal(t, reflect.Func, reflect.TypeOf(f).Kind(), name)
	}
	require.Len(t, workflows.Entities(), len(fleet.EntityKinds())+1, "a kind has no row, or shares its type; FleetSite is a child")
	require.Len(t, all, len(workflows.Entities())+len(workflows.Doors())+len(workflows.Duties()), "two tables name one type")
}

// What the workflows call is registered: each struct of activities that they name is a field. A node's own is served by its
// worker.
func TestActivitiesOfWorkflowsAreServed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../workflows/*.go")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?m)^(?:var|\t)\s*\w+\s+\*activities\.(\w+)$`)
	seen := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range named.FindAllSubmatch(text, -1) {
			seen++
			if name := string(m[1]); name != "Node" {
				_, found := reflect.TypeFor[workers.Server]().FieldByName(name)
				require.True(t, found, "%s calls activities.%s, which no server registers", file, name)
			}
		}
	}
	require.GreaterOrEqual(t, seen, reflect.TypeFor[workers.Server]().NumField())
}
