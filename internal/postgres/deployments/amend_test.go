package deployments_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// checked gives a spec a check, a stop time and restarts.
func checked(interval float64, stop, restarts int) func(*deployments.DeploymentPut) {
	return asking(func(s *fleet.DeploymentSpec) {
		s.Process.Health = &fleet.HealthCheck{Type: fleet.HealthTCP, Interval: interval, Timeout: interval / 2, UnhealthyThreshold: 3, HealthyThreshold: 2}
		s.Process.StopSeconds, s.Recovery.Restarts = stop, restarts
	})
}

func (b *bench) set(n fleet.NodeName) fleet.NodeReplicas {
	b.T.Helper()
	set, err := b.NodeReplicas(b.Ctx(), n)
	require.NoError(b.T, err)
	return set
}

// ran gives the revision of what a write compares with.
func (b *bench) ran() (stop int) {
	b.T.Helper()
	all, err := b.RunningSpecs(b.Ctx(), string(web), "another")
	require.NoError(b.T, err)
	require.Len(b.T, all, 1)
	var spec fleet.DeploymentSpec
	require.NoError(b.T, json.Unmarshal(all[string(web)].Spec, &spec))
	return spec.Process.StopSeconds
}

// F13, F14, F15, F30, F51: what running replicas can follow reaches them with their nodes' sets, without a new process
// version. The number of a set is what tells its node of a change.
func TestReleaseInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	var ran *fleet.RunningSpec
	compared := func(p *deployments.DeploymentPut) {
		p.Compare = func(runs *fleet.RunningSpec, released bool) ([]fleet.SpecChange, error) {
			ran = runs
			return []fleet.SpecChange{{Field: "/model", Path: fleet.PathInPlace}}, nil
		}
	}
	require.Len(t, b.putDeployment(checked(10, 10, 3), compared).Changes, 1)
	require.Nil(t, ran, "nothing ran before")
	b.settles()
	before, at := b.set(nodeA), b.seen()
	require.Len(t, before.Replicas, 1)
	require.Zero(t, before.Replicas[0].Terms, "its definition has them")

	require.NotNil(t, b.putDeployment(checked(4, 7, 9), compared).Operation)
	require.NotEmpty(t, ran.Body)
	after, seen := b.set(nodeA), b.seen()
	require.Equal(t, at.ProcessVersion, seen.ProcessVersion)
	require.Greater(t, after.Version, before.Version, "the node fetches it")
	want := before.Replicas[0]
	want.StopSeconds = 7
	want.Terms = fleet.ReplicaTerms{
		Recovery: after.Replicas[0].Terms.Recovery, CheckTerms: fleet.CheckTerms{Interval: 4, Timeout: 2, UnhealthyThreshold: 3, HealthyThreshold: 2},
	}
	require.Equal(t, want, after.Replicas[0], "all else is the same")
	require.Equal(t, 9, want.Terms.Recovery.Restarts)
	require.Equal(t, []time.Duration{7 * time.Second, 7 * time.Second}, []time.Duration{seen.Stop, seen.Replicas[0].Stop}, "the region waits as long")
	require.Equal(t, 7, b.ran())
	b.settles()
	require.Equal(t, []string{"converge succeeded", "converge succeeded"}, b.deploymentOperations())
	require.Equal(t, after.Replicas, b.set(nodeA).Replicas, "nothing was replaced")

	// Bounds are no news for a node.
	version := b.set(nodeA).Version
	b.putDeployment(checked(4, 7, 9), asking(func(s *fleet.DeploymentSpec) { s.Replicas.Max = 4 }))
	b.settles()
	require.Equal(t, version, b.set(nodeA).Version)

	// With something that needs a new process, all of it comes with the new replicas.
	b.putDeployment(checked(5, 8, 3), asking(func(s *fleet.DeploymentSpec) { s.Process.Env = map[string]string{"A": "1"} }))
	require.Equal(t, at.ProcessVersion+1, b.seen().Rollout.To.ProcessVersion)
	require.Equal(t, 7, b.ran(), "what runs is of before")
	b.settles()
	require.Equal(t, 8, b.ran())
	for _, r := range b.set(nodeA).Replicas {
		require.Equal(t, at.ProcessVersion+1, r.ProcessVersion)
		require.Equal(t, 8, r.StopSeconds)
		require.Zero(t, r.Terms)
	}
}

// F13, F31: a restart that is under way takes nothing from what is still to be replaced.
func TestReleaseInPlaceDuringRestart(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(checked(10, 10, 3))
	b.settles()
	_, err := b.turnDeployment(fleet.OperationRestart)
	require.NoError(t, err)
	version := b.seen().ProcessVersion
	for stop := 11; stop < 13; stop++ {
		b.putDeployment(checked(10, stop, 3))
		require.Equal(t, version, b.seen().ProcessVersion)
		for _, r := range b.seen().Replicas {
			require.Equal(t, time.Duration(stop)*time.Second, r.Stop)
		}
	}
	b.settles()
	require.Equal(t, 12, b.ran())
}

// F51: what a replica obeys is kept as long as it runs, and what ends keeps its stop time.
func TestReleaseInPlaceIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(checked(10, 10, 3))
	b.settles()
	b.Exec(`UPDATE replicas SET state = 'TERMINATING', stop_by = now() + interval '1 hour' WHERE node = $1`, nodeA)
	b.putDeployment(checked(4, 7, 9))
	require.Equal(t, []int32{10, 7}, stores.Scan[[]int32](b, `SELECT array_agg(stop_seconds ORDER BY node) FROM replicas WHERE ended_at IS NULL`))
	require.Equal(t, []int64{0, 2}, stores.Scan[[]int64](b, `SELECT array_agg(coalesce(terms_revision, 0) ORDER BY node) FROM replicas WHERE ended_at IS NULL`))
}

// F51, X27: the release that a replica obeys is kept as long as it runs, like the one that it was created by.
func TestObeyedReleaseIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t).deployable()
	b.putDeployment(checked(10, 10, 3))
	b.settles()
	b.putDeployment(checked(4, 7, 9))
	for i := range 14 { // none of these is rolled out
		b.putDeployment(asking(func(s *fleet.DeploymentSpec) { s.Resources.CPU = float64(i+1) / 100 }))
	}
	b.visits() // whose operations are superseded
	b.Exec(`UPDATE deployment_revisions SET created_at = created_at - interval '2 days'`)
	b.Collect(fleet.CollectDeployments)
	require.Equal(t, []int64{1, 2, 7}, stores.Scan[[]int64](b, `SELECT array_agg(revision ORDER BY revision) FROM (SELECT revision FROM deployment_revisions ORDER BY revision LIMIT 3) r`))
	require.Equal(t, 7, b.ran())
	require.Equal(t, 9, b.set(nodeA).Replicas[0].Terms.Recovery.Restarts)
}
