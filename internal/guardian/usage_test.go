package guardian

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// S20: what a command takes counts with all below it, also what has ended.
func TestUsageBelow(t *testing.T) {
	t.Parallel()
	r, spec := once(t, "(while :; do :; done) & sleep 1000")
	st := start(t, r, spec)
	var used Usage
	eventually(t, func() bool {
		all, err := UsageBelow([]int{st.GuardianPID, 1 << 30})
		require.NoError(t, err)
		require.Len(t, all, 1)
		used = all[st.GuardianPID]
		return used.CPU > 0.05
	}, "the child of the command does not count")
	require.Greater(t, used.Memory, int64(os.Getpagesize()))
	none, err := UsageBelow(nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
