package region

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit/waits"
)

// TestMain has the servers of tests leave the collector alone: their limit is far too low for all tests in one process.
func TestMain(m *testing.M) {
	_ = os.Setenv("GOMEMLIMIT", "off") // it is a valid name
	waits.Parallel()
	m.Run()
}

// Not parallel: it is about the whole process.
func TestSaveProcessor(t *testing.T) {
	const limit = 300 << 20
	for _, tc := range []struct {
		name, gogc, gomemlimit string
		percent                int
		limit                  int64
	}{
		{"collects less often, within a limit", "", "", collectAt, limit},
		{"obeys GOGC", "50", "", 70, limit},
		{"obeys GOMEMLIMIT", "", "1GiB", collectAt, math.MaxInt64},
		{"obeys both", "off", "1GiB", 70, math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("GOMEMLIMIT", tc.gomemlimit)
			percent, memory := debug.SetGCPercent(70), debug.SetMemoryLimit(math.MaxInt64)
			SaveProcessor(limit)
			gotLimit, gotPercent := debug.SetMemoryLimit(memory), debug.SetGCPercent(percent)
			require.Equal(t, tc.percent, gotPercent)
			require.Equal(t, tc.limit, gotLimit)
		})
	}
}

// Not parallel: it is about the whole process.
func TestKeepRoom(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	held := make([]byte, 200<<20)
	runtime.GC()
	require.ErrorIs(t, keepRoom(ctx, 100<<20), context.Canceled)
	require.Greater(t, debug.SetMemoryLimit(-1), int64(200<<20+roomAbove), "above what lives")
	runtime.KeepAlive(held)
	runtime.GC()
	require.ErrorIs(t, keepRoom(ctx, 300<<20), context.Canceled)
	require.EqualValues(t, 300<<20, debug.SetMemoryLimit(-1), "what it was given")
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.NoError(t, keepRoom(ctx, 1<<20))
	require.EqualValues(t, 300<<20, debug.SetMemoryLimit(-1), "the operator's own stays")
}
