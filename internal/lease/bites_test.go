//go:build slow && !race

package lease

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// X21: each rule of who calls the package, and some of its own, are needed: without one of
// them the model check finds two actives, or two holders of an epoch.
func TestModelBites(t *testing.T) {
	for _, h := range []struct {
		bad   misuse
		until int
		of    map[fault]int8
	}{
		{misuse{name: "a voter answers before it persists", lateDisk: true}, 3, map[fault]int8{cut: 1, crash: 1}},
		{misuse{name: "the deadline counts from the answer", fromCome: true}, 5, map[fault]int8{cut: 2, delay: 2}},
		{misuse{name: "no wait after a restart", noWait: true}, 4, map[fault]int8{cut: 1, crash: 1}},
		{misuse{name: "a lost vote is a new one", noLoss: true}, 4, map[fault]int8{cut: 1, wipe: 1}},
		{misuse{name: "a release before the claim is gone", keepClaim: true}, 4, map[fault]int8{cut: 1, handing: 1, crash: 1}},
		{misuse{name: "what may be lost is given back while it runs", earlyEnd: true}, 4, map[fault]int8{cut: 1, ending: 1}},
		{misuse{name: "guardians stop a beat late", lateRun: true}, 5, map[fault]int8{cut: 1, pause: 1}},
	} {
		t.Run(h.bad.name, func(t *testing.T) {
			t.Parallel()
			e := explore(rules{ttl: 2, until: h.until, budget: budget(h.of), bad: h.bad, rivals: h.bad.lateDisk}, func(*model, world) {})
			t.Logf("%d worlds: %s", len(e.seen), e.broken)
			require.NotEmpty(t, e.broken)
		})
	}
}
