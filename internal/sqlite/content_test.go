package sqlite

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N94, N95, N96
func TestWholeBody(t *testing.T) {
	t.Parallel()
	data, c := body(MaxChunk, 1)
	t.Run("is stored with the slot that refers to it, or not at all", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, c)))
		a := filled(t, s, attempt(1, c), data)
		s = reopen(t, s, path)
		require.Zero(t, contents(t, s), "before its slot it is in memory only")
		a.Body.store = s
		require.NoError(t, s.Stage(t.Context(), a))
		s = reopen(t, s, path)
		require.Equal(t, 1, contents(t, s))
		require.Equal(t, data, read(t, s, c))
	})
	t.Run("is stored once when two revisions brought it", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		first, second := filled(t, s, attempt(1, c), data), filled(t, s, attempt(1, c), data)
		second.Instance = "oven"
		for _, a := range []Attempt{first, second} {
			require.NoError(t, s.Accept(t.Context(), a))
			require.NoError(t, s.Commit(t.Context(), a))
		}
		require.Equal(t, 1, contents(t, s))
		require.Equal(t, data, read(t, s, c))
	})
	t.Run("takes the place of a part that another download left", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		whole := filled(t, s, attempt(1, c), data)
		part, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, part.Append(t.Context(), data[:10]))
		require.NoError(t, s.Accept(t.Context(), whole))
		require.NoError(t, s.Commit(t.Context(), whole))
		require.Equal(t, data, read(t, s, c))
		require.Equal(t, fleet.Stale, fleet.KindOf(part.Append(t.Context(), data[10:])))
	})
	t.Run("that breaks off leaves what came of it, and the rest completes it", func(t *testing.T) {
		t.Parallel()
		s, path := setup(t)
		require.NoError(t, s.Accept(t.Context(), attempt(1, c)))
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:1000]))
		s = reopen(t, s, path)
		st, err = s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, int64(1000), st.Received())
		require.NoError(t, s.Commit(t.Context(), filled(t, s, attempt(1, c), data)))
		require.Equal(t, data, read(t, s, c))
	})
	t.Run("begun twice at once has one that goes on", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		one, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		other, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, one.Append(t.Context(), data[:10]))
		require.Equal(t, fleet.Stale, fleet.KindOf(other.Append(t.Context(), data[:20])))
		require.Zero(t, other.Received())
	})
}

// N94, N96: what an upload may not do, to the byte.
func TestStagingBounds(t *testing.T) {
	t.Parallel()
	big, cBig := body(MaxChunk+1, 1)
	data, c := body(10, 2)
	t.Run("a chunk is at most MaxChunk, and no chunk is none", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), cBig)
		require.NoError(t, err)
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(st.Append(t.Context(), big)))
		require.NoError(t, st.Append(t.Context(), nil))
		require.NoError(t, st.Append(t.Context(), big[:MaxChunk]))
		require.Equal(t, fleet.HashMismatch, fleet.KindOf(st.Append(t.Context(), big[:2])), "one byte too many")
		require.NoError(t, st.Append(t.Context(), big[MaxChunk:]))
		require.NoError(t, st.Seal(t.Context()))
		require.NoError(t, st.Seal(t.Context()), "twice is once")
	})
	t.Run("what was given up meanwhile is not completed", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:4]))
		require.NoError(t, st.Append(t.Context(), data[4:]))
		collect(t, s) // no name wants it
		require.Equal(t, fleet.Stale, fleet.KindOf(st.Seal(t.Context())))
		require.False(t, st.Complete())
	})
	t.Run("a part is resumed where it was given up and begun again", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:4]))
		require.NoError(t, st.Restart(t.Context()))
		require.Zero(t, st.Received())
		require.Zero(t, contents(t, s))
		require.NoError(t, st.Append(t.Context(), data[:6]))
		again, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.EqualValues(t, 6, again.Received())
	})
	t.Run("a body that lost bytes is not copied short", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		for i := range data {
			require.NoError(t, st.Append(t.Context(), data[i:i+1]))
		}
		require.NoError(t, st.Seal(t.Context()))
		require.Equal(t, data, read(t, s, c))
		_, err = s.db.Exec("DELETE FROM chunks WHERE position = 5")
		require.NoError(t, err)
		var out bytes.Buffer
		require.ErrorContains(t, s.WriteContent(t.Context(), c, &out), "a chunk at 5 is missing")
		require.Equal(t, data[:5], out.Bytes())
	})
	t.Run("a body is there when it is whole", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		has := func() bool {
			is, err := s.HasContent(t.Context(), c.Hash)
			require.NoError(t, err)
			return is
		}
		require.False(t, has())
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:4]))
		require.NoError(t, st.Append(t.Context(), data[4:]))
		require.False(t, has(), "it is not verified yet")
		require.NoError(t, s.Accept(t.Context(), attempt(1, c)))
		require.Equal(t, fleet.IllegalState, fleet.KindOf(s.Stage(t.Context(), attempt(1, c))))
		require.NoError(t, st.Seal(t.Context()))
		require.True(t, has())
		require.NoError(t, s.Stage(t.Context(), attempt(1, c)))
	})
	t.Run("a reader that fails ends the copy", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		commit(t, s, attempt(1, c), data)
		require.ErrorIs(t, s.WriteContent(t.Context(), c, broken{}), io.ErrClosedPipe)
	})
}

// broken takes nothing.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func contents(t *testing.T, s *Store) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRow("SELECT count(*) FROM contents WHERE hash IS NOT NULL").Scan(&n))
	return n
}

func read(t *testing.T, s *Store, c fleet.Content) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, s.WriteContent(t.Context(), c, &out))
	return out.Bytes()
}
