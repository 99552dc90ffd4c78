package replicas

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X3, X28: whatever sets come, in whatever order, nothing ends that was not named as one to end, and what
// is to run and not named is told.
func TestEndsByNameOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	runtime := (&bench{t: t, dir: dir}).runtime()
	rapid.Check(t, func(t *rapid.T) {
		k := New(options(dir, runtime))
		id := rapid.Custom(func(t *rapid.T) fleet.ReplicaID {
			return fleet.ReplicaID(fmt.Sprintf("%012x", rapid.IntRange(0, 5).Draw(t, "id")))
		})
		for i, who := range rapid.SliceOfNDistinct(id, 0, 5, rapid.ID).Draw(t, "there") {
			if i%3 == 2 {
				k.strangers[who] = stranger{lead: lead{Found: Found{ID: who, Running: true}}}
			} else {
				k.add(known{NodeReplica: line(who, "x"), Phase: fleet.PhaseRunning})
			}
		}
		ended := map[fleet.ReplicaID]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "sets") {
			named := map[fleet.ReplicaID]bool{}
			set := fleet.NodeReplicas{Era: 1}
			for _, who := range rapid.SliceOfNDistinct(id, 0, 5, rapid.ID).Draw(t, "named") {
				l := line(who, "x")
				if l.Run = rapid.Bool().Draw(t, "run"); !l.Run {
					l, ended[who] = fleet.NodeReplica{ID: who}, true
				}
				named[who] = true
				set.Replicas = append(set.Replicas, l)
			}
			changed, unlisted := k.changes(set)
			for _, r := range changed {
				require.True(t, r.Run || ended[r.ID], "%s ends, and nobody said so", r.ID)
				require.True(t, !r.Gone || ended[r.ID] && !named[r.ID], "%s is to leave no trace, and nobody said that it is to end", r.ID)
				if w, has := k.replicas[r.ID]; has {
					w.known = r
				} else {
					k.add(r)
					delete(k.strangers, r.ID)
				}
			}
			k.leave(unlisted)
			for who, w := range k.replicas {
				require.Equal(t, w.known.Run && !named[who], w.unlisted, "%s", who)
				require.True(t, !w.unlisted || k.feed.dirty[who], "%s is told", who)
			}
			for who, at := range k.strangers {
				require.True(t, at.unlisted && k.feed.dirty[who], "%s is told", who)
			}
		}
	})
}
