package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// M36: where people write, a policy goes slowly; it is fast again some pages after the last write.
func TestPolicyPace(t *testing.T) {
	t.Parallel()
	first := decide.Pace{Objects: decide.PolicyPage}
	require.Equal(t, decide.Pace{Objects: 500, Pause: time.Millisecond}, decide.PolicyPace(first, 10*time.Millisecond, 0))
	slow := decide.PolicyPace(first, 10*time.Millisecond, 1)
	require.Equal(t, decide.Pace{Objects: 25, Pause: 50 * time.Millisecond}, slow)
	require.Equal(t, slow, decide.PolicyPace(slow, 10*time.Millisecond, 7))
	var sizes []int
	for range 5 {
		slow = decide.PolicyPace(slow, time.Millisecond, 0)
		sizes = append(sizes, slow.Objects)
	}
	require.Equal(t, []int{50, 100, 200, 400, 500}, sizes)
}
