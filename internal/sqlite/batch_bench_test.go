package sqlite

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// BenchmarkCommitBatch is 500 new revisions of 4 KB each in a store of 10,000 instances,
// committed as durably as one is.
func BenchmarkCommitBatch(b *testing.B) {
	s, _ := setup(b)
	const all, many = 10_000, 500
	for from := 0; from < all; from += many {
		refused, err := s.CommitBatch(b.Context(), benchSteps(b, from, 1, many))
		require.NoError(b, err)
		requireNone(b, refused)
	}
	var spent, used time.Duration
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		steps := benchSteps(b, n*many%all, int64(n+2), many)
		b.StartTimer()
		begun, before := time.Now(), cpu(b)
		refused, err := s.CommitBatch(b.Context(), steps)
		spent, used = spent+time.Since(begun), used+cpu(b)-before
		require.NoError(b, err)
		requireNone(b, refused)
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*many), "cpu-µs/item")
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N*many), "µs/item")
}

// cpu is what the process has used of the processors: the figure that holds on a busy machine.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func requireNone(tb testing.TB, refused []error) {
	tb.Helper()
	for _, err := range refused {
		require.NoError(tb, err)
	}
}

func benchSteps(b *testing.B, from int, revision int64, many int) []Step {
	b.Helper()
	steps := make([]Step, many)
	for i := range steps {
		data, want := body(4096, uint64(revision)<<20|uint64(from+i))
		body, err := Whole(want, data)
		require.NoError(b, err)
		steps[i] = Step{Attempt: Attempt{
			Instance: fleet.InstanceName(fmt.Sprintf("press-%05d", from+i)), Right: active, Body: body,
			Revision: fleet.Revision{
				Version: fleet.Version{Era: 1, Revision: revision}, Action: fleet.ActionDeploy, Enabled: true, Content: want,
			},
		}}
	}
	return steps
}
