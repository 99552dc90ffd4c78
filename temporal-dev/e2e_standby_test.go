//go:build slow

package main

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// slack is what an end may come later than its deadline on a busy machine.
const slack = 15 * time.Second

// whole waits until the region says that all nodes hold an instance.
func (s *stack) whole(t *testing.T, key fleet.ObjectKey) {
	t.Helper()
	waitFor(t, key.String()+" is replicated", func(context.Context) error {
		if status := s.status(t, key); status.Replicated != "2/2" || status.Phase != "Deployed" {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// N9, N47, N59, N63, N89, N93, N101, N102, X4
func (s *stack) standbyAway(t *testing.T) {
	together(t, []part{
		{"a stopped standby is owed what it missed, and gets it when it starts", func(t *testing.T) {
			const site = "plant-4"
			s.watchOrder(t, pair(site)...)
			sync := newStory(t, s, site, "sync")
			async := newStory(t, s, site, "async")
			away := s.standby(t, site)
			s.order(t, "stop", away)
			op, syncHash := sync.release(t)
			ended := s.ended(t, op.ID)
			require.Equal(t, fleet.OperationFailed, ended.State, "%+v", ended)
			require.Equal(t, "not_replicated", ended.Reason)
			late, err := s.count(t.Context(), `SELECT count(*) FROM operations o JOIN deliveries d ON d.id = o.delivery_id
				WHERE o.id = $1 AND o.ended_at > d.created_at + $2`, op.ID, e2eTiming().Delivery.Request+slack)
			require.NoError(t, err)
			require.Zero(t, late, "%+v", ended)
			status := s.status(t, sync.key)
			require.Equal(t, "1/2", status.Replicated)
			require.EqualValues(t, 2, status.Revision, "deployed means that the active applied it")
			require.EqualValues(t, 2, onNode(t, status, away).Owed)
			require.EqualValues(t, 1, onNode(t, status, away).Revision)
			node, err := s.api.Node(t.Context(), away)
			require.NoError(t, err)
			require.EqualValues(t, 1, node.Owed)

			asyncHash := async.releaseAsync(t)
			require.Equal(t, "1/2", s.status(t, async.key).Replicated)
			pids := []int{sync.witness.runs(t, syncHash), async.witness.runs(t, asyncHash)}
			s.settledBut(t, site)
			deliveries, err := s.count(t.Context(), `SELECT count(*) FROM deliveries WHERE site = $1`, site)
			require.NoError(t, err)

			s.order(t, "start", away)
			sync.good(t, syncHash)
			async.good(t, asyncHash)
			s.whole(t, sync.key)
			s.whole(t, async.key)
			require.Equal(t, pids, []int{sync.witness.runs(t, syncHash), async.witness.runs(t, asyncHash)}, "nothing was restarted for it")
			again, err := s.count(t.Context(), `SELECT count(*) FROM deliveries WHERE site = $1`, site)
			require.NoError(t, err)
			require.Equal(t, deliveries, again, "nobody delivered again")
		}},
		{"a node that was cut off and never restarted catches up by itself", func(t *testing.T) {
			const site = "plant-5"
			t.Run("the standby", func(t *testing.T) { s.cutOff(t, site, s.standby(t, site)) })
			t.Run("the active", func(t *testing.T) { s.cutOff(t, site, s.holder(t, site)) })
		}},
	})
}

// cutOff pauses a node for longer than a delivery waits for it.
func (s *stack) cutOff(t *testing.T, site, node string) {
	t.Helper()
	st := newStory(t, s, site, "on-"+node)
	pid := s.pid(t, node)
	s.signal(t, node, syscall.SIGSTOP)
	op, hash := st.release(t)
	ended := s.ended(t, op.ID)
	t.Logf("ended as %s %s", ended.State, ended.Reason)
	require.Contains(t, []fleet.OperationState{fleet.OperationFailed, fleet.OperationUnknown}, ended.State, "%+v", ended)
	s.signal(t, node, syscall.SIGCONT)
	st.good(t, hash)
	s.whole(t, st.key)
	require.Equal(t, pid, s.pid(t, node))
}

// releaseAsync releases a revision that succeeds with the active, and gives its hash.
func (st *story) releaseAsync(t *testing.T) string {
	t.Helper()
	st.number++
	config := fmt.Appendf(nil, `{"instance":%q,"number":%d}`, st.key.Name, st.number)
	op := st.put(t, st.key, api.InstancePut{
		Config: config, Run: st.witness.run(0), Durability: fleet.DurabilityAsync,
	})
	requireSucceeded(t, st.ended(t, op.ID))
	return hashOf(config)
}

// settledBut waits until no delivery of a site is open: what is owed may stay.
func (s *stack) settledBut(t *testing.T, site string) {
	t.Helper()
	waitFor(t, "no open delivery", func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM deliveries WHERE site = $1 AND state = 'open'`, site)
		if err == nil && n > 0 {
			err = errNotYet
		}
		return err
	})
}
