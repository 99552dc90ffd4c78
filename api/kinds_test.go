package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Every kind that can be declared has its part in the API, and no other has one.
func TestKindParts(t *testing.T) {
	t.Parallel()
	parts := kindParts()
	require.Len(t, parts, len(fleet.DeclaredKinds()))
	for _, k := range fleet.DeclaredKinds() {
		part, known := parts[k.Kind]
		require.True(t, known, k.Kind)
		require.NotNil(t, part.read, k.Kind)
	}
}
