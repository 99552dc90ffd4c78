package boottime

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/testkit/suspended"
)

var slept = flag.Duration("boottime.suspended", 0, "how far the clock must be ahead of CLOCK_MONOTONIC")

// X21: votes are timed on a clock that counts suspend.
func TestNowCountsSuspend(t *testing.T) {
	t.Parallel()
	if *slept > 0 { // inside of the namespace
		var awake unix.Timespec
		require.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake))
		at, err := Now()
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Duration(at)-time.Duration(awake.Nano()), *slept)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := suspended.Command(t, 24*time.Hour, self, "-test.run=^TestNowCountsSuspend$", "-test.v", "-boottime.suspended=24h").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestNowCountsSuspend")
}
