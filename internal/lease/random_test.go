package lease

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// X21: the same on long random walks, with more faults of every kind at once, and with calls
// of a node's own voter that take their time too.
func TestRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &model{rules: rules{
			ttl: rapid.IntRange(2, 4).Draw(t, "ttl"), until: 200, rivals: rapid.Bool().Draw(t, "rivals"),
			asyncMe: rapid.Bool().Draw(t, "own votes take time"),
			budget: budget(map[fault]int8{
				cut: 20, lose: 100, delay: 60, repeat: 60, crash: 12, pause: 20,
				wipe: 1, handing: 4, aiming: 6, ending: 8, deafen: 6,
			}),
		}}
		w := m.begin()
		var trace []string
		for range rapid.IntRange(50, 500).Draw(t, "steps") {
			all := m.nexts(w)
			if len(all) == 0 {
				break
			}
			n := all[rapid.IntRange(0, len(all)-1).Draw(t, "next")]
			trace = append(trace, n.name())
			n.apply(&w)
			m.check(w)
			if m.broken != "" {
				t.Fatalf("%s\n%s", m.broken, strings.Join(trace, "\n"))
			}
		}
		if !m.calm(w, 12) || m.broken != "" {
			t.Fatalf("not calm: %s %s\n%s", m.broken, fmt.Sprint(w), strings.Join(trace, "\n"))
		}
	})
}
