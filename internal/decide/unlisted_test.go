package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X3, X28
func TestUnlistedReplica(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		seen fleet.UnlistedSeen
		full bool // no room in this pass
		do   fleet.AbsenceDo
		why  string
	}{
		{"the region ended it, and its node has it again", fleet.UnlistedSeen{Ended: true}, false, fleet.AbsenceDrop, "tombstone"},
		{"one more than a pass may end", fleet.UnlistedSeen{Ended: true}, true, fleet.AbsenceWait, fleet.OrphanOverCap},
		{"one that waits for an operator waits on, whatever room there is", fleet.UnlistedSeen{Ended: true, Listed: true}, false, fleet.AbsenceWait, fleet.OrphanOverCap},
		{"of which nothing runs", fleet.UnlistedSeen{Ended: true, Over: true, Listed: true}, true, fleet.AbsenceDrop, "over"},
		{"of which nothing runs, and the region never knew it", fleet.UnlistedSeen{Over: true}, false, fleet.AbsenceWait, fleet.OrphanNeverKnown},
		{"the region never knew it", fleet.UnlistedSeen{}, false, fleet.AbsenceWait, fleet.OrphanNeverKnown},
		{"the region never knew it, and says so once", fleet.UnlistedSeen{Listed: true}, false, fleet.AbsenceWait, fleet.OrphanNeverKnown},
		{"its node is told to end it", fleet.UnlistedSeen{Ended: true, Named: true}, true, fleet.AbsenceKeep, decide.UnlistedNamed},
		{"an operator let it go", fleet.UnlistedSeen{Listed: true, Named: true}, true, fleet.AbsenceKeep, decide.UnlistedNamed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			do, why := decide.UnlistedReplica(c.seen, !c.full)
			require.Equal(t, []any{c.do, c.why}, []any{do, why})
		})
	}
}
