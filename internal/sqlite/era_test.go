package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func inEra(era int64, a Attempt) Attempt {
	a.Revision.Era = era
	return a
}

// X1, N49, N85: a node orders by (era, revision): the era decides, and the number only within an era.
func TestEraComesFirst(t *testing.T) {
	t.Parallel()
	data, content := body(100, 1)
	other, otherContent := body(200, 2)
	t.Run("a low number of a new era is accepted, staged and committed", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(9, content), data)
		commit(t, s, inEra(2, attempt(1, otherContent)), other)
		in := held(t, s)
		require.Equal(t, fleet.Version{Era: 2, Revision: 1}, in.HighWater.Version)
		require.Equal(t, fleet.Version{Era: 2, Revision: 1}, in.Current.Version)
		require.Equal(t, fleet.Version{Era: 1, Revision: 9}, in.Previous.Version)
	})
	t.Run("a high number of an old era is refused everywhere", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, inEra(2, attempt(3, content)), data)
		old := filled(t, s, attempt(9, otherContent), other)
		renumbered := attempt(9, content)
		for name, err := range map[string]error{
			"Accept": s.Accept(t.Context(), old), "SetAside": s.SetAside(t.Context(), old), "Stage": s.Stage(t.Context(), old),
			"Commit": s.Commit(t.Context(), old), "Renumber": s.Renumber(t.Context(), renumbered),
		} {
			require.Equal(t, fleet.Stale, fleet.KindOf(err), name)
		}
		refused, err := s.CommitBatch(t.Context(), []Step{
			{Attempt: old},
			{Attempt: of("other", inEra(2, old))},
		})
		require.NoError(t, err)
		require.Equal(t, fleet.Stale, fleet.KindOf(refused[0]))
		require.NoError(t, refused[1])
		in := held(t, s)
		require.Equal(t, fleet.Version{Era: 2, Revision: 3}, in.HighWater.Version)
		require.Equal(t, in.HighWater.Version, in.Current.Version)
	})
	t.Run("the accepted number of another era takes no slot", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		require.NoError(t, s.Accept(t.Context(), inEra(2, attempt(1, content))))
		for _, era := range []int64{1, 3} {
			require.Equal(t, fleet.Stale, fleet.KindOf(s.Stage(t.Context(), filled(t, s, inEra(era, attempt(1, content)), data))))
		}
		require.NoError(t, s.Stage(t.Context(), filled(t, s, inEra(2, attempt(1, content)), data)))
		for _, era := range []int64{1, 3} {
			require.Equal(t, fleet.Stale, fleet.KindOf(s.Promote(t.Context(), inEra(era, attempt(1, content)))))
		}
		require.NoError(t, s.Promote(t.Context(), inEra(2, attempt(1, content))))
	})
	t.Run("the same number of a new era may have other content", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(4, content), data)
		commit(t, s, inEra(2, attempt(4, otherContent)), other)
		require.Equal(t, otherContent.Hash, held(t, s).Current.Content.Hash)
	})
	t.Run("a new era renumbers downwards", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(9, content), data)
		require.NoError(t, s.Renumber(t.Context(), inEra(2, attempt(2, content))))
		in := held(t, s)
		require.Equal(t, fleet.Version{Era: 2, Revision: 2}, in.Current.Version)
		require.Equal(t, in.Current.Version, in.HighWater.Version)
	})
	t.Run("what is set aside is replaced by the new era's alone", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		require.NoError(t, s.SetAside(t.Context(), attempt(9, content)))
		require.NoError(t, s.SetAside(t.Context(), inEra(2, attempt(1, content))))
		require.Equal(t, fleet.Stale, fleet.KindOf(s.SetAside(t.Context(), attempt(10, content))))
	})
}
