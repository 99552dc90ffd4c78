package deployments_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// X10, X19: at a site of another project a command is declared only where each node that may run it keeps projects
// apart.
func TestCommandsOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.DeclareProject("red")
	says := func(node fleet.NodeName, what string) {
		b.Exec(`UPDATE nodes SET facts = jsonb_build_object('isolation', $2::text) WHERE name = $1`, node, what)
	}
	put := func(edits ...func(*deliveries.InstanceChange)) error {
		_, err := b.PutInstance(b.Ctx(), b.ChangeOf(`{"a":1}`, append(edits, stores.Unreleased)...))
		return err
	}
	refusedNow := func() {
		t.Helper()
		err := put(stores.InRed, stores.Named("r1"), stores.Running("/bin/true"))
		stores.Refused(t, fleet.IsolationMissing, err)
	}
	refusedNow() // nobody told
	says(nodeA, "uid")
	says(nodeB, "none")
	refusedNow()
	require.NoError(t, put(stores.InRed, stores.Named("r2")), "a config runs nothing")
	require.NoError(t, put(stores.Running("/bin/true")), "the site's own project")
	says(nodeB, "uid")
	require.NoError(t, put(stores.InRed, stores.Named("r1"), stores.Running("/bin/true")))

	list, err := b.ListNodes(b.Ctx(), nodes.NodeFilter{Name: nodeB}, "", 1)
	require.NoError(t, err)
	require.Equal(t, fleet.SeparationUID, list[0].Separation)
	of, err := b.MembershipsOf(b.Ctx(), []fleet.NodeName{nodeA})
	require.NoError(t, err)
	require.Equal(t, project, of[nodeA].Project)
}

// X10: a node is told whose its replicas are.
func TestProjectsOfReplicas(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment()
	b.visits()
	all := b.replicas()
	require.NotEmpty(t, all)
	set, err := b.NodeReplicas(b.Ctx(), all[0].Node)
	require.NoError(t, err)
	require.Equal(t, project, set.Replicas[0].Project)
}
