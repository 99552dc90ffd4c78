package httpapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// onLink has a node live on the link with an open stream.
func (r *region) onLink(node fleet.NodeName, inFlight int) fleet.ConnectionID {
	r.t.Helper()
	ctx := r.t.Context()
	require.NoError(r.t, r.store.LinkServerSeen(ctx, "server-1", time.Minute))
	identity := "node:" + string(node)
	reg, err := r.store.RegisterConnection(ctx, fleet.Registration{Identity: identity, Node: node, Provider: fleet.ProviderName(node), Protocol: 1}, "server-1")
	require.NoError(r.t, err)
	_, err = r.store.OpenConnection(ctx, reg.ID, identity, "server-1")
	require.NoError(r.t, err)
	require.NoError(r.t, r.store.RecordHeartbeats(ctx, "server-1", []nodes.Heartbeat{{ID: reg.ID, InFlight: inFlight}}))
	return reg.ID
}

// drainsOn takes the steps of a drain's entity until it waits or ends, and gives the last.
func (r *region) drainsOn(node fleet.NodeName) decide.DrainAction {
	r.t.Helper()
	ctx := r.t.Context()
	var a decide.DrainAction
	for {
		look := fleet.DrainLook{Node: node, Run: "run-1", Build: "b1"}
		if a.Do == decide.DrainWait {
			look.Phase, look.Rule, look.Message = a.Phase, a.Rule, a.Message
		}
		seen, err := r.store.SeeDrain(ctx, look)
		require.NoError(r.t, err)
		if a.Do == decide.DrainWait {
			return a
		}
		a = decide.Drain(seen, decide.DrainRun{})
		switch a.Do {
		case decide.DrainAsk:
			require.NoError(r.t, r.store.AskConnections(ctx, node, a.Connections))
		case decide.DrainCut:
			require.NoError(r.t, r.store.CutConnections(ctx, node, a.Connections))
		case decide.DrainFinish, decide.DrainClose:
			require.NoError(r.t, r.store.EndDrain(ctx, fleet.DrainEnd{
				Node: node, Operation: seen.Operation, State: a.State, Reason: a.Rule, Message: a.Message,
			}))
			return a
		case decide.DrainWait, decide.DrainMove, decide.DrainStop, decide.DrainEvict:
		}
	}
}

func TestCordonNode(t *testing.T) {
	t.Parallel()
	r := compared(t)
	c, err := api.NewClient(r.url, r.operator)
	require.NoError(t, err)

	n, err := c.CordonNode(t.Context(), "plant-1-b", api.CordonRequest{Reason: "new disk"}, api.Mutation{DryRun: true})
	require.NoError(t, err)
	require.Nil(t, n.Cordon)
	n, err = c.CordonNode(t.Context(), "plant-1-b", api.CordonRequest{Reason: "new disk"}, api.Mutation{})
	require.NoError(t, err)
	require.Equal(t, "new disk", n.Cordon.Reason)
	again, err := c.CordonNode(t.Context(), "plant-1-b", api.CordonRequest{}, api.Mutation{}) // X13
	require.NoError(t, err)
	require.Equal(t, n.Cordon, again.Cordon)
	all, err := c.Nodes(t.Context(), api.Page{})
	require.NoError(t, err)
	for _, n := range all.Items {
		require.Equal(t, n.Name == "plant-1-b", n.Cordon != nil, n.Name)
		require.Nil(t, n.Drain)
	}
	n, err = c.UncordonNode(t.Context(), "plant-1-b", api.Mutation{})
	require.NoError(t, err)
	require.Nil(t, n.Cordon)
	_, err = c.UncordonNode(t.Context(), "plant-1-b", api.Mutation{})
	require.NoError(t, err)
	_, err = c.CordonNode(t.Context(), "nobody", api.CordonRequest{}, api.Mutation{})
	require.Equal(t, fleet.NotFound, fleet.KindOf(err))
	for _, token := range []string{r.viewer, r.token("operator", "other")} {
		a := r.call(token, http.MethodPost, "/api/v1/nodes/plant-1-b/cordon", nil)
		require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, a.status)
	}
}

func TestDrainNode(t *testing.T) {
	t.Parallel()

	t.Run("shows how far it is while it runs, wherever one looks", func(t *testing.T) { // X5, X8, C25
		t.Parallel()
		r := compared(t)
		c, err := api.NewClient(r.url, r.operator)
		require.NoError(t, err)
		r.onLink("plant-1-b", 4)
		out, err := c.DrainNode(t.Context(), "plant-1-b", api.NodeDrainRequest{DrainRequest: api.DrainRequest{Reason: "new disk", DeadlineSeconds: 600}}, api.Mutation{})
		require.NoError(t, err)
		op := out.Operation
		require.Equal(t, []string{"drain", "plant-1", "plant-1-b", "queued"}, []string{op.Kind, op.Site, op.Node, op.Reason})
		require.Contains(t, op.Message, "4 in flight")
		require.WithinDuration(t, now().Add(10*time.Minute), op.Deadline, time.Minute)
		require.Contains(t, r.wakes(), "drain.plant-1-b")

		require.Equal(t, "ack", r.drainsOn("plant-1-b").Rule)
		seen, err := c.Operation(t.Context(), op.ID, 0)
		require.NoError(t, err)
		require.Equal(t, "ack", seen.Reason)
		require.Equal(t, "waiting for the node to acknowledge the drain, 4 in flight", seen.Message)
		require.Equal(t, "http://web.test/namespaces/holdfast/workflows/drain.plant-1-b/run-1/history", seen.Workflow.URL)
		n, err := c.Node(t.Context(), "plant-1-b")
		require.NoError(t, err)
		require.Equal(t, "new disk", n.Cordon.Reason)
		require.Equal(t, []any{op.ID, fleet.DrainDraining, "ack", int64(4), "new disk"},
			[]any{n.Drain.Operation, n.Drain.Phase, n.Drain.Waits, n.Drain.InFlight, n.Drain.Reason})
		require.Equal(t, seen.Deadline, n.Drain.Deadline)

		// A second one joins, and brings the deadline forward for both.
		_, err = c.DrainNode(t.Context(), "plant-1-b", api.NodeDrainRequest{DrainRequest: api.DrainRequest{DeadlineSeconds: 60}}, api.Mutation{})
		require.NoError(t, err)
		seen, err = c.Operation(t.Context(), op.ID, 0)
		require.NoError(t, err)
		require.WithinDuration(t, now().Add(time.Minute), seen.Deadline, 30*time.Second)
		_, err = c.UncordonNode(t.Context(), "plant-1-b", api.Mutation{})
		require.Equal(t, fleet.IllegalState, fleet.KindOf(err))

		r.sql("UPDATE node_drains SET deadline = now()")
		require.Equal(t, "cut_off", r.drainsOn("plant-1-b").Rule)
		list, err := c.Operations(t.Context(), api.OperationQuery{Node: "plant-1-b"})
		require.NoError(t, err)
		require.Len(t, list.Items, 2)
		for _, op := range list.Items {
			require.Equal(t, []any{fleet.OperationSucceeded, "cut_off", "forced at its deadline, with 4 in flight"}, []any{op.State, op.Reason, op.Message})
		}
		n, err = c.Node(t.Context(), "plant-1-b")
		require.NoError(t, err)
		require.Equal(t, []any{fleet.DrainEnded, "cut_off"}, []any{n.Drain.Phase, n.Drain.Waits})
		n, err = c.UncordonNode(t.Context(), "plant-1-b", api.Mutation{})
		require.NoError(t, err)
		require.Nil(t, n.Drain)
	})

	t.Run("can be cancelled: the node stays cordoned", func(t *testing.T) { // X7
		t.Parallel()
		r := compared(t)
		r.onLink("plant-1-b", 0)
		a := r.call(r.operator, http.MethodPost, "/api/v1/nodes/plant-1-b/drain", nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		op := into[api.Accepted](t, a).Operation
		require.Equal(t, operations+op.ID, a.header.Get("Location"))
		a = r.call(r.operator, http.MethodPost, operations+op.ID+"/cancel", nil)
		require.Equal(t, http.StatusAccepted, a.status, string(a.body))
		require.Contains(t, into[api.Accepted](t, a).Operation.Message, "node plant-1-b stays cordoned")
		require.Equal(t, "nobody_waits", r.drainsOn("plant-1-b").Rule)
		require.NotNil(t, into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Cordon)
	})

	t.Run("refuses what makes no sense, and strangers", func(t *testing.T) {
		t.Parallel()
		r := compared(t)
		stranger := r.token("operator", "other")
		before := r.rows()
		const path = "/api/v1/nodes/plant-1-b/drain"
		for body, status := range map[string]int{
			`{"deadlineSeconds":-1}`:                         http.StatusBadRequest,
			`{"deadlineSeconds":86401}`:                      http.StatusBadRequest,
			`{"deadlineSeconds":1.5}`:                        http.StatusBadRequest,
			`{"forced":true}`:                                http.StatusBadRequest,
			`{"reason":"` + strings.Repeat("x", 1025) + `"}`: http.StatusBadRequest,
			`[]`: http.StatusBadRequest,
		} {
			a := r.call(r.operator, http.MethodPost, path, body)
			require.Equal(t, status, a.status, "%s: %s", body, a.body)
		}
		require.Equal(t, http.StatusForbidden, r.call(r.viewer, http.MethodPost, path, nil).status)
		require.Equal(t, http.StatusNotFound, r.call(stranger, http.MethodPost, path, nil).status)
		require.Equal(t, http.StatusNotFound, r.call(r.operator, http.MethodPost, "/api/v1/nodes/nobody/drain", nil).status)
		a := r.call(r.operator, http.MethodPost, path+"?dryRun=true", `{"force":true}`)
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.Equal(t, before, r.rows())
		require.Nil(t, into[api.Node](t, r.get("/api/v1/nodes/plant-1-b")).Cordon)
	})

	t.Run("is opened once by a key", func(t *testing.T) { // X13
		t.Parallel()
		r := compared(t)
		ask := func(body string) reply {
			return r.call(r.operator, http.MethodPost, "/api/v1/nodes/plant-1-b/drain", body, "Idempotency-Key", "k1")
		}
		first := into[api.Accepted](t, ask(`{"deadlineSeconds":60}`)).Operation
		require.Equal(t, first.ID, into[api.Accepted](t, ask(`{"deadlineSeconds":60}`)).Operation.ID)
		require.Equal(t, http.StatusConflict, ask(`{"deadlineSeconds":61}`).status)
	})
}
