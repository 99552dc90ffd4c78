package postgres_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// N107
func TestClaimPlan(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t)
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if s.ClaimPlan(t.Context(), "digest", []byte{byte(i)}) == nil {
				won.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, won.Load())
	require.NoError(t, s.ClaimPlan(t.Context(), "another", []byte("a")))
	require.NoError(t, s.ClaimPlan(t.Context(), "another", []byte("a")), "the same request again")
	require.Equal(t, fleet.Precondition, fleet.KindOf(s.ClaimPlan(t.Context(), "another", []byte("b"))))
}

// N107: what was planned as new must be new.
func TestWriteOfWhatMustNotExist(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t)
	w := postgres.Write{Request: postgres.Request{Project: "line", Actor: "test"}, Key: fleet.ObjectKey{Kind: fleet.KindProject, Name: "line"}, IfMatch: postgres.NoVersion}
	_, err := s.Declare(t.Context(), w, fleet.ProjectSpec{})
	require.NoError(t, err)
	_, err = s.Declare(t.Context(), w, fleet.ProjectSpec{})
	require.Equal(t, fleet.Precondition, fleet.KindOf(err))
}

func TestStanding(t *testing.T) {
	t.Parallel()
	s := testkit.Store(t)
	var keys []fleet.ObjectKey
	for _, name := range []string{"a", "b"} {
		key := fleet.ObjectKey{Kind: fleet.KindProject, Name: name}
		keys = append(keys, key)
		_, err := s.Declare(t.Context(), postgres.Write{Request: postgres.Request{Project: fleet.ProjectName(name), Actor: "test"}, Key: key, Labels: map[string]string{"holdfast.dev/apply-set": name}}, fleet.ProjectSpec{})
		require.NoError(t, err)
	}
	found, err := s.Standing(t.Context(), append(keys, fleet.ObjectKey{Kind: fleet.KindSite, Name: "a"}))
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.EqualValues(t, 1, found[keys[1]].Generation)
	set, err := s.ApplySet(t.Context(), "b")
	require.NoError(t, err)
	require.Len(t, set, 1)
	require.Equal(t, keys[1], set[0].ObjectKey)
	none, err := s.Standing(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
