package testkit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

func TestDatabaseURL(t *testing.T) {
	t.Parallel()

	t.Run("gives a database that any region may found", func(t *testing.T) {
		t.Parallel()
		s, err := store.Open(t.Context(), testkit.DatabaseURL(t), "elsewhere")
		require.NoError(t, err)
		defer s.Close()
		r, err := s.GetRegion(t.Context())
		require.NoError(t, err)
		require.Equal(t, "elsewhere", r.Name)
		require.EqualValues(t, 1, r.Era)
	})

	t.Run("gives each test its own", func(t *testing.T) {
		t.Parallel()
		require.NotEqual(t, testkit.DatabaseURL(t), testkit.DatabaseURL(t))
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	require.NoError(t, testkit.Store(t).Ping(t.Context()))
}
