package provider

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// C21, C33, C35: whenever the link is cut, it is taken for lost within the timeout and a second, and not
// for a server that was silent for two thirds of the timeout less an interval, nor at once after a pause of
// this process.
func TestLost(t *testing.T) {
	t.Parallel()
	answered := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	for _, terms := range []terms{
		{5 * time.Second, 15 * time.Second}, {time.Second, 3 * time.Second}, {100 * time.Millisecond, time.Second}, {10 * time.Second, time.Minute},
	} {
		beat := answered.Add(terms.interval)
		at := terms.lost(answered, beat)
		require.LessOrEqual(t, at.Sub(answered), terms.timeout+time.Second, "cut right after an answer: %v", terms)
		require.GreaterOrEqual(t, at.Sub(beat), terms.timeout*2/3, "a server that is slow: %v", terms)
		require.Equal(t, at, terms.lost(answered, time.Time{}), "before a heartbeat was due: %v", terms)
		late := answered.Add(terms.timeout)
		require.Equal(t, late.Add(terms.timeout/2), terms.lost(answered, late), "paused here: %v", terms)
	}
}
