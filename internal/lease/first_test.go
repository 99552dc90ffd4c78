package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// N60, X21: two nodes that start at the same moment: whoever's calls come first, and however the
// answers cross, the declared active is the first that holds.
func TestModelDeclaredFirst(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]map[fault]int8{
		"in any order":  {},
		"late":          {delay: 1},
		"one is paused": {pause: 2},
		"called again":  {repeat: 1},
		"lost":          {lose: 2},
		"cut off":       {cut: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := 0
			e := explore(rules{ttl: 3, until: 2, yield: 6, asyncMe: true, budget: budget(of)}, func(m *model, w world) {
				if w.highest > 0 {
					held++
				}
				if w.highest > 0 && w.holder == 1 {
					m.fail("b was declared standby, and holds epoch %d", w.highest)
				}
			})
			t.Logf("%d worlds, held in %d", len(e.seen), held)
			require.Empty(t, e.broken, e.trace)
			require.False(t, e.capped)
			require.Positive(t, held)
		})
	}
}
