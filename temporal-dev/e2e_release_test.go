//go:build slow

package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
)

// releases counts how often a site's lease was given back, as the region heard it.
func (s *stack) releases(t *testing.T, site string) int64 {
	t.Helper()
	n, err := s.count(t.Context(), `SELECT count(*) FROM events WHERE kind = 'site' AND name = $1 AND (after ->> 'released')::boolean`, site)
	require.NoError(t, err)
	return n
}

// N60, X4, X21
func TestE2ELease(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2)
	t.Run("a node that is stopped gives its lease back, and the other one takes it", func(t *testing.T) {
		const site, old, next = "plant-2", "plant-2-a", "plant-2-b"
		s.watchOrder(t, pair(site)...)
		st := newStory(t, s, site, "handed")
		hash := st.witness.starts(t)[0].hash
		before := s.releases(t, site)
		s.order(t, "stop", old)
		st.witness.runs(t, hash)
		require.Greater(t, s.releases(t, site), before)
		eventually(t, "the region hears where it runs", func() bool { return onNode(t, s.status(t, st.key), next).Running })
		s.order(t, "start", old)
		s.whole(t, st.key)
		st.witness.alone(t)
	})
	t.Run("a new active never starts what was deleted or disabled while it was away", func(t *testing.T) {
		const site, old, next = "plant-1", "plant-1-a", "plant-1-b"
		s.watchOrder(t, pair(site)...)
		kept, gone, off := newStory(t, s, site, "kept"), newStory(t, s, site, "gone"), newStory(t, s, site, "off")
		hash := kept.witness.starts(t)[0].hash
		s.order(t, "stop", next)
		gone.delete(t)
		ended := s.ended(t, off.change(t, "disable", func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
			return s.api.Disable(ctx, off.key, api.ActionRequest{}, m)
		}).ID)
		t.Logf("ended as %s %s", ended.State, ended.Reason)
		s.order(t, "stop", old)
		s.order(t, "stop", temporalName) // nobody delivers: the node has only what it asks for
		before := len(kept.witness.starts(t))
		s.order(t, "start", next)
		waitFor(t, "the new active runs what it should", func(context.Context) error {
			if len(kept.witness.starts(t)) == before {
				return errNotYet
			}
			return nil
		})
		kept.witness.runs(t, hash)
		for _, st := range []*story{gone, off} {
			require.Len(t, st.witness.starts(t), 1, "%s was started", st.key)
		}
		s.order(t, "start", temporalName)
		s.order(t, "start", old)
		s.whole(t, kept.key)
		for _, st := range []*story{gone, off} {
			require.Len(t, st.witness.starts(t), 1, "%s was started", st.key)
		}
	})
}
