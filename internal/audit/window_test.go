package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
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
	w.Add(audit.Refusal{Door: "link", Reason: "no", What: strings.Repeat("é", audit.MaxText)})
	w.Add(audit.Refusal{Door: "link", Identity: "node:a", By: "b", Reason: "no", Times: 7, At: c.at.Add(-time.Hour)})
	rows := w.Take()
	require.Len(t, rows, audit.Rows+2)
	require.Equal(t, audit.Refusal{Door: "link", Identity: "node:a", Reason: "no", What: "it", At: c.at, Times: 1}, rows[0])
	require.Equal(t, "?", rows[audit.Rows].Identity, "it claimed nothing")
	require.Equal(t, strings.Repeat("é", audit.MaxText/2), rows[audit.Rows].What)
	require.Equal(t, c.at.Add(-time.Hour), rows[audit.Rows+1].At, "it was before it was told of")
	require.EqualValues(t, 7, rows[audit.Rows+1].Times)
	require.Empty(t, w.Take())
	c.goes(audit.Length)
	rest := w.Take()
	require.Len(t, rest, 1)
	require.EqualValues(t, 20-audit.Rows, rest[0].Times)

	w.Back(rows)
	w.Add(audit.Refusal{Door: "link", Identity: "node:b", Reason: "no"})
	require.Equal(t, rows, w.Rest()[:len(rows)], "what could not be written comes first")
	w.Add(audit.Refusal{Door: "link", Identity: "?node:\x00\xff", Reason: "no", What: "/\x00/\xff", Times: math.MaxInt64})
	odd := w.Take()[0]
	require.Equal(t, []any{"?node:?", "/?/", int64(1_000_000)}, []any{odd.Identity, odd.What, odd.Times}, "a database takes it")
	require.Equal(t, "tls", audit.KnownReason("tls"))
	require.Equal(t, "other", audit.KnownReason("of a later version"))
}

// C87: who claims many names hides nobody: not who is proven, and not who is refused elsewhere.
func TestWindowOfStrangers(t *testing.T) {
	t.Parallel()
	w := audit.NewWindow((&clock{at: time.Unix(1_000_000, 0)}).now)
	for i := range 10 * audit.Kinds {
		w.Add(audit.Refusal{Door: "peer", Identity: fmt.Sprintf("?node:n%d", i), Reason: "no", By: "a"})
	}
	require.LessOrEqual(t, len(w.Take()), audit.Kinds+audit.Rows)
	for _, r := range []audit.Refusal{
		{Door: "link", Identity: "node:a", Reason: "no"},
		{Door: "link", Identity: "?node:b", Reason: "no"},
		{Door: "peer", Identity: "node:c", Reason: "no", By: "b"},
		{Door: "peer", Identity: "node:c", Reason: "no", By: "a"},
		{Door: "node", Identity: "region", Reason: "no", By: "a"},
	} {
		require.True(t, w.Add(r))
		require.Equal(t, r.Identity, w.Take()[0].Identity)
	}
	require.False(t, w.Add(audit.Refusal{Door: "peer", Identity: "?node:more", Reason: "no", By: "a"}), "these are only counted by now")
	for _, r := range []audit.Refusal{
		{Door: "node", Identity: "region"},
		{Door: "peer", Identity: "?"},
		{Door: "peer", Identity: "?many"},
		{Door: "peer", Identity: "?node:a"},
		{Door: "peer", Identity: "node:a"},
	} {
		require.True(t, audit.NodeSays(r), r)
	}
	for _, r := range []audit.Refusal{
		{Door: "node", Identity: "node:a"}, {Door: "peer", Identity: "token:a"}, {Door: "peer", Identity: "node:"}, {Door: "http", Identity: "?"}, {},
	} {
		require.False(t, audit.NodeSays(r), r)
	}
}

// store refuses as often as it is told to, and takes nothing that a database does not take.
type store struct {
	mu    sync.Mutex
	fails int
	rows  []audit.Refusal
}

func (s *store) AddRefusals(_ context.Context, all []audit.Refusal, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return fleet.Errorf(fleet.Unavailable, "away")
	}
	s.rows = append(s.rows, all...)
	return nil
}

// C87, X5: what is refused while the database is away is written when it is back, and at the end.
func TestLog(t *testing.T) {
	t.Parallel()
	s := &store{fails: 2}
	var lines bytes.Buffer
	l, err := audit.NewLog(s, slog.New(slog.NewTextHandler(&lines, nil)), (&clock{at: time.Unix(1_000_000, 0)}).now, prometheus.NewRegistry())
	require.NoError(t, err)
	for range 20 {
		l.Refuse(audit.Refusal{Door: "http", Reason: "denied", What: "GET /" + strings.Repeat("x", 1<<20)})
	}
	require.Equal(t, audit.Rows, strings.Count(lines.String(), "refused"), "a flood fills no log")
	require.Less(t, lines.Len(), 1<<12)
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.rows) == audit.Rows
	}, time.Minute, time.Millisecond)
	end()
	require.ErrorIs(t, <-done, context.Canceled)
	require.EqualValues(t, 20-audit.Rows, s.rows[audit.Rows].Times, "the rest is written at the end")
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
				took(w.Take())
			case "back":
				w.Back(w.Take())
			case "turn":
				c.goes(audit.Length)
			}
		}
		took(w.Rest())
		require.Equal(t, came, went)
	})
}
