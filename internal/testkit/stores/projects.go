package stores

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
)

// DeclareProject makes a project that tests write in.
func (b *Bench) DeclareProject(name fleet.ProjectName) {
	b.T.Helper()
	w := WriteOf(fleet.ObjectKey{Kind: fleet.KindProject, Name: string(name)})
	w.Project = name
	_, err := b.Declare(b.Ctx(), w, fleet.ProjectSpec{})
	require.NoError(b.T, err)
}

// InRed changes an instance in the project red.
func InRed(c *deliveries.InstanceChange) { c.Project = "red" }
