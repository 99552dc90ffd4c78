//go:build slow

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const fetchSize = 64 << 20 // long enough to be met on its way

// fetching waits until a node is in the middle of a body, and says how much it has.
func (s *stack) fetching(t *testing.T, node string, hash fleet.Hash) int64 {
	t.Helper()
	var received int64
	waitFor(t, node+" fetches", func(ctx context.Context) (err error) {
		received, err = s.received(ctx, node, hash)
		if err == nil && received == 0 {
			err = errNotYet
		}
		return err
	})
	require.Less(t, received, int64(fetchSize), "the test came too late")
	return received
}

func (s *stack) received(ctx context.Context, node string, hash fleet.Hash) (n int64, err error) {
	db, err := s.stores.of(node)
	if err != nil {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(received), 0) FROM contents WHERE hash = ?`, string(hash)).Scan(&n)
	return n, err
}

// offer uploads an artifact and releases it; no byte of it has reached a node then.
func (st *story) offer(t *testing.T, seed byte) (api.Operation, fleet.Hash) {
	t.Helper()
	file, hash := artifactFile(t, fetchSize, seed)
	_, err := st.api.UploadArtifact(t.Context(), api.Upload{Body: file, Size: fetchSize})
	require.NoError(t, err)
	return st.put(t, st.key, api.InstancePut{Artifact: hash}), hash
}

// N28, N53, N61, N62, N65, N90, N96, X7
func TestE2EFetch(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	const site = "plant-1"
	s.watchOrder(t, pair(site)...)
	st := newStory(t, s, site, "large")
	for i, name := range []string{serverName, postgresName, "the active"} {
		t.Run("goes on where it was when "+name+" is killed in the middle", func(t *testing.T) {
			active := s.holder(t, site)
			if i == 2 {
				name = active
			}
			letGo := s.hold(t, active, "during_fetch")
			op, hash := st.offer(t, byte(i))
			before := s.fetching(t, active, hash)
			s.killThen(t, name, letGo)
			requireSucceeded(t, s.ended(t, op.ID))
			s.held(t, st.key, string(hash))
			got, err := s.count(t.Context(), `SELECT fetched FROM delivery_nodes d JOIN operations o USING (delivery_id)
				WHERE o.id = $1 AND d.node = $2`, op.ID, active)
			require.NoError(t, err)
			require.LessOrEqual(t, got, int64(fetchSize)+1<<20, "at most 1 MiB is fetched twice, %d were there", before)
		})
	}
	t.Run("is cut short by a newer revision", func(t *testing.T) {
		active := s.holder(t, site)
		letGo := s.hold(t, active, "during_fetch")
		first, hash := st.offer(t, 10)
		s.fetching(t, active, hash)
		second, newest := st.release(t)
		letGo()
		requireSucceeded(t, s.ended(t, second.ID))
		require.Equal(t, fleet.OperationSuperseded, s.ended(t, first.ID).State)
		st.good(t, newest)
		received, err := s.received(t.Context(), active, hash)
		require.NoError(t, err)
		require.Less(t, received, int64(fetchSize), "the older one was fetched to its end")
	})
	t.Run("is cut short on request, and what was deployed stays", func(t *testing.T) {
		active := s.holder(t, site)
		held, err := s.stores.current(t.Context(), active, st.key.Name)
		require.NoError(t, err)
		letGo := s.hold(t, active, "during_fetch")
		op, hash := st.offer(t, 11)
		s.fetching(t, active, hash)
		require.NoError(t, insist(t, "cancel", func(ctx context.Context) error {
			_, err := s.api.CancelOperation(ctx, op.ID, api.Mutation{})
			return err
		}))
		letGo()
		require.Equal(t, fleet.OperationCancelled, s.ended(t, op.ID).State)
		s.settled(t)
		for _, node := range pair(site) {
			after, err := s.stores.current(t.Context(), node, st.key.Name)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(held.Version, held.hash), fmt.Sprint(after.Version, after.hash), node)
		}
		st.witness.runs(t, held.hash)
		again, newest := st.release(t)
		requireSucceeded(t, s.ended(t, again.ID))
		st.good(t, newest)
	})
	s.asleep(t)
	requireSmall(t, s.histories(t))
}
