package deployments_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/bounds"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// F31, F53, F54, F61, F62, F64, F71, F72, S32, S98, S123, S125, X1, X2, X4, X6, X13: on the real store, whatever people, nodes and programs
// do, also while the region is away and two servers look at once: never fewer are routable than the target less what may be missing,
// never more are created than the target and the surge, what failed is not created again, and every rollout ends in time.
// In the end what is declared runs as often as wanted, and nothing else does.
func TestRolloutRuns(t *testing.T) {
	t.Parallel()
	b := setup(t).ageable()
	rapid.Check(t, func(t *rapid.T) {
		h := b.begins(t)
		h.settle()
		h.release(true)
		for range rapid.IntRange(4, 14).Draw(t, "disturbances") {
			h.disturb()
			h.visits()
		}
		for _, m := range h.nodes {
			h.back(m)
		}
		h.sick = false
		h.verb(fleet.RolloutPromote)
		h.settle()
		h.rests()
	})
}

// settle lets time pass and nodes work until nothing is left to do, or there is no place.
func (h *history) settle() {
	waits := 0
	for range runBudget {
		h.visits()
		seen := h.seen()
		if h.last.Done && (h.last.Next.IsZero() || seen.Crashes == 0) {
			return
		}
		if h.noPlace() && seen.Rollout == nil {
			if waits++; waits > 10 {
				return
			}
		}
		by := time.Second
		if !h.work() {
			by = max(by, h.last.Next.Sub(h.last.At))
		}
		if h.noPlace() {
			by = max(by, 5*time.Minute)
		}
		h.age(by)
	}
	require.Fail(h.t, "it does not rest", "%s: %s", h.last.Rule, h.told(h.seen(), h.seen()))
}

// noPlace says that the deployment waits for a node, which nobody here will bring.
func (h *history) noPlace() bool {
	return slices.Contains([]string{decide.NoRoom, decide.NoNode, decide.PortsTaken}, h.last.Rule)
}

// rests checks what is left once nothing happens any more.
func (h *history) rests() {
	t, seen := h.t, h.seen()
	require.Zero(t, stores.Scan[int](h, `SELECT count(*) FROM operations WHERE subject = 'deployment.web' AND state = 'running'`), "every operation ends: %s", h.told(seen, seen))
	require.Zero(t, stores.Scan[int](h, `SELECT count(*) FROM rollouts WHERE ended_at IS NULL`), "every rollout ends")
	require.True(t, stores.Scan[bool](h, `SELECT d.last_version >= greatest(d.process_version, d.from_version, coalesce((SELECT max(r.process_version) FROM replicas r), 0),
		coalesce((SELECT max(o.process_version) FROM rollouts o), 0), coalesce((SELECT max(v.process_version) FROM deployment_revisions v), 0)) FROM deployments d`), "versions are given once")
	require.Zero(t, stores.Scan[int](h, `SELECT count(*) FROM replicas r JOIN rollouts o ON o.process_version = r.process_version
		WHERE o.state IN ('FAILED', 'CANCELED') AND r.created_at > o.ended_at`), "what failed is not created again")
	require.Zero(t, stores.Scan[int](h, `SELECT count(*) FROM operations x JOIN rollouts o ON o.process_version = x.process_version
		WHERE o.state IN ('FAILED', 'CANCELED') AND x.kind = 'converge' AND x.state = 'succeeded'`), "its operation ends as the rollout does")
	require.Zero(t, stores.Scan[int](h, `SELECT count(*) FROM replicas r WHERE r.ended_at IS NULL AND r.created_at < (
		SELECT max(o.created_at) FROM operations o WHERE o.subject = 'deployment.web' AND o.kind = 'restart' AND o.state = 'succeeded')`), "a restart renews all: %s", h.told(seen, seen))
	switch n := bounds.Of(seen); {
	case h.deleted:
		require.Equal(t, fleet.DeploymentTerminated, seen.State)
		require.Empty(t, seen.Replicas)
	case seen.Revision == 0: // it was only written
		require.Empty(t, seen.Replicas)
	case seen.Stopped:
		require.Equal(t, fleet.DeploymentPending, seen.State)
		require.Empty(t, seen.Replicas)
	case seen.State == fleet.DeploymentError:
		require.Equal(t, "given_up", seen.Reason)
		require.NotEmpty(t, seen.Message, "ERROR says why")
	case h.noPlace():
		require.NotEmpty(t, seen.Message, "what is missing")
		require.LessOrEqual(t, n.Live, seen.Target)
	default:
		require.Equal(t, fleet.DeploymentRunning, seen.State)
		require.Equal(t, bounds.Serving{Live: seen.Target, Healthy: seen.Target, Routable: n.Routable}, n, h.told(seen, seen))
		for _, r := range seen.Replicas {
			require.Equal(t, seen.ProcessVersion, r.ProcessVersion, "%s is to be replaced", r.ID)
			require.False(t, bounds.Misplaced(seen, r), "%s is on %s", r.ID, r.Node)
		}
	}
	h.work()
	h.work() // what was to end has left the sets
	h.listed(seen)
}

// listed: nodes are told to run exactly what lives there, run that, and nothing is left for the sweep.
func (h *history) listed(seen fleet.DeploymentSeen) {
	for _, m := range h.nodes {
		live := []fleet.ReplicaID{}
		for _, r := range seen.Replicas {
			if r.Node == m.name && r.State.Live() {
				live = append(live, r.ID)
			}
		}
		listed := []fleet.ReplicaID{}
		for _, x := range h.set(m.name).Replicas {
			if x.Run {
				listed = append(listed, x.ID)
			}
		}
		require.ElementsMatch(h.t, live, listed, "the set of %s", m.name)
		if !m.gone {
			require.ElementsMatch(h.t, live, slices.Collect(maps.Keys(m.runs)), "what runs on %s", m.name)
			require.Len(h.t, h.set(m.name).Replicas, len(live), "nothing is left to end on %s", m.name)
		}
	}
	if h.noPlace() {
		return
	}
	due, err := h.DeploymentsDue(h.Ctx(), deployments.DeploymentShard{Shards: 1}, "", 10)
	require.NoError(h.t, err)
	require.Empty(h.t, due, "the sweep would find it: %s", h.told(seen, seen))
}
