package node

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N98, N93, N94, N95
func TestBatch(t *testing.T) {
	t.Parallel()
	for _, role := range []fleet.Role{fleet.RoleActive, fleet.RoleStandby} {
		t.Run("brings 500 to the "+string(role)+" by one stream and in one transaction", func(t *testing.T) {
			t.Parallel()
			m := batched(t, role)
			for i := range fleet.MaxBatchItems {
				m.add(numbered(i), 1, fmt.Sprintf(`{"n":%d}`, i))
			}
			before := m.commits()
			out := m.mustRun()
			require.Equal(t, fleet.BatchOutcome{Applied: 500, Fetched: out.Fetched}, out)
			require.Equal(t, 1, m.commits()-before)
			require.Len(t, m.hashes, 1)
			require.Equal(t, 1, m.posts)
			for i := range fleet.MaxBatchItems {
				r := m.result(numbered(i))
				require.Empty(t, r.Reason)
				require.Equal(t, m.held(numbered(i)), r.Held)
				require.EqualValues(t, 1, r.Held.Version.Revision)
				file := ""
				if role == fleet.RoleActive {
					file = fmt.Sprintf(`{"n":%d}`, i)
				}
				require.Equal(t, file, m.file(numbered(i)))
			}
			require.Len(t, m.told, 1)
			require.Len(t, m.told[0], 500)
			require.EqualValues(t, 500, m.counted.Applied.Load())

			before = m.commits()
			out = m.mustRun()
			require.Equal(t, fleet.BatchOutcome{Already: 500}, out)
			require.Empty(t, m.hashes)
			require.Equal(t, before, m.commits())
			require.Empty(t, m.rt.said())
		})
	}
}
