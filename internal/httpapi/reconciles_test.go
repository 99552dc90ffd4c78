package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// compared is a region whose site has an enrolled pair and a worker.
func compared(t *testing.T) *region {
	t.Helper()
	r := setup(t)
	put := pair("plant-1")
	put.Nodes = append(put.Nodes, api.SiteNode{Name: "plant-1-w", Role: fleet.RoleWorker})
	r.put("/api/v1/sites/plant-1", put)
	r.enrolled("plant-1-a")
	r.enrolled("plant-1-b")
	return r
}

// begin has the entity of plant-1-b begin a comparison, as its run does.
func (r *region) begin(n int, reason string) (reconcile.Pass, fleet.ReconcileBegun) {
	r.t.Helper()
	id := fmt.Sprintf("%032x", n)
	hash := make([]byte, 32)
	copy(hash, id)
	begun, err := r.store.BeginReconcile(r.t.Context(), fleet.ReconcileStart{
		ID: id, Node: "plant-1-b", Reason: reason, Files: reason == fleet.ReconcileRequest, Run: "run-" + id[31:], Build: "b1",
		TokenHash: hash, TokenLife: time.Minute,
	})
	require.NoError(r.t, err)
	require.NotNil(r.t, begun.Command)
	pass, err := r.store.ReconcileOf(r.t.Context(), hash, time.Minute)
	require.NoError(r.t, err)
	return pass, begun
}

func (r *region) end(pass reconcile.Pass, begun fleet.ReconcileBegun, report fleet.ReconcileReport, e fleet.ReconcileEnd) {
	r.t.Helper()
	require.NoError(r.t, r.store.ReportReconcile(r.t.Context(), pass, report))
	e.ID, e.Node, e.By = pass.ID, pass.Node, begun.By
	require.NoError(r.t, r.store.EndReconcile(r.t.Context(), e))
}

const (
	reconcileB = "/api/v1/nodes/plant-1-b/reconcile"
	operations = "/api/v1/operations/"
)

func TestReconcileNode(t *testing.T) {
	t.Parallel()

	t.Run("opens an operation, says what it waits for, and ends with the comparison", func(t *testing.T) { // N54, X8
		t.Parallel()
		r := compared(t)
		a := r.call(r.operator, http.MethodPost, reconcileB, nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		op := into[api.Accepted](t, a).Operation
		require.Equal(t, operations+op.ID, a.header.Get("Location"))
		require.Equal(t, []string{"reconcile", "plant-1", "plant-1-b", ""}, []string{op.Kind, op.Site, op.Node, op.Instance})
		require.Contains(t, r.wakes(), "node.plant-1-b")

		seen := into[api.Operation](t, r.get(operations+op.ID))
		require.Equal(t, "queued", seen.Reason)
		require.Nil(t, seen.Workflow)
		pass, begun := r.begin(1, "request")
		seen = into[api.Operation](t, r.get(operations+op.ID+"?wait=1ms"))
		require.Equal(t, "comparing", seen.Reason)
		require.Equal(t, "waiting for node plant-1-b to compare itself", seen.Message)
		require.Equal(t, "http://web.test/namespaces/holdfast/workflows/node.plant-1-b/run-1/history", seen.Workflow.URL)

		ended := make(chan reply, 1)
		go func() { ended <- r.get(operations + op.ID + "?wait=60s") }()
		r.end(pass, begun, fleet.ReconcileReport{}, fleet.ReconcileEnd{State: fleet.OperationSucceeded, Reason: "reconciled", Message: "5 equal"})
		seen = into[api.Operation](t, <-ended)
		require.Equal(t, fleet.OperationSucceeded, seen.State)
		require.Equal(t, "5 equal", seen.Message)
	})

	t.Run("is opened once by a key, also at the same moment", func(t *testing.T) { // X13
		t.Parallel()
		r := compared(t)
		ids := make([]string, 8)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				ids[i] = into[api.Accepted](t, r.call(r.operator, http.MethodPost, reconcileB, nil, "Idempotency-Key", "k")).Operation.ID
			})
		}
		all.Wait()
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		require.Equal(t, 1, r.rows()["operations"])
		p := r.call(r.operator, http.MethodPost, "/api/v1/nodes/plant-1-a/reconcile", nil, "Idempotency-Key", "k").problem(t)
		require.Equal(t, api.ProblemPrefix+string(fleet.Conflict), p.Type)
		require.Equal(t, 1, r.rows()["operations"])
	})

	t.Run("of a site opens one for each node of its pair", func(t *testing.T) {
		t.Parallel()
		r := compared(t)
		ask := func() []string {
			a := r.call(r.operator, http.MethodPost, "/api/v1/sites/plant-1/reconcile", nil, "Idempotency-Key", "k")
			require.Equal(t, http.StatusAccepted, a.status, string(a.body))
			var of []string
			for _, op := range into[api.AcceptedAll](t, a).Operations {
				of = append(of, op.Node+" "+op.ID)
			}
			return of
		}
		first := ask()
		require.Len(t, first, 2)
		require.True(t, strings.HasPrefix(first[0], "plant-1-a ") && strings.HasPrefix(first[1], "plant-1-b "), first)
		require.Equal(t, first, ask())
		require.Equal(t, 2, r.rows()["operations"])
		require.Subset(t, r.wakes(), []string{"node.plant-1-a", "node.plant-1-b"})
	})

	t.Run("is cancelled at once, and stays so", func(t *testing.T) { // X7
		t.Parallel()
		r := compared(t)
		op := into[api.Accepted](t, r.call(r.operator, http.MethodPost, reconcileB, nil)).Operation
		pass, begun := r.begin(1, "request")
		wakes := len(r.wakes())
		a := r.call(r.operator, http.MethodPost, operations+op.ID+"/cancel", nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Equal(t, fleet.OperationCancelled, into[api.Accepted](t, a).Operation.State)
		require.Len(t, r.wakes(), wakes, "a comparison was started to cancel one")
		r.end(pass, begun, fleet.ReconcileReport{}, fleet.ReconcileEnd{State: fleet.OperationSucceeded})
		require.Equal(t, fleet.OperationCancelled, into[api.Operation](t, r.get(operations+op.ID)).State)
		p := r.call(r.operator, http.MethodPost, operations+op.ID+"/cancel", nil).problem(t)
		require.Equal(t, api.ProblemPrefix+string(fleet.IllegalState), p.Type)
	})

	t.Run("is no operation of an instance of the same name", func(t *testing.T) {
		t.Parallel()
		r := compared(t)
		r.put("/api/v1/sites/plant-1/instances/plant-1-b", `{"config":{}}`)
		op := into[api.Accepted](t, r.call(r.operator, http.MethodPost, reconcileB, nil)).Operation
		of := func(query string) []string {
			var kinds []string
			for _, o := range into[api.List[api.Operation]](t, r.get("/api/v1/operations?"+query)).Items {
				kinds = append(kinds, o.Kind+" "+o.Instance+o.Node)
			}
			return kinds
		}
		require.Equal(t, []string{"deploy plant-1-b"}, of("instance=plant-1-b"))
		require.Equal(t, []string{"reconcile plant-1-b"}, of("node=plant-1-b"))
		require.Len(t, of("site=plant-1"), 2)
		require.NotContains(t, string(r.get(operations+op.ID).body), `"instance"`)
	})
}

// X19
func TestReconcileRefusals(t *testing.T) {
	t.Parallel()
	r := compared(t)
	r.put("/api/v1/projects/line-a", `{}`)
	r.put("/api/v1/sites/plant-2", api.SitePut{Project: "line-a", Nodes: []api.SiteNode{{Name: "plant-2-a", Role: fleet.RoleActive}}})
	stranger := r.token("operator", "line-a")
	before := r.rows()
	for _, c := range []struct {
		name, token, path string
		status            int
	}{
		{"a node that is not there", r.operator, "/api/v1/nodes/ghost/reconcile", 404},
		{"a node that is no name", r.operator, "/api/v1/nodes/Ghost_/reconcile", 400},
		{"a worker", r.operator, "/api/v1/nodes/plant-1-w/reconcile", 422},
		{"a site that is not there", r.operator, "/api/v1/sites/ghost/reconcile", 404},
		{"a site that is no name", r.operator, "/api/v1/sites/-/reconcile", 400},
		{"a node of another project", stranger, reconcileB, 404},
		{"a site of another project", stranger, "/api/v1/sites/plant-1/reconcile", 404},
		{"a viewer", r.viewer, reconcileB, 403},
		{"a viewer of a site", r.viewer, "/api/v1/sites/plant-1/reconcile", 403},
		{"a misspelt query", r.operator, reconcileB + "?dryrun=true", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := r.call(c.token, http.MethodPost, c.path, nil)
			require.Equal(t, c.status, a.status, string(a.body))
			a.problem(t)
			require.Equal(t, before, r.rows(), "something was stored or started")
		})
	}
	for _, path := range []string{"reconciles", "orphans"} {
		require.Equal(t, 404, r.call(stranger, http.MethodGet, "/api/v1/nodes/plant-1-b/"+path, nil).status)
		require.Equal(t, 404, r.get("/api/v1/nodes/ghost/"+path).status)
		require.Equal(t, 400, r.get("/api/v1/nodes/plant-1-b/"+path+"?limit=0").status)
	}

	t.Run("a dry run changes nothing", func(t *testing.T) {
		for _, path := range []string{reconcileB, "/api/v1/sites/plant-1/reconcile"} {
			a := r.call(r.operator, http.MethodPost, path+"?dryRun=true", nil, "Idempotency-Key", "dry")
			require.Equal(t, http.StatusOK, a.status, string(a.body))
			require.Contains(t, string(a.body), `"dryRun":true`)
			require.Equal(t, before, r.rows())
		}
	})

	t.Run("its own project may", func(t *testing.T) {
		op := into[api.Accepted](t, r.call(stranger, http.MethodPost, "/api/v1/nodes/plant-2-a/reconcile", nil)).Operation
		require.Equal(t, 200, r.call(stranger, http.MethodGet, operations+op.ID, nil).status)
		stored, err := r.store.GetOperation(t.Context(), fleet.OperationID(op.ID))
		require.NoError(t, err)
		require.Equal(t, fleet.ProjectName("line-a"), stored.Project)
	})
}

// N54: what a comparison restored shows, also where the set is unchanged.
func TestReconcileShowsRestoredFiles(t *testing.T) {
	t.Parallel()
	r := compared(t)
	pass, begun := r.begin(1, fleet.ReconcileSchedule)
	require.False(t, begun.Command.Files)
	r.end(pass, begun, fleet.ReconcileReport{}, fleet.ReconcileEnd{State: fleet.OperationSucceeded, Reason: "reconciled"})
	pass, begun = r.begin(2, fleet.ReconcileRequest)
	require.True(t, begun.Command.Files)
	report := fleet.ReconcileReport{Set: fleet.SetVersion{Era: 1, Number: 7}, Unchanged: true, Restored: 1}
	report.Differ("press-1", fleet.FileChanged)
	r.end(pass, begun, report, fleet.ReconcileEnd{State: fleet.OperationSucceeded, Reason: "files_restored"})
	newest := into[api.List[api.Reconcile]](t, r.get("/api/v1/nodes/plant-1-b/reconciles?limit=1")).Items[0]
	require.Equal(t, &api.ReconcileCounts{Restored: 1}, newest.Counts)
	require.Equal(t, []api.Differs{{Instance: "press-1", Why: "file_changed"}}, newest.Differs)
}

func TestReconcileHistory(t *testing.T) {
	t.Parallel()
	r := compared(t)
	history := func(query string) []api.Reconcile {
		return into[api.List[api.Reconcile]](t, r.get("/api/v1/nodes/plant-1-b/reconciles"+query)).Items
	}
	require.Empty(t, history(""))
	require.NotContains(t, string(r.get("/api/v1/nodes/plant-1-b").body), `"reconcile"`)

	pass, begun := r.begin(1, "start")
	report := fleet.ReconcileReport{Set: fleet.SetVersion{Era: 1, Number: 7}, Expected: 9, Equal: 5, Fetched: 2, Left: 1, Waiting: 1}
	report.Differ("press-1", "in_flight")
	report.Differ("press-2", "never_known")
	r.end(pass, begun, report, fleet.ReconcileEnd{State: fleet.OperationSucceeded, Reason: "orphans_wait", Message: "9 expected"})
	pass, begun = r.begin(2, "peer")
	r.end(pass, begun, fleet.ReconcileReport{Refused: "set_empty", Set: fleet.SetVersion{Era: 1, Number: 8}},
		fleet.ReconcileEnd{State: fleet.OperationFailed, Reason: "set_empty", Message: "the node did not act"})
	pass, begun = r.begin(3, "schedule")
	r.end(pass, begun, fleet.ReconcileReport{Unchanged: true, Set: fleet.SetVersion{Era: 1, Number: 8}},
		fleet.ReconcileEnd{State: fleet.OperationSucceeded, Reason: "unchanged"})
	r.begin(4, "request")

	all := history("")
	require.Len(t, all, 4)
	require.Equal(t, "running", all[0].State)
	require.Nil(t, all[0].Counts)
	require.Nil(t, all[0].EndedAt)
	require.True(t, all[1].Unchanged)
	require.Nil(t, all[1].Counts, "nothing was counted")
	require.Equal(t, []string{"peer", "failed", "set_empty", "1.8"}, []string{all[2].Reason, all[2].State, all[2].Refused, all[2].SetVersion})
	require.Equal(t, &api.ReconcileCounts{Expected: 9, Equal: 5, Fetched: 2, Left: 1, Waiting: 1}, all[3].Counts)
	require.Equal(t, []api.Differs{{Instance: "press-1", Why: "in_flight"}, {Instance: "press-2", Why: "never_known"}}, all[3].Differs)
	require.NotNil(t, all[3].EndedAt)
	require.Equal(t, all[:2], history("?limit=2"))

	n := into[api.Node](t, r.get("/api/v1/nodes/plant-1-b"))
	require.Equal(t, []string{"request", "running"}, []string{n.Reconcile.Reason, n.Reconcile.State})
	var list api.List[json.RawMessage]
	require.NoError(t, json.Unmarshal(r.get("/api/v1/nodes?site=plant-1").body, &list))
	require.Len(t, list.Items, 3)
}
