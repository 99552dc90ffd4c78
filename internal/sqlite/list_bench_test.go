package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkInstances reads a store of 10,000 instances, each with a revision before, whole and
// as a comparison does.
func BenchmarkInstances(b *testing.B) {
	s, _ := setup(b)
	const all, many = 10_000, 500
	for revision := range int64(2) {
		for from := 0; from < all; from += many {
			_, err := s.CommitBatch(b.Context(), benchSteps(b, from, revision+1, many))
			require.NoError(b, err)
		}
	}
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			got, err := s.Instances(b.Context())
			require.NoError(b, err)
			require.Len(b, got, all)
		}
	})
	b.Run("held", func(b *testing.B) {
		for b.Loop() {
			got, err := s.HeldAll(b.Context())
			require.NoError(b, err)
			require.Len(b, got, all)
		}
	})
}
