package decide_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// N54, N56, N81, X28
func TestReconcile(t *testing.T) {
	t.Parallel()
	holds := func(current, high int64) func(*fleet.Comparison) {
		return func(c *fleet.Comparison) {
			c.Held = fleet.Held{Known: true, Revision: revision(current), HighWater: fleet.Version{Era: 1, Revision: high}}
		}
	}
	unknown := func(c *fleet.Comparison) { c.Held = fleet.Held{} }
	expected := func(c *fleet.Comparison) { c.Expected = true }
	standby := func(c *fleet.Comparison) { c.Active = false }
	neverDeployed := func(c *fleet.Comparison) { c.Snapshot = fleet.Revision{} }
	deletion := func(n int64) fleet.Revision {
		return fleet.Revision{Version: fleet.Version{Era: 1, Revision: n}, Action: fleet.ActionDelete}
	}
	deleted := func(c *fleet.Comparison) { c.Snapshot, c.Desired = deletion(5), deletion(5) }
	deletes := func(c *fleet.Comparison) { c.Desired = deletion(6) }
	otherContent := func(c *fleet.Comparison) { c.Held.Content.Hash = "other" }
	for _, c := range []struct {
		name string
		gap  decide.NodeGap
		from []func(*fleet.Comparison)
	}{
		{"level", decide.GapNone, nil},
		{"level, and something newer failed", decide.GapNone, []func(*fleet.Comparison){holds(5, 6)}},
		{"nothing there", decide.GapBehind, []func(*fleet.Comparison){unknown}},
		{"behind", decide.GapBehind, []func(*fleet.Comparison){holds(4, 4)}},
		{"behind while something is on its way", decide.GapBehind, []func(*fleet.Comparison){holds(4, 4), expected}},
		{"behind, and it refuses the number", decide.GapAhead, []func(*fleet.Comparison){holds(4, 7)}},
		{"another content of the same number", decide.GapAhead, []func(*fleet.Comparison){otherContent}},
		{"ahead", decide.GapAhead, []func(*fleet.Comparison){holds(7, 7)}},
		{"ahead by what is on its way", decide.GapNone, []func(*fleet.Comparison){holds(6, 6), expected}},
		{"the active holds what was released last", decide.GapUnrecorded, []func(*fleet.Comparison){holds(6, 6)}},
		{"so does a standby", decide.GapAhead, []func(*fleet.Comparison){holds(6, 6), standby}},
		{"its number with another content", decide.GapAhead, []func(*fleet.Comparison){holds(6, 6), otherContent}},
		{"the first revision was applied and not recorded", decide.GapUnrecorded, []func(*fleet.Comparison){holds(6, 6), neverDeployed}},
		{"the first revision is nowhere", decide.GapNone, []func(*fleet.Comparison){unknown, neverDeployed}},
		{"deleted and gone", decide.GapNone, []func(*fleet.Comparison){deleted, unknown}},
		{"deleted, and the node never heard of it", decide.GapBehind, []func(*fleet.Comparison){deleted, holds(4, 4)}},
		{"deleted, and the node is ahead", decide.GapAhead, []func(*fleet.Comparison){deleted, holds(7, 7)}},
		{"a delete was applied and not recorded", decide.GapUnrecorded, []func(*fleet.Comparison){deletes, func(c *fleet.Comparison) {
			c.Held = fleet.Held{Known: true, Revision: deletion(6), HighWater: deletion(6).Version}
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compared := fleet.Comparison{Snapshot: revision(5), Desired: revision(6), Active: true}
			holds(5, 5)(&compared)
			for _, change := range c.from {
				change(&compared)
			}
			require.Equal(t, c.gap, decide.Reconcile(compared))
		})
	}
}
