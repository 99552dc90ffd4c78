package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// counted is what somebody said last.
type counted struct {
	who   string
	count int
}

// X25
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		looks []int // s, of which each finds the other as it was
		want  bool
	}{
		"the first look":                  {[]int{100}, false},
		"silent for as long as it may be": {[]int{100, 110, 120, 130}, false},
		"silent for longer":               {[]int{100, 110, 120, 131}, true},
		"it was not looked at meanwhile":  {[]int{100, 110, 126, 136}, false},
		"and is silent on":                {[]int{100, 110, 126, 136, 146, 157}, true},
		"looked at as seldom as may be":   {[]int{100, 115, 130, 145}, true},
		"back after long":                 {[]int{100, 900}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			watch := decide.NewWatch[counted](30 * time.Second)
			var lapsed []counted
			for _, s := range c.looks {
				lapsed = watch.Lapsed([]counted{{"other", 1}}, time.Duration(s)*time.Second)
			}
			require.Equal(t, c.want, len(lapsed) == 1)
		})
	}
}

// X25: one that says that it lives whenever the database is there never lapses, however long
// that is away, whoever is paused, and whatever time the database has.
func TestNobodyLapsesByAnOutage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		away := rapid.IntRange(40, 80).Draw(t, "away from")
		back := away + rapid.IntRange(0, 300).Draw(t, "away for")
		mine, theirs := rapid.IntRange(0, 9).Draw(t, "I look at"), rapid.IntRange(0, 9).Draw(t, "it speaks at")
		watch, word := decide.NewWatch[counted](30*time.Second), counted{"other", 0}
		for s := range back + 120 {
			if s >= away && s < back {
				continue
			}
			if s%10 == theirs {
				word.count++
			}
			if s%10 == mine {
				require.Empty(t, watch.Lapsed([]counted{word}, time.Duration(s)*time.Second), "at %d s", s)
			}
		}
		var lapsed []counted
		for s := range 60 {
			if s%10 == mine {
				lapsed = watch.Lapsed([]counted{word}, time.Duration(back+120+s)*time.Second)
			}
		}
		require.NotEmpty(t, lapsed, "it has fallen silent")
	})
}
