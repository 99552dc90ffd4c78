package sqlite

import (
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
}
