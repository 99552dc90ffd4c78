package fleet_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X1, N85: the era decides before the number does, of revisions and of set versions.
func TestVersionsCompare(t *testing.T) {
	t.Parallel()
	ordered := [][2]int64{{1, 1}, {1, 2}, {2, 0}, {2, 1}, {3, 1}}
	for i, a := range ordered {
		for j, b := range ordered {
			require.Equal(t, i > j, fleet.Version{Era: a[0], Revision: a[1]}.Newer(fleet.Version{Era: b[0], Revision: b[1]}), "%v %v", a, b)
			require.Equal(t, i > j, fleet.SetVersion{Era: a[0], Number: a[1]}.Newer(fleet.SetVersion{Era: b[0], Number: b[1]}), "%v %v", a, b)
		}
		v := fleet.SetVersion{Era: a[0], Number: a[1]}
		again, err := fleet.ParseSetVersion(v.String())
		require.NoError(t, err)
		require.Equal(t, v, again)
	}
	require.True(t, fleet.Version{}.IsZero())
	require.False(t, fleet.Version{Revision: 1}.IsZero())
	for _, bad := range []string{"", "1", "1.", "0.1", "1.-1", "01.1", "1.1x", "x"} {
		_, err := fleet.ParseSetVersion(bad)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), bad)
	}
}

// N85, N93: an equal content under another number changes nothing on a node.
func TestSameRevision(t *testing.T) {
	t.Parallel()
	r := fleet.Revision{Version: fleet.Version{Era: 1, Revision: 1}, Action: fleet.ActionDeploy, Content: fleet.Content{Hash: "h"}, RunHash: "r", Enabled: true}
	number, enable, body, run, state, gone := r, r, r, r, r, r
	number.Version = fleet.Version{Era: 2, Revision: 9}
	enable.Action = fleet.ActionEnable
	body.Content.Hash = "other"
	run.RunHash = "other"
	state.Enabled = false
	gone.Action = fleet.ActionDelete
	for _, same := range []fleet.Revision{r, number, enable} {
		require.True(t, r.Same(same), "%+v", same)
	}
	for _, other := range []fleet.Revision{body, run, state, gone} {
		require.False(t, r.Same(other), "%+v", other)
		require.True(t, other.Same(other), "%+v", other)
	}
}

// N33, X3
func TestReconcileReport(t *testing.T) {
	t.Parallel()
	require.True(t, fleet.ReconcileReport{Dropped: 1, Fetched: 1}.Clean())
	for _, r := range []fleet.ReconcileReport{{Refused: "x"}, {Failed: 1}, {Left: 1}, {Ahead: 1}, {Waiting: 1}} {
		require.False(t, r.Clean(), "%+v", r)
	}
	var r fleet.ReconcileReport
	for range fleet.MaxDiffers + 1 {
		r.Differ("press", "absent")
	}
	require.Len(t, r.Differs, fleet.MaxDiffers)
	require.Equal(t, fleet.Differs{Instance: "press", Why: "absent"}, r.Differs[99])
}

// C25, C68: which modules, and whom they can be asked of.
func TestModules(t *testing.T) {
	t.Parallel()
	got, err := fleet.ParseModule("/module", "acme.vision.Detect")
	require.NoError(t, err)
	require.Equal(t, fleet.ModuleRef{Namespace: "acme.vision", Name: "Detect"}, got)
	require.Equal(t, "acme.vision.Detect", got.String())
	for _, bad := range []string{"", "Detect", ".Detect", "acme.", "Acme.Detect", "acme.1st"} {
		_, err := fleet.ParseModule("/module", bad)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), bad)
	}
	member := fleet.ModuleMember{State: fleet.ConnectionActive, Executor: "10.0.0.7:9091"}
	require.True(t, member.Callable())
	for _, spoil := range []func(*fleet.ModuleMember){
		func(m *fleet.ModuleMember) { m.State = fleet.ConnectionDraining },
		func(m *fleet.ModuleMember) { m.Drains = true },
		func(m *fleet.ModuleMember) { m.Cordoned = true },
		func(m *fleet.ModuleMember) { m.Executor = "" },
	} {
		m := member
		spoil(&m)
		require.False(t, m.Callable(), "%+v", m)
	}
	require.Equal(t, 10*time.Minute, fleet.ExecutionLimit(0))
	require.Equal(t, 90*time.Second, fleet.ExecutionLimit(90))
}

// X21: a site's votes are those of its pair.
func TestSiteNodes(t *testing.T) {
	t.Parallel()
	site := fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: "w", Role: fleet.RoleWorker}, {Name: "b", Role: fleet.RoleStandby}, {Name: "a", Role: fleet.RoleActive}}}
	require.NoError(t, site.Validate())
	require.Equal(t, fleet.NodeName("a"), site.Active())
	require.True(t, site.HasStandby())
	for node, votes := range map[fleet.NodeName]bool{"a": true, "b": true, "w": false, "stranger": false} {
		require.Equal(t, votes, site.Votes(node), node)
	}
	alone := fleet.SiteSpec{Nodes: site.Nodes[:1]}
	require.False(t, alone.HasStandby())
	require.Empty(t, alone.Active())
	d := &fleet.DeliverySeen{Targets: []fleet.TargetSeen{{Node: "b", Role: fleet.RoleStandby}, {Node: "a", Role: fleet.RoleActive}}}
	require.Equal(t, fleet.NodeName("a"), d.Active().Node)
}

// X6, X8, X23: words that others compare with, each for what it says.
func TestWords(t *testing.T) {
	t.Parallel()
	for want, step := range map[string]fleet.Step{
		"claim": {Claim: &fleet.Claim{}}, "prepare": {Prepare: &fleet.Prepare{}}, "record": {Record: &fleet.Record{}},
		"miss": {Miss: &fleet.Miss{}}, "settle": {Settle: &fleet.Settle{}}, "end": {End: &fleet.End{}}, "observe": {},
	} {
		require.Equal(t, want, step.Name())
	}
	for _, p := range fleet.ReplicaPhases() {
		require.Equal(t, slices.Contains([]fleet.ReplicaPhase{fleet.PhaseExited, fleet.PhaseFailed, fleet.PhaseStopped}, p), p.Over(), p)
	}
	for _, s := range fleet.FleetStates() {
		require.Equal(t, s == fleet.FleetRunning || s == fleet.FleetPaused, s.Live(), s)
	}
	require.Equal(t, "site/a", fleet.ObjectKey{Kind: fleet.KindSite, Name: "a"}.String())
	require.Equal(t, "instance/a/b", fleet.InstanceKey("a", "b").String())
	require.False(t, fleet.OperationRunning.Ended())
	require.True(t, fleet.OperationFailed.Ended())
	require.Equal(t, "it did not finish in time: m", fleet.LateDeployment("m", ""))
	require.Equal(t, "it did not finish in time: m; waiting for: a", fleet.LateDeployment("m", "a"))
	require.True(t, fleet.Process{Driver: fleet.DriverDocker}.InContainer())
	require.True(t, fleet.Process{Image: "i"}.InContainer())
	require.False(t, fleet.Process{}.InContainer())
	require.False(t, fleet.Process{Driver: fleet.DriverProcess, Image: "i"}.InContainer())
	require.True(t, fleet.ProjectName("a").Uses("a"))
	require.True(t, fleet.ProjectName("a").Uses(fleet.DefaultProject))
	require.False(t, fleet.ProjectName("a").Uses("b"))
	require.Equal(t, []fleet.Hash{"h"}, fleet.DeploymentSpec{Process: fleet.Process{
		Files: []fleet.ProcessFile{{Path: "inline"}, {Path: "stored", Body: &fleet.Content{Hash: "h"}}},
	}}.Bodies())
}

// S108: a placement names its sites, then its pools, and stops at the first that is refused.
func TestPlacementEach(t *testing.T) {
	t.Parallel()
	p := fleet.PlacementSpec{Sites: []fleet.SiteName{"s1", "s2"}, Pools: []fleet.PoolName{"p1", "p2"}}
	var walked []string
	all := func(stop string) error {
		walked = nil
		return p.Each(func(key fleet.ObjectKey, field string) error {
			walked = append(walked, key.Name+" "+field)
			if key.Name == stop {
				return errors.New(stop)
			}
			return nil
		})
	}
	require.NoError(t, all(""))
	require.Equal(t, []string{"s1 /placement/sites/0", "s2 /placement/sites/1", "p1 /placement/pools/0", "p2 /placement/pools/1"}, walked)
	for i, stop := range []string{"s1", "s2", "p1", "p2"} {
		require.EqualError(t, all(stop), stop)
		require.Len(t, walked, i+1)
	}
}
