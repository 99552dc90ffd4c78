package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
)

var silence = decide.Silence{Every: 10 * time.Second, Gone: 30 * time.Second}

// X25
func TestCanTell(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		beats []int // s
		now   int
		can   bool
	}{
		"before the first":             {nil, 100, false},
		"after the first":              {[]int{100}, 105, false},
		"shorter than the silence":     {[]int{100, 110, 120}, 129, false},
		"as long as the silence":       {[]int{100, 110, 120}, 130, true},
		"one was missed":               {[]int{100, 120}, 130, true},
		"two were missed":              {[]int{100, 121}, 131, false},
		"silent since":                 {[]int{100, 110, 120}, 141, false},
		"silent for long, back":        {[]int{100, 110, 120, 600}, 601, false},
		"silent for long, back for 30": {[]int{100, 110, 120, 600, 610, 620}, 630, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b decide.Beats
			for _, s := range c.beats {
				b = silence.Beat(b, time.Duration(s)*time.Second)
			}
			require.Equal(t, c.can, silence.CanTell(b, time.Duration(c.now)*time.Second))
		})
	}
}

// X25: another server that says that it lives whenever the database is there is never taken for
// gone, however long the database is away.
func TestNobodyIsGoneByAnOutage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const second = time.Second
		from := rapid.IntRange(40, 80).Draw(t, "away from")
		until := from + rapid.IntRange(0, 300).Draw(t, "away for")
		mine, theirs := rapid.IntRange(1, 10).Draw(t, "my first"), rapid.IntRange(1, 10).Draw(t, "their first")
		var me decide.Beats
		seen := time.Duration(0)
		for s := 1; s < until+120; s++ {
			now, there := time.Duration(s)*second, s < from || s >= until
			if there && s%10 == mine%10 {
				me = silence.Beat(me, now)
			}
			if there && s%10 == theirs%10 {
				seen = now
			}
			if there && silence.CanTell(me, now) && now-seen > silence.Gone {
				t.Fatalf("at %v who was seen at %v is taken for gone", now, seen)
			}
		}
		if !silence.CanTell(me, time.Duration(until+119)*second) {
			t.Fatal("it never can tell")
		}
	})
}
