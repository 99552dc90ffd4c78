package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N41, X14: each further try waits longer, once.
func TestInstanceWaits(t *testing.T) {
	t.Parallel()
	waiting, applied := is(fleet.TargetWaiting), is(fleet.TargetApplied)
	for _, c := range []struct {
		name string
		seen fleet.InstanceSeen
		run  decide.InstanceRun
		wait time.Duration
	}{
		{"not before the first", seen(asked(1), open(2, waiting, waiting)), decide.InstanceRun{}, 0},
		{"one second before the second", seen(asked(1), open(2, missed(fleet.Communication, 1), waiting)), decide.InstanceRun{}, time.Second},
		{"two before the third", seen(asked(1), open(2, missed(fleet.Communication, 2), waiting)), decide.InstanceRun{}, 2 * time.Second},
		{"not again when it has waited", seen(asked(1), open(2, missed(fleet.Communication, 1), waiting)), decide.InstanceRun{Waited: "a"}, 0},
		{"for each node its own", seen(asked(1), open(2, applied, missed(fleet.Communication, 1))), decide.InstanceRun{Waited: "a"}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := decide.Instance(c.seen, c.run, noon)
			require.Equal(t, decide.DoNotify, a.Do)
			require.Equal(t, c.wait, a.Wait)
		})
	}
}
