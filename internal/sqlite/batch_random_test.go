package sqlite

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// N95, N98: a batch leaves the store as its attempts one by one would have, in any history.
func TestCommitBatchIsManyCommits(t *testing.T) {
	t.Parallel()
	datas, contents := make([][]byte, 4), make([]fleet.Content, 4)
	for i := range datas {
		datas[i], contents[i] = body(50*i, uint64(i))
	}
	together, _ := setup(t)
	apart, _ := setup(t)
	history, histories := 0, sized.Many(100)
	rapid.Check(t, func(r *rapid.T) {
		if history++; history > histories {
			return
		}
		names := make([]fleet.InstanceName, 3)
		for i := range names {
			names[i] = fleet.InstanceName(fmt.Sprintf("press-%d-%d", history, i))
		}
		for range rapid.IntRange(1, 8).Draw(r, "batches") {
			var steps []Step
			want := make([]error, 0, len(names))
			for _, name := range names {
				n, i := rapid.Int64Range(1, 9).Draw(r, "revision"), rapid.IntRange(0, 3).Draw(r, "content")
				a := of(string(name), attempt(n, contents[i]))
				if rapid.IntRange(0, 4).Draw(r, "kind") == 0 {
					a = of(string(name), deletion(n))
				} else {
					a = whole(t, a, datas[i])
				}
				if rapid.IntRange(0, 4).Draw(r, "staged") == 0 { // what somebody left behind
					for _, s := range []*Store{together, apart} {
						if s.Accept(t.Context(), a) == nil {
							require.NoError(r, s.Stage(t.Context(), a))
						}
					}
				}
				steps = append(steps, Step{Attempt: a})
				err := apart.Accept(t.Context(), a)
				if err == nil {
					err = apart.Commit(t.Context(), a)
				}
				want = append(want, err)
			}
			refused, err := together.CommitBatch(t.Context(), steps)
			require.NoError(r, err)
			for i := range want {
				require.Equal(r, want[i] == nil, refused[i] == nil, fmt.Sprint(want[i], refused[i]))
			}
			require.Equal(r, heldBy(r, apart, names...), heldBy(r, together, names...))
		}
	})
}
