package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

const orphansB = "/api/v1/nodes/plant-1-b/orphans"

func extra(name string, revision int64) fleet.Extra {
	return fleet.Extra{
		Instance: fleet.InstanceName(name), Version: fleet.Version{Era: 1, Revision: revision}, Hash: fleet.Hash(strings.Repeat("ab", 32)),
	}
}

// orphaned is a region whose standby holds three names that it never knew.
func orphaned(t *testing.T) (*region, reconcile.Pass) {
	t.Helper()
	r := compared(t)
	pass, _ := r.begin(1, "start")
	answer, err := r.store.ConfirmAbsent(t.Context(), pass, []fleet.Extra{extra("ghost-1", 4), extra("ghost-2", 5), extra("ghost-3", 6)})
	require.NoError(t, err)
	require.Len(t, answer.Wait, 3)
	return r, pass
}

// dropped says what a comparison may drop now.
func (r *region) dropped(pass reconcile.Pass, extras ...fleet.Extra) []string {
	r.t.Helper()
	answer, err := r.store.ConfirmAbsent(r.t.Context(), pass, extras)
	require.NoError(r.t, err)
	names := []string{}
	for _, d := range answer.Drop {
		names = append(names, string(d.Instance))
	}
	return names
}

func (r *region) approvedNames() []string {
	r.t.Helper()
	names := []string{}
	for _, o := range into[api.List[api.Orphan]](r.t, r.get(orphansB)).Items {
		if o.ApprovedAt != nil {
			names = append(names, o.Instance+" by "+o.ApprovedBy[:len("admin")])
		}
	}
	return names
}

// N86, X3
func TestOrphans(t *testing.T) {
	t.Parallel()

	t.Run("are listed page by page, and counted", func(t *testing.T) {
		t.Parallel()
		r, _ := orphaned(t)
		first := into[api.List[api.Orphan]](t, r.get(orphansB+"?limit=2"))
		require.Len(t, first.Items, 2)
		rest := into[api.List[api.Orphan]](t, r.get(orphansB+"?limit=2&cursor="+first.Next))
		require.Len(t, rest.Items, 1)
		require.Empty(t, rest.Next)
		o := rest.Items[0]
		require.Equal(t, []any{"ghost-3", int64(6), int64(1), "never_known"}, []any{o.Instance, o.Revision, o.Era, o.Reason})
		require.NotEmpty(t, o.RevisionHash)
		require.Equal(t, int64(3), into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Orphans)
		require.Zero(t, into[api.Node](t, r.get("/api/v1/nodes/plant-1-a")).Orphans)
		backlogs, err := r.store.Backlogs(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(3), backlogs["orphans"].Count)
	})

	t.Run("are dropped when they were approved by name, as they are held", func(t *testing.T) {
		t.Parallel()
		r, pass := orphaned(t)
		a := r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"instances":["ghost-1","ghost-3"],"reason":"ticket 4711"}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		op := into[api.Accepted](t, a).Operation
		require.Equal(t, "plant-1-b", op.Node)
		require.Equal(t, "/api/v1/operations/"+op.ID, a.header.Get("Location"))
		require.Contains(t, r.wakes(), "node.plant-1-b")
		require.Equal(t, []string{"ghost-1 by admin", "ghost-3 by admin"}, r.approvedNames())
		require.Equal(t, int64(1), into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Orphans)
		require.Equal(t, []string{"ghost-1"}, r.dropped(pass, extra("ghost-1", 4), extra("ghost-2", 5), extra("ghost-3", 7)),
			"ghost-2 was not approved, and ghost-3 not as it is held now")
	})

	t.Run("approved are dropped by the next comparison when one broke off", func(t *testing.T) { // X13
		t.Parallel()
		r, pass := orphaned(t)
		r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"all":true}`)
		require.Equal(t, []string{"ghost-1"}, r.dropped(pass, extra("ghost-1", 4)))
		pass, _ = r.begin(2, "schedule") // the node died with the answer
		require.Equal(t, []string{"ghost-1"}, r.dropped(pass, extra("ghost-1", 4)))
	})

	t.Run("approved leave a trail in the feed", func(t *testing.T) { // X17
		t.Parallel()
		r, _ := orphaned(t)
		op := into[api.Accepted](t, r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"all":true,"reason":"moved"}`)).Operation
		var e api.Event
		require.Eventually(t, func() bool { // writers of other databases hold the feed back
			newest := into[api.List[api.Event]](t, r.get("/api/v1/events?limit=1")).Items
			if len(newest) > 0 {
				e = newest[0]
			}
			return e.Kind == "node"
		}, time.Minute, 10*time.Millisecond)
		require.Equal(t, []string{"status", "node", "plant-1", "plant-1-b", "default"}, []string{e.Type, e.Kind, e.Site, e.Name, e.Project})
		require.True(t, strings.HasPrefix(e.Actor, "admin@"), e.Actor)
		var after struct {
			ApprovedOrphans []struct {
				Instance string
				Revision int64
				Reason   string
			}
			Operation, Why string
		}
		require.NoError(t, json.Unmarshal(e.After, &after))
		require.JSONEq(t, `{"approvedOrphans":[]}`, string(e.Before))
		require.Len(t, after.ApprovedOrphans, 3)
		require.Equal(t, []any{"ghost-2", int64(5), "never_known"},
			[]any{after.ApprovedOrphans[1].Instance, after.ApprovedOrphans[1].Revision, after.ApprovedOrphans[1].Reason})
		require.Equal(t, []string{op.ID, "moved"}, []string{after.Operation, after.Why})
	})

	t.Run("are approved once by a key, and again changes nothing but compares", func(t *testing.T) {
		t.Parallel()
		r, _ := orphaned(t)
		approve := func(key string) string {
			return into[api.Accepted](t, r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"all":true}`, "Idempotency-Key", key)).Operation.ID
		}
		first, before := approve("k"), r.rows()
		require.Equal(t, first, approve("k"))
		after := r.rows()
		delete(before, "wakes")
		delete(after, "wakes")
		require.Equal(t, before, after)
		require.NotEqual(t, first, approve("l"))
		require.Equal(t, before["events"], r.rows()["events"])
	})

	t.Run("are replicas too, listed after instances, and ended without an operation", func(t *testing.T) { // X28
		t.Parallel()
		r, _ := orphaned(t)
		_, err := r.store.ReplicasReported(t.Context(), fleet.ReplicasReport{Node: "plant-1-b", Replicas: []fleet.ReplicaStatus{{
			ID: "0a1b2c3d4e5f", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Deployment: "web", Revision: 3,
		}}})
		require.NoError(t, err)
		first := into[api.List[api.Orphan]](t, r.get(orphansB+"?limit=3"))
		rest := into[api.List[api.Orphan]](t, r.get(orphansB+"?limit=3&cursor="+first.Next))
		require.Len(t, rest.Items, 1)
		o := rest.Items[0]
		require.Equal(t, []any{"", "0a1b2c3d4e5f", "web", int64(3), "never_known"}, []any{o.Instance, o.Replica, o.Deployment, o.Revision, o.Reason})
		require.Equal(t, int64(4), into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Orphans)

		for range 2 {
			a := r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"replicas":["0a1b2c3d4e5f"]}`)
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			require.Nil(t, into[api.Accepted](t, a).Operation)
		}
		set, err := r.store.NodeReplicas(t.Context(), "plant-1-b")
		require.NoError(t, err)
		require.Equal(t, []fleet.NodeReplica{{ID: "0a1b2c3d4e5f", Deployment: "web"}}, set.Replicas, "its node is told to end it")
		require.NotNil(t, into[api.Accepted](t, r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"all":true}`)).Operation)
	})

	t.Run("are let go by an administrator of a project where they are replicas of its deployments", func(t *testing.T) { // X17
		t.Parallel()
		r, _ := orphaned(t)
		r.put(webPath, web)
		says := func(id, deployment string) fleet.ReplicaStatus {
			return fleet.ReplicaStatus{
				ID: fleet.ReplicaID(id), Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Deployment: fleet.DeploymentName(deployment), Revision: 1,
			}
		}
		_, err := r.store.ReplicasReported(t.Context(), fleet.ReplicasReport{Node: "plant-1-b", Replicas: []fleet.ReplicaStatus{
			says("0a1b2c3d4e5f", "web"), says("0a1b2c3d4e60", "other"),
		}})
		require.NoError(t, err)
		own, other := r.token("admin", "default"), r.token("admin", "red")
		approve := func(token, body string, status int) {
			t.Helper()
			a := r.call(token, http.MethodPost, orphansB+"/approve", body)
			require.Equal(t, status, a.status, string(a.body))
		}
		approve(other, `{"all":true}`, 404)
		approve(r.token("operator", "default"), `{"all":true}`, 403)
		approve(own, `{"instances":["ghost-1"]}`, 403)
		approve(own, `{"instances":["ghost-1"],"replicas":["0a1b2c3d4e5f"]}`, 403)
		approve(own, `{"replicas":["0a1b2c3d4e60"]}`, 404)
		require.Empty(t, r.approvedNames())
		hint := into[api.Explanation](t, r.call(own, http.MethodGet, webPath+"/explain", nil)).Uncounted[0].Hint
		require.Equal(t, "holdfast orphans approve plant-1-b replica/0a1b2c3d4e5f", hint)
		approve(own, `{"all":true}`, 200)
		approved := r.approvedNames()
		require.Len(t, approved, 1)
		require.True(t, strings.HasPrefix(approved[0], " by "), "no instance: %s", approved)
		set, err := r.store.NodeReplicas(t.Context(), "plant-1-b")
		require.NoError(t, err)
		require.Equal(t, []fleet.NodeReplica{{ID: "0a1b2c3d4e5f", Deployment: "web"}}, set.Replicas)
	})

	t.Run("many are approved in bounded events", func(t *testing.T) {
		t.Parallel()
		r, _ := orphaned(t)
		r.sql(`INSERT INTO orphans (node, name, site, era, revision, reason, reconcile)
		       SELECT 'plant-1-b', 'x-' || n, 'plant-1', 1, n, 'over_cap', 'r' FROM generate_series(1, 10000) n`)
		events := r.rows()["events"]
		began := now()
		a := r.call(r.admin, http.MethodPost, orphansB+"/approve", `{"all":true}`)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		t.Logf("10,003 orphans approved in %s", now().Sub(began))
		require.Equal(t, 101, r.rows()["events"]-events)
		require.Zero(t, into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Orphans)
	})
}

// X19
func TestOrphanRefusals(t *testing.T) {
	t.Parallel()
	r, pass := orphaned(t)
	before := r.rows()
	names := make([]string, fleet.MaxComparedNames+1)
	for i := range names {
		names[i] = fmt.Sprintf("n-%d", i)
	}
	many, err := json.Marshal(api.OrphanApproval{Instances: names})
	require.NoError(t, err)
	ids := make([]string, fleet.MaxReportedReplicas+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("%012x", i)
	}
	crowd, err := json.Marshal(api.OrphanApproval{Replicas: ids})
	require.NoError(t, err)
	for _, c := range []struct {
		name, token, node, body string
		status                  int
		says                    string
	}{
		{"no body", r.admin, "plant-1-b", "", 400, "the request body is empty"},
		{"neither", r.admin, "plant-1-b", `{}`, 400, "either names or all"},
		{"not all", r.admin, "plant-1-b", `{"all":false}`, 400, "either names or all"},
		{"both", r.admin, "plant-1-b", `{"all":true,"instances":["ghost-1"]}`, 400, "either names or all"},
		{"no name", r.admin, "plant-1-b", `{"instances":[]}`, 400, "either names or all"},
		{"too many names", r.admin, "plant-1-b", string(many), 400, "501 names"},
		{"one name twice", r.admin, "plant-1-b", `{"instances":["ghost-1","ghost-1"]}`, 400, "twice"},
		{"what is no name", r.admin, "plant-1-b", `{"instances":["Ghost_"]}`, 400, "not a name"},
		{"a name that is not listed", r.admin, "plant-1-b", `{"instances":["ghost-1","press-9","press-8"]}`, 404, "press-9, press-8"},
		{"no replica's id", r.admin, "plant-1-b", `{"replicas":["web-1"]}`, 400, "is invalid or given twice"},
		{"one replica twice", r.admin, "plant-1-b", `{"replicas":["0a1b2c3d4e5f","0a1b2c3d4e5f"]}`, 400, "twice"},
		{"too many replicas", r.admin, "plant-1-b", string(crowd), 400, "the limit is 4000"},
		{"a replica that is not listed", r.admin, "plant-1-b", `{"instances":["ghost-1"],"replicas":["0a1b2c3d4e5f"]}`, 404, "replica/0a1b2c3d4e5f"},
		{"a misspelt member", r.admin, "plant-1-b", `{"al":true}`, 400, ""},
		{"a long reason", r.admin, "plant-1-b", `{"all":true,"reason":"` + strings.Repeat("x", 9000) + `"}`, 400, "reason"},
		{"a node without orphans", r.admin, "plant-1-a", `{"all":true}`, 422, "has no orphans"},
		{"a node that is not there", r.admin, "ghost", `{"all":true}`, 404, "node ghost not found"},
		{"an operator", r.operator, "plant-1-b", `{"all":true}`, 403, "role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.call(c.token, http.MethodPost, "/api/v1/nodes/"+c.node+"/orphans/approve", c.body)
			require.Equal(t, c.status, a.status, string(a.body))
			require.Contains(t, a.problem(t).Detail, c.says)
			require.Equal(t, before, r.rows(), "something was stored or started")
			require.Empty(t, r.approvedNames())
		})
	}

	t.Run("a dry run approves nothing", func(t *testing.T) {
		a := r.call(r.admin, http.MethodPost, orphansB+"/approve?dryRun=true", `{"all":true}`)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, before, r.rows())
		require.Empty(t, r.dropped(pass, extra("ghost-1", 4)))
	})
}
