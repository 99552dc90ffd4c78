//go:build slow

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// X3, X28: replicas that were begun after the backup run on when the region is restored, are listed, and
// end when an operator says so; those that the region knows are taken up as they are.
func TestE2ERestoredReplicas(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	kept, late := newService(t, s, "kept", 2), newService(t, s, "late", 1)
	known := pidsByID(kept.deploy(t))
	restore := s.backup(t)
	requireSucceeded(t, kept.ended(t, kept.scale(t, 3).ID))
	all := pidsByID(kept.healthy(t, 3))
	unknown := pidsByID(late.deploy(t))
	for id, pid := range all {
		if _, is := known[id]; !is {
			unknown[id] = pid
		}
	}
	require.Len(t, unknown, 2)

	restore()
	s.orphansAre(t, unknown)
	_, err := postgres.RaiseEra(t.Context(), s.database, "local")
	require.NoError(t, err)
	left, err := s.api.Explain(t.Context(), kept.name)
	require.NoError(t, err)
	require.Len(t, left.Uncounted, 1)
	require.Equal(t, fleet.OrphanNeverKnown, left.Uncounted[0].Reason)
	requireSucceeded(t, kept.ended(t, kept.scale(t, 1).ID)) // which nodes carry out: they have taken a set of the new era
	one := pidsByID(kept.healthy(t, 1))
	requireSucceeded(t, kept.ended(t, kept.scale(t, 2).ID))
	two := pidsByID(kept.healthy(t, 2))
	for id, pid := range one {
		require.Equal(t, []int{known[id], two[id]}, []int{pid, pid}, "the same process")
	}
	s.orphansAre(t, unknown)
	again := late.deploy(t)
	require.NotContains(t, unknown, again[0].ID)
	s.orphansAre(t, unknown)

	for _, node := range pair("plant-1") {
		list, err := s.api.Orphans(t.Context(), node, api.Page{})
		require.NoError(t, err)
		if len(list.Items) > 0 {
			_, err = s.api.ApproveOrphans(t.Context(), node, api.OrphanApproval{All: true}, api.Mutation{})
			require.NoError(t, err)
		}
	}
	s.orphansAre(t, nil)
	for id, pid := range unknown {
		waitFor(t, "the replica that was let go has ended: "+string(id), func(context.Context) error { return unless(!alive(pid)) })
	}
	require.Equal(t, two, pidsByID(kept.healthy(t, 2)))
	kept.destroy(t)
	late.destroy(t)
}

// orphansAre waits until just these replicas wait for an operator, and they run.
func (s *stack) orphansAre(t *testing.T, want map[fleet.ReplicaID]int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("just %v wait for an operator", slices.Sorted(maps.Keys(want))), func(ctx context.Context) error {
		got := map[fleet.ReplicaID]int{}
		for _, node := range pair("plant-1") {
			list, err := s.api.Orphans(ctx, node, api.Page{})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if o.Deployment == "" {
					return fmt.Errorf("%w: nobody knows what %s is", errNotYet, o.Replica)
				}
				got[fleet.ReplicaID(o.Replica)] = want[fleet.ReplicaID(o.Replica)]
			}
		}
		if !maps.Equal(want, got) {
			return fmt.Errorf("%w: %v", errNotYet, got)
		}
		return nil
	})
	for id, pid := range want {
		require.True(t, alive(pid), "%s runs on", id)
	}
}
