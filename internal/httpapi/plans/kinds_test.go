package plans

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Every kind that can be declared has its part in a plan, and no other has one.
func TestPlanKinds(t *testing.T) {
	t.Parallel()
	kinds := Kinds()
	require.Len(t, kinds, len(fleet.DeclaredKinds()))
	for _, k := range fleet.DeclaredKinds() {
		require.Contains(t, kinds, k.Kind)
		require.NotNil(t, kinds[k.Kind].read, k.Kind)
	}
}
