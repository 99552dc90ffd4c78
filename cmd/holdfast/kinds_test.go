package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Every kind that can be declared can be applied, listed and described.
func TestKindsAreKnown(t *testing.T) {
	t.Parallel()
	require.Len(t, manifestKinds(), len(fleet.DeclaredKinds()))
	for _, k := range fleet.DeclaredKinds() {
		require.NotNil(t, manifestKinds()[k.Kind].check, k.Kind)
		require.NotNil(t, manifestKinds()[k.Kind].put, k.Kind)
		shown, err := kindOf(k.Plural)
		require.NoError(t, err)
		require.Equal(t, k.Kind, shown.object)
	}
}
