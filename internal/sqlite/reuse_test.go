package sqlite

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N98, N99
func TestReuse(t *testing.T) {
	t.Parallel()
	type step struct {
		name string
		n    int64
		seed uint64 // of the body; its size is another for each
		bare bool   // the file has it
	}
	take := func(t *testing.T, s *Store, steps ...step) {
		t.Helper()
		var all []Step
		for _, st := range steps {
			data, c := body(1000+int(st.seed), st.seed)
			a := of(st.name, attempt(st.n, c))
			if !st.bare {
				a = whole(t, a, data)
			}
			all = append(all, Step{Attempt: a})
		}
		refused, err := s.CommitBatch(t.Context(), all)
		require.NoError(t, err)
		for _, err := range refused {
			require.NoError(t, err)
		}
	}
	holds := func(t *testing.T, s *Store, name string, now, before uint64) {
		t.Helper()
		in := heldBy(t, s, fleet.InstanceName(name))[fleet.InstanceName(name)]
		for slot, seed := range map[*Slot]uint64{in.Current: now, in.Previous: before} {
			data, c := body(1000+int(seed), seed)
			require.Equal(t, c, slot.Content)
			require.Equal(t, data, read(t, s, c))
		}
	}

	t.Run("puts a new body where that of two revisions ago was", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		for n := range 5 {
			take(t, s, step{name: "a", n: int64(n + 1), seed: uint64(2*n + 1)}, step{name: "b", n: int64(n + 1), seed: uint64(2*n + 2)})
			require.Equal(t, min(n+1, 2)*2, contents(t, s), "nothing is left to be collected")
		}
		holds(t, s, "a", 9, 7)
		holds(t, s, "b", 10, 8)
	})
	t.Run("leaves alone what another has, or a step of the batch wants", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		take(t, s, step{name: "a", n: 1, seed: 1}, step{name: "b", n: 1, seed: 2}, step{name: "c", n: 1, seed: 3})
		take(t, s, step{name: "a", n: 2, seed: 4}, step{name: "b", n: 2, seed: 3, bare: true}, step{name: "c", n: 2, seed: 5})
		take(t, s, step{name: "c", n: 3, seed: 6}, step{name: "a", n: 3, seed: 7}, step{name: "b", n: 3, seed: 1, bare: true})
		holds(t, s, "a", 7, 4)
		holds(t, s, "b", 1, 3)
		holds(t, s, "c", 6, 5)
	})
	t.Run("leaves alone what is in parts", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		data, c := body(1000, 0)
		st, err := s.OpenStaging(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, st.Append(t.Context(), data[:400]))
		require.NoError(t, st.Append(t.Context(), data[400:]))
		require.NoError(t, st.Seal(t.Context()))
		take(t, s, step{name: "a", n: 1, seed: 0, bare: true})
		take(t, s, step{name: "a", n: 2, seed: 1})
		take(t, s, step{name: "a", n: 3, seed: 2})
		holds(t, s, "a", 2, 1)
		require.Equal(t, 3, contents(t, s))
	})
	t.Run("of bodies as large as is reused, and of no empty or larger ones", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		n := int64(0)
		for _, c := range []struct {
			first, third int
			left         int // bodies after three revisions of one name
		}{{maxReused, maxReused, 2}, {maxReused + 1, maxReused, 3}, {maxReused, maxReused + 1, 3}, {0, 10, 3}, {10, 0, 3}} {
			name := fmt.Sprintf("press-%d-%d", c.first, c.third)
			before := contents(t, s)
			for i, size := range []int{c.first, 20, c.third} {
				n++
				data, content := body(size, uint64(n))
				refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: whole(t, of(name, attempt(int64(i+1), content)), data)}})
				require.NoError(t, err)
				require.NoError(t, refused[0], name)
				require.Equal(t, data, append([]byte{}, read(t, s, content)...), name)
			}
			require.Equal(t, c.left, contents(t, s)-before, name)
			collectAll(t, s)
		}
	})
	t.Run("fails where a body has lost its bytes, and changes nothing", func(t *testing.T) {
		t.Parallel()
		s, _ := setup(t)
		take(t, s, step{name: "a", n: 1, seed: 1})
		take(t, s, step{name: "a", n: 2, seed: 2})
		_, lost := body(1001, 1)
		_, err := s.db.Exec("DELETE FROM chunks WHERE content_id = (SELECT id FROM contents WHERE hash = ?)", string(lost.Hash))
		require.NoError(t, err)
		data, c := body(1003, 3)
		refused, err := s.CommitBatch(t.Context(), []Step{{Attempt: whole(t, of("a", attempt(3, c)), data)}})
		require.NoError(t, err)
		require.Equal(t, fleet.Internal, fleet.KindOf(refused[0]))
		require.ErrorContains(t, refused[0], "has no chunk")
		require.EqualValues(t, 2, number(heldBy(t, s, "a")["a"].Current))
	})
}
