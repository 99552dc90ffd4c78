package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func of(name string, a Attempt) Attempt {
	a.Instance = fleet.InstanceName(name)
	return a
}

func whole(t *testing.T, a Attempt, data []byte) Attempt {
	t.Helper()
	var err error
	a.Body, err = Whole(a.Revision.Content, data)
	require.NoError(t, err)
	return a
}

func heldBy(t require.TestingT, s *Store, names ...fleet.InstanceName) map[fleet.InstanceName]Instance {
	all, err := s.InstancesOf(context.Background(), names)
	require.NoError(t, err)
	return all
}

// N98, N95
func TestCommitBatch(t *testing.T) {
	t.Parallel()
	one, oneContent := body(4096, 1)
	two, twoContent := body(100, 2)
	t.Run("takes each by itself: what is refused leaves nothing", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, of("older", attempt(5, oneContent)), one)
		commit(t, s, of("number", attempt(5, oneContent)), one)
		commit(t, s, of("moved", attempt(5, oneContent)), one)
		passed := attempt(1, twoContent)
		passed.Right.Epoch = 2
		_, lost := body(10, 3)
		refused, err := s.CommitBatch(t.Context(), []Step{
			{Attempt: whole(t, of("new", attempt(1, twoContent)), two)},
			{Attempt: whole(t, of("older", attempt(4, twoContent)), two)},
			{Attempt: whole(t, of("new", attempt(2, twoContent)), two)},
			{Attempt: of("number", attempt(6, oneContent)), Turn: TurnRenumber},
			{Attempt: of("moved", attempt(6, twoContent)), Turn: TurnRenumber},
			{Attempt: of("passed", passed)},
			{Attempt: of("lost", attempt(1, lost))},
			{Attempt: whole(t, of("kept", attempt(1, twoContent)), two), Turn: TurnKeep},
			{Attempt: of("accepted", attempt(1, lost)), Turn: TurnKeep},
			{Attempt: of("shared", attempt(1, twoContent))},
		})
		require.NoError(t, err)
		kinds := make([]fleet.Kind, len(refused))
		for i, err := range refused {
			if err != nil {
				kinds[i] = fleet.KindOf(err)
			}
		}
		require.Equal(t, []fleet.Kind{
			"", fleet.Stale, fleet.Invalid, "", fleet.Stale, fleet.Stale, fleet.IllegalState, "", "", "",
		}, kinds)
		all := heldBy(t, s, "new", "older", "number", "moved", "passed", "lost", "kept", "accepted", "shared", "unheard")
		require.EqualValues(t, 1, number(all["new"].Current))
		require.EqualValues(t, 5, number(all["older"].Current))
		require.EqualValues(t, 6, number(all["number"].Current))
		require.EqualValues(t, 5, all["moved"].HighWater.Version.Revision)
		require.False(t, all["passed"].Known() || all["lost"].Known() || all["unheard"].Known())
		require.True(t, all["kept"].Known() && all["accepted"].Known())
		require.Nil(t, all["kept"].Current)
		require.EqualValues(t, 1, number(all["shared"].Current))
		var out bytes.Buffer
		require.NoError(t, s.WriteContent(t.Context(), twoContent, &out))
		require.Equal(t, two, out.Bytes())
	})
	t.Run("keeps what a mark refers to, and no longer", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		step := Step{Attempt: whole(t, attempt(1, oneContent), one), Turn: TurnKeep}
		refused, err := s.CommitBatch(t.Context(), []Step{step})
		require.NoError(t, err)
		require.NoError(t, refused[0])
		for _, there := range []bool{true, false} {
			collectAll(t, s)
			sizes, err := s.CompleteContents(t.Context(), []fleet.Hash{oneContent.Hash, twoContent.Hash})
			require.NoError(t, err)
			_, is := sizes[oneContent.Hash]
			require.Equal(t, there, is)
			require.NoError(t, s.Accept(t.Context(), attempt(2, twoContent)))
		}
	})
	// N59, N100
	t.Run("keeps what is set aside, takes what is older, and lets go when it is accepted", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		there := func() bool {
			collectAll(t, s)
			sizes, err := s.CompleteContents(t.Context(), []fleet.Hash{twoContent.Hash})
			require.NoError(t, err)
			_, is := sizes[twoContent.Hash]
			return is
		}
		aside := func(number int64) error {
			refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: whole(t, attempt(number, twoContent), two), Turn: TurnSetAside}})
			require.NoError(t, err)
			return refused[0]
		}
		require.NoError(t, aside(5))
		require.False(t, heldBy(t, s, name)[name].Known(), "nothing is accepted")
		commit(t, s, attempt(4, oneContent), one)
		require.True(t, there())
		require.Equal(t, fleet.Stale, fleet.KindOf(aside(3)))
		require.Equal(t, fleet.Stale, fleet.KindOf(s.SetAside(t.Context(), attempt(4, twoContent))), "older than what is set aside")
		require.NoError(t, s.Accept(t.Context(), attempt(5, twoContent)))
		require.NoError(t, s.Commit(t.Context(), attempt(5, twoContent)))
		require.True(t, there())
		for number := range int64(2) { // the previous one is kept too
			data, content := body(30, uint64(number))
			commit(t, s, attempt(6+number, content), data)
		}
		require.False(t, there())
	})
	t.Run("takes over from a part of the body", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, oneContent)))
		st, err := s.OpenStaging(t.Context(), oneContent)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), one[:100]))
		refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: whole(t, attempt(1, oneContent), one)}})
		require.NoError(t, err)
		require.NoError(t, refused[0])
		var out bytes.Buffer
		require.NoError(t, s.WriteContent(t.Context(), oneContent, &out))
		require.Equal(t, one, out.Bytes())
	})
	t.Run("takes no body that is not what it says", func(t *testing.T) {
		t.Parallel()
		_, err := Whole(oneContent, two)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
		short := oneContent
		short.Size--
		_, err = Whole(short, one)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(err))
	})
	t.Run("a step that fails half done is refused alone, and leaves no mark", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(1, oneContent), one)
		refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: attempt(2, twoContent), Turn: TurnRenumber}})
		require.NoError(t, err)
		require.Equal(t, fleet.Stale, fleet.KindOf(refused[0]))
		refused, err = s.CommitBatch(t.Context(), []Step{{Attempt: attempt(2, oneContent), Turn: TurnRenumber + 1}})
		require.NoError(t, err)
		require.ErrorContains(t, refused[0], "turn 4")
		in := held(t, s)
		require.EqualValues(t, 1, in.HighWater.Version.Revision)
		require.EqualValues(t, 1, number(in.Current))
	})
	t.Run("of nothing is nothing", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		refused, err := s.CommitBatch(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, refused)
	})
}

// N98
func TestRecentReads(t *testing.T) {
	t.Parallel()
	t.Run("are kept of as many as a batch may have, and of no more", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		names, hashes := make([]fleet.InstanceName, fleet.MaxBatchItems+1), make([]fleet.Hash, fleet.MaxBatchItems+1)
		for i := range names {
			names[i], hashes[i] = fleet.InstanceName(fmt.Sprint("press-", i)), fleet.Hash(fmt.Sprint(i))
		}
		for _, c := range []struct {
			many int
			kept bool
		}{{len(names), false}, {len(names) - 1, true}} {
			require.Len(t, heldBy(t, s, names[:c.many]...), c.many)
			_, err := s.CompleteContents(t.Context(), hashes[:c.many])
			require.NoError(t, err)
			require.Equal(t, c.kept, s.recent.held.of != nil)
			require.Equal(t, c.kept, s.recent.hashes != nil)
		}
	})
	t.Run("never outlive a commit", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		names := []fleet.InstanceName{"press-a", "press-b"}
		data, want := body(100, 1)
		hashes := []fleet.Hash{want.Hash}
		for n := range 3 {
			held, err := s.InstancesOf(t.Context(), names)
			require.NoError(t, err)
			again, err := s.InstancesOf(t.Context(), names[1:])
			require.NoError(t, err)
			require.Equal(t, held["press-b"], again["press-b"])
			require.Equal(t, n > 0, held["press-a"].Known())
			there, err := s.CompleteContents(t.Context(), hashes)
			require.NoError(t, err)
			require.Equal(t, n > 0, there[want.Hash] > 0)
			whole, err := Whole(want, data)
			require.NoError(t, err)
			refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: Attempt{
				Instance: "press-a", Right: active, Body: whole, Revision: fleet.Revision{
					Version: fleet.Version{Era: 1, Revision: int64(n + 1)}, Action: fleet.ActionDeploy, Enabled: true, Content: want,
				},
			}}})
			require.NoError(t, err)
			require.Equal(t, []error{nil}, refused)
			after, err := s.InstancesOf(t.Context(), names[:1])
			require.NoError(t, err)
			require.EqualValues(t, n+1, after["press-a"].Current.Version.Revision)
		}
	})
}
