package node

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
)

// history is what a random run of commands should have led to.
type history struct {
	applied int64 // the highest number that was answered with success
	current int64
	high    int64
}

// N49, N50, N53, N95, X13: whatever order commands come in, duplicated, stale, failing to
// start or killed at any point, current is the highest that was applied and not above the
// high-water mark, nothing older overwrites it, and what runs is what is current.
func TestApplyProperties(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.rt.onStart = startFails("bad")
	round, rounds := 0, sized.Many(100)
	rapid.Check(t, func(rt *rapid.T) {
		if round++; round > rounds {
			return
		}
		name := fleet.InstanceName("i" + string(hashOf([]byte{byte(round), byte(round >> 8)}))[:12])
		plan := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "bad", "off", "gone"}), 5, 5).Draw(rt, "revisions")
		var h history
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			n := rapid.Int64Range(1, 5).Draw(rt, "revision")
			cmd := planned(b, name, n, plan[n-1])
			if point := rapid.SampledFrom(append([]string{"", "", "", ""}, points...)).Draw(rt, "kill"); point != "" {
				b.killedAt(point, cmd)
				b.restart()
			} else if _, err := b.apply(cmd); err == nil {
				h.applied = max(h.applied, n)
			} else if k := fleet.KindOf(err); k != fleet.Stale && k != fleet.ApplyFailed {
				rt.Fatalf("revision %d (%s): %v", n, plan[n-1], err)
			}
			h = agrees(rt, b, name, plan, h)
		}
	})
}

func planned(b *bench, name fleet.InstanceName, n int64, what string) fleet.RefreshDeploymentCommand {
	switch what {
	case "gone":
		return b.deletion(n, named(name))
	case "off":
		return b.cmd(n, "a", named(name), disabled)
	}
	return b.cmd(n, what, named(name))
}

// agrees compares store, file and runtime with each other and with what was before.
func agrees(rt *rapid.T, b *bench, name fleet.InstanceName, plan []string, before history) history {
	in, err := b.store.Instance(b.t.Context(), name)
	require.NoError(rt, err)
	now := history{applied: before.applied, high: in.HighWater.Version.Revision}
	require.Nil(rt, in.Staged)
	require.GreaterOrEqual(rt, now.high, before.high)
	st, runs, err := b.rt.Status(b.t.Context(), name)
	require.NoError(rt, err)
	if in.Current == nil {
		require.Zero(rt, before.applied)
		require.False(rt, runs)
		require.Empty(rt, b.file(name))
		return now
	}
	now.current = in.Current.Version.Revision
	require.GreaterOrEqual(rt, now.current, before.current, "nothing older overwrites")
	require.GreaterOrEqual(rt, now.current, now.applied)
	require.LessOrEqual(rt, now.current, now.high)
	what := plan[now.current-1]
	require.NotEqual(rt, "bad", what, "what cannot start is never current")
	require.Equal(rt, what == "a" || what == "b", runs)
	if runs {
		require.Equal(rt, in.Current.Content.Hash, st.Labels.Hash)
	}
	require.Equal(rt, map[string]string{"a": "a", "b": "b", "off": "a"}[what], b.file(name))
	return now
}
