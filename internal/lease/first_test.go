//go:build slow && !race

package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// N60, X21: two nodes that start at the same moment: whoever's calls come first, and however the
// answers cross, the declared active is the first that holds.
func TestModelDeclaredFirst(t *testing.T) {
	t.Parallel()
	for _, h := range []struct {
		name  string
		until int // less than a TTL with faults: then the other may have taken over
		of    map[fault]int8
	}{
		{"in any order", 5, map[fault]int8{}},
		{"late", 2, map[fault]int8{delay: 1}},
		{"one is paused", 2, map[fault]int8{pause: 2}},
		{"called again", 2, map[fault]int8{repeat: 1}},
		{"lost", 2, map[fault]int8{lose: 2}},
		{"cut off", 2, map[fault]int8{cut: 1}},
		{"one starts again", 2, map[fault]int8{crash: 1}},
	} {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			held := 0
			e := explore(rules{ttl: 3, until: h.until, yield: 6, asyncMe: true, budget: budget(h.of)}, func(m *model, w world) {
				if w.highest > 0 {
					held++
				}
				if w.highest > 0 && w.holder == 1 {
					m.fail("b was declared standby, and holds epoch %d", w.highest)
				}
				if len(h.of) == 0 && w.now == Instant(h.until)*beat && !w.active(0) {
					m.fail("nobody holds at the end")
				}
			})
			t.Logf("%d worlds, held in %d", len(e.seen), held)
			require.Empty(t, e.broken, e.trace)
			require.False(t, e.capped)
			require.Positive(t, held)
		})
	}
}
