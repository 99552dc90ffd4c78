package decide_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// F53, F72, F77: what is not ready is not replaced, and nothing ends in its favour.
func TestUnreadyReplicas(t *testing.T) {
	t.Parallel()
	newer := func(s *fleet.DeploymentSeen) { s.Revision, s.ProcessVersion, s.Began, s.BeganVersion = 2, 2, 2, 2 }
	isNew := version(2)
	for name, c := range map[string]struct {
		seen      fleet.DeploymentSeen
		rule      string
		create    int
		terminate string
		message   string
		awaited   string
		done      bool
	}{
		"it stays": {deployment(has(replica(1, unready), replica(2))), "converged", 0, "", "2 of 2 replicas are healthy, 1 not ready", "", true},
		"all stay": {deployment(has(replica(1, unready), replica(2, unready))), "converged", 0, "", "2 of 2 replicas are healthy, 2 not ready", "", true},
		"it ends first where there are too many": {
			deployment(target(2, 1), has(replica(1), replica(2), replica(3, unready))), "too_many", 0, "3", "3 of 2 replicas are healthy, 1 not ready", "the end of 1 replicas", false,
		},
		"an old one waits until the new one is ready": {
			deployment(newer, target(1, 1), has(replica(1), replica(2, isNew, unready))), "replacing", 0, "", "2 of 1 replicas are healthy, 1 of them to be replaced, 1 not ready", "1 replicas to be ready", false,
		},
		"and ends then": {
			deployment(newer, target(1, 1), has(replica(1), replica(2, isNew))), "replacing", 0, "1", "2 of 1 replicas are healthy, 1 of them to be replaced", "the end of 1 replicas", false,
		},
		"old ones that are not ready end first": {
			deployment(newer, target(2, 1), has(replica(1), replica(2, unready), replica(3, isNew))), "replacing", 1, "2", "3 of 2 replicas are healthy, 2 of them to be replaced, 1 not ready", "1 starting replicas, the end of 1 replicas", false,
		},
		"what is on a lost node waits too": {
			deployment(target(1, 1), has(replica(1, unheard(time.Minute)), replica(2, unready))), "replacing", 0, "", "1 of 1 replicas are healthy, 1 not ready, 1 on nodes that are not connected", "1 replicas to be ready, the nodes of 1 replicas to reconnect", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, []any{c.rule, c.create, c.terminate}, []any{p.Rule, p.Create, ids(p.Terminate)})
			require.Equal(t, []any{c.message, c.awaited, c.done}, []any{p.Message, p.Awaited, p.Done})
			require.Equal(t, fleet.ConditionTrue, p.Conditions[0].Status, "it is available by what is healthy")
		})
	}
}

// F53, F64, F71, F72: in a rollout only routable replicas count, new ones for min_healthy_time since they are, and stable ones.
func TestRolloutCountsRoutable(t *testing.T) {
	t.Parallel()
	readySince := func(ago time.Duration) change {
		return func(r *fleet.ReplicaSeen) { r.ReadySince = noon.Add(-ago) }
	}
	late := func(s *fleet.DeploymentSeen) { s.Rollout.ProgressAt = noon.Add(-time.Hour) }
	back := func(s *fleet.DeploymentSeen) {
		s.Rollout.State, s.Rollout.Reason = fleet.RolloutCanceling, decide.ReasonProgressDeadline
	}
	minute := strategy(fleet.Strategy{MinHealthyTime: new(60.0)})
	for name, c := range map[string]struct {
		seen   fleet.DeploymentSeen
		rule   string
		create int // of the new revision
		stable int // created
		ends   string
	}{
		"new ones that are not ready prove nothing": {rolling(run(4, 1), run(2, 2, unready)), "rolling_out", 0, 0, ""},
		"one of them is":                              {rolling(run(4, 1), run(1, 2), run(1, 2, unready)), "rolling_out", 0, 0, "1"},
		"ready for less than min_healthy_time":        {rolling(run(4, 1), run(2, 2, readySince(time.Second)), minute), "rolling_out", 0, 0, ""},
		"ready for as long":                           {rolling(run(4, 1), run(2, 2, readySince(time.Minute)), minute), "rolling_out", 0, 0, "12"},
		"they are on their way":                       {rolling(run(4, 1), run(1, 2, unready), strategy(fleet.Strategy{MaxInFlight: 1})), "rolling_out", 0, 0, ""},
		"a stable one that is not ready ends first":   {rolling(run(2, 1), run(1, 1, unready), run(1, 1), run(1, 2)), "rolling_out", 1, 0, "3"},
		"nor is it created again":                     {rolling(run(3, 1), run(1, 1, unready), run(2, 2, unready)), "rolling_out", 0, 0, ""},
		"it is not deployed before all are":           {rolling(run(3, 2), run(1, 2, unready)), "rolling_out", 0, 1, ""},
		"never ready, it returns":                     {rolling(run(4, 1), run(2, 2, unready), late), decide.ReasonProgressDeadline, 0, 0, "56"},
		"it returns to what is ready":                 {rolling(run(2, 1), run(2, 1, unready), back), "returning", 0, 0, ""},
		"what serves stays until the stable one does": {rolling(run(2, 1), run(2, 1, unready), run(2, 2), back), "returning", 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := decide.Deployment(c.seen)
			require.Equal(t, c.rule, p.Rule, p.Message)
			require.Equal(t, []any{c.create, c.stable, c.ends}, []any{p.Rollout.Create, p.Create, ids(p.Terminate)}, "%+v", p.Rollout)
		})
	}
	p := decide.Deployment(rolling(run(4, 1), run(2, 2, unready), late))
	require.Contains(t, p.Message, "progress_deadline; 2 replicas are healthy and not ready")
	p = decide.Deployment(rolling(run(4, 1), run(2, 2, readySince(time.Second)), minute))
	require.Equal(t, noon.Add(59*time.Second), p.Next, "it looks again once they are proven")
}
