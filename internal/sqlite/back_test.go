package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X4, X21: what is held back outlives the process, its version never falls, and it is forgotten
// when that has come, or nothing older is held.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	s, path := setup(t)
	data, c := body(10, 1)
	commit(t, s, attempt(2, c), data)
	newer := fleet.Version{Era: 1, Revision: 4}
	require.NoError(t, s.HoldBack(t.Context(), map[fleet.InstanceName]fleet.Version{name: newer, "stranger": newer}))
	require.NoError(t, s.HoldBack(t.Context(), map[fleet.InstanceName]fleet.Version{name: {Era: 1, Revision: 3}}))
	s = reopen(t, s, path)
	back, err := s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[fleet.InstanceName]fleet.Version{name: newer}, back)
	commit(t, s, attempt(3, c), data)
	back, err = s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Equal(t, newer, back[name], "it is older still")
	require.NoError(t, s.LetGo(t.Context(), []fleet.InstanceName{name, "stranger", "another"}))
	require.NoError(t, s.LetGo(t.Context(), nil))
	back, err = s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Empty(t, back, "it may start after all")
	require.NoError(t, s.HoldBack(t.Context(), map[fleet.InstanceName]fleet.Version{name: newer}))
	commit(t, s, deletion(4), nil)
	back, err = s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Empty(t, back)
	require.NoError(t, s.ForgetHeldBack(t.Context()))
	rows, err := s.q.ListHeldBack(t.Context())
	require.NoError(t, err)
	require.Empty(t, rows)
}

// X4: of many names each is held back, and each let go.
func TestHeldBackMany(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	data, c := body(10, 1)
	back := map[fleet.InstanceName]fleet.Version{}
	for _, name := range []string{"a", "b", "c"} {
		commit(t, s, of(name, attempt(1, c)), data)
		back[fleet.InstanceName(name)] = fleet.Version{Era: 1, Revision: 2}
	}
	require.NoError(t, s.HoldBack(t.Context(), back))
	got, err := s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Equal(t, back, got)
	require.NoError(t, s.LetGo(t.Context(), []fleet.InstanceName{"a", "b"}))
	got, err = s.HeldBack(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[fleet.InstanceName]fleet.Version{"c": {Era: 1, Revision: 2}}, got)
}
