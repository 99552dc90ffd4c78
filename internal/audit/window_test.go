package audit_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/audit"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) goes(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
}

// C87: what one identity gets for one reason is some rows, and a count of the rest once its window ends.
func TestWindow(t *testing.T) {
	t.Parallel()
	c := &clock{at: time.Unix(1_000_000, 0)}
	w := audit.NewWindow(c.now)
	for range 20 {
		w.Add(audit.Refusal{Door: "link", Identity: "node:a", Reason: "no", What: "it"})
	}
	w.Add(audit.Refusal{Door: "link", Reason: "no", What: strings.Repeat("é", audit.MaxWhat)})
	w.Add(audit.Refusal{Door: "link", Identity: "node:a", By: "b", Reason: "no", Times: 7, At: c.at.Add(-time.Hour)})
	rows := w.Take(false)
	require.Len(t, rows, audit.Rows+2)
	require.Equal(t, audit.Refusal{Door: "link", Identity: "node:a", Reason: "no", What: "it", At: c.at, Times: 1}, rows[0])
	require.Equal(t, "?", rows[audit.Rows].Identity, "it claimed nothing")
	require.Equal(t, strings.Repeat("é", audit.MaxWhat/2), rows[audit.Rows].What)
	require.Equal(t, c.at.Add(-time.Hour), rows[audit.Rows+1].At, "it was before it was told of")
	require.EqualValues(t, 7, rows[audit.Rows+1].Times)
	require.Empty(t, w.Take(false))
	c.goes(audit.Length)
	rest := w.Take(false)
	require.Len(t, rest, 1)
	require.EqualValues(t, 20-audit.Rows, rest[0].Times)

	w.Back(rows)
	w.Add(audit.Refusal{Door: "link", Identity: "node:b", Reason: "no"})
	require.Equal(t, rows, w.Take(true)[:len(rows)], "what could not be written comes first")
	require.Equal(t, "tls", audit.KnownReason("tls"))
	require.Equal(t, "other", audit.KnownReason("of a later version"))
}

// C87, X4: however refusals come, each is counted once, and no flood fills the memory.
func TestWindowCountsEachOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{at: time.Unix(1_000_000, 0)}
		w := audit.NewWindow(c.now)
		var came, went int64
		took := func(rows []audit.Refusal) {
			require.LessOrEqual(t, len(rows), audit.MaxWaiting)
			for _, r := range rows {
				went += r.Times
			}
		}
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"add", "add", "add", "take", "back", "turn"}).Draw(t, "step") {
			case "add":
				n := rapid.Int64Range(0, 3).Draw(t, "times")
				came += max(n, 1)
				w.Add(audit.Refusal{Door: "link", Identity: fmt.Sprint(rapid.IntRange(0, 3*audit.Kinds).Draw(t, "who")), Reason: "no", Times: n})
			case "take":
				took(w.Take(false))
			case "back":
				w.Back(w.Take(false))
			case "turn":
				c.goes(audit.Length)
			}
		}
		took(w.Take(true))
		require.Equal(t, came, went)
	})
}
