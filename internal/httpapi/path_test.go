package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

const pressConfig = `{"b": 1, "a": [1, 2.50, "ü"]}`

// N21, N22, N25, N69, X8
func TestAPathFromSiteToConfig(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.site()
	key := r.enrolled("plant-1-a")

	started := r.asNode(key, "started", map[string]any{"startId": "s1", "instances": []any{}, "last": true})
	require.Equal(t, http.StatusOK, started.status, string(started.body))
	require.JSONEq(t, `{"region":"test","role":"active","epoch":1}`, string(started.body))
	require.Equal(t, []fleet.NodeName{"plant-1-a"}, r.starts())
	nodes := into[api.List[api.Node]](t, r.get("/api/v1/nodes"))
	require.Len(t, nodes.Items, 2)
	require.True(t, nodes.Items[0].Ready && nodes.Items[0].Enrolled)
	require.False(t, nodes.Items[1].Ready || nodes.Items[1].Enrolled)
	require.Equal(t, fleet.RoleStandby, nodes.Items[1].Role)

	put := r.call(r.operator, http.MethodPut, "/api/v1/sites/plant-1/instances/press-7",
		`{"config":`+pressConfig+`,"reason":"first","run":{"command":["/bin/press"],"stopSeconds":0.50}}`)
	require.Equal(t, http.StatusAccepted, put.status, string(put.body))
	accepted := into[api.Accepted](t, put)
	require.Equal(t, "/api/v1/operations/"+accepted.Operation.ID, put.header.Get("Location"))
	require.Equal(t, serve.Quoted(accepted.Object.ResourceVersion), put.header.Get("ETag"))
	require.Equal(t, fleet.OperationRunning, accepted.Operation.State)
	waiting := into[api.Operation](t, r.get(put.header.Get("Location")))
	require.Equal(t, "queued", waiting.Reason)
	require.NotEmpty(t, waiting.Message)
	require.False(t, waiting.Deadline.IsZero())
	require.Equal(t, []string{"instance.plant-1.press-7"}, r.wakes())

	f := r.deliver(press, "1")
	config := r.call(f.token, http.MethodGet, f.path+"/config", nil)
	require.Equal(t, http.StatusOK, config.status)
	require.Equal(t, `{"a":[1,2.5,"ü"],"b":1}`, string(config.body))
	require.Equal(t, serve.Quoted(string(compose.HashOf(config.body))), config.header.Get("ETag"))
	run := r.call(f.token, http.MethodGet, f.path+"/run", nil)
	require.Equal(t, `{"command":["/bin/press"],"project":"default","stopSeconds":0.5}`, string(run.body))

	op := into[api.Operation](t, r.get("/api/v1/operations/"+accepted.Operation.ID))
	require.Equal(t, string(f.id), op.Delivery)
	require.Len(t, op.Progress, 2)
	require.Equal(t, "node_applying", op.Reason)
	require.Contains(t, op.Message, "plant-1-a")
	require.Equal(t, "http://web.test/namespaces/holdfast/workflows/instance.plant-1.press-7/run-1/history", op.Workflow.URL)

	held := fleet.Held{Known: true, Running: true, HighWater: fleet.Version{Era: 1, Revision: 1}, Revision: fleet.Revision{
		Version: fleet.Version{Era: 1, Revision: 1}, Action: fleet.ActionDeploy, Enabled: true,
		Content: fleet.Content{Kind: fleet.ContentJSON, Hash: compose.HashOf(config.body), Size: int64(len(config.body))},
	}}
	r.walk(press, fleet.Step{Record: &fleet.Record{
		Subject: press, Delivery: f.id, Node: "plant-1-a", Response: fleet.DeploymentStatusResponse{Held: held},
	}}, nil)
	op = into[api.Operation](t, r.get("/api/v1/operations/"+accepted.Operation.ID))
	require.Equal(t, "plant-1-a", op.Progress[0].Node)
	require.EqualValues(t, 1, op.Progress[0].Revision)
	require.EqualValues(t, 1, op.Progress[0].Generation)
	require.Equal(t, compose.HashOf(config.body), op.Progress[0].RevisionHash)
	require.Zero(t, op.Progress[1].Revision, "the standby holds nothing yet")
	require.Empty(t, op.Progress[1].RevisionHash)
	object := into[api.Object](t, r.get("/api/v1/sites/plant-1/instances/press-7"))
	var status api.InstanceStatus
	require.NoError(t, json.Unmarshal(object.Status, &status))
	require.Equal(t, "1/2", status.Replicated)
	require.EqualValues(t, 1, status.Revision)
	require.Equal(t, compose.HashOf(config.body), status.RevisionHash)
	deployed := r.get("/api/v1/sites/plant-1/instances/press-7/config")
	require.Equal(t, string(config.body), string(deployed.body))

	history := into[api.List[api.Delivery]](t, r.get("/api/v1/sites/plant-1/instances/press-7/deliveries"))
	require.Len(t, history.Items, 1)
	require.Equal(t, "first", history.Items[0].Why)
	require.Equal(t, accepted.Operation.RequestedBy, history.Items[0].RequestedBy)
}

func TestOperationWait(t *testing.T) {
	t.Parallel()

	t.Run("answers when the end is announced", func(t *testing.T) {
		t.Parallel()
		listening, ended := make(chan struct{}, 100), make(chan struct{})
		r := setup(t, func(d *Deps) {
			d.OperationEnds = func(_ context.Context, _ fleet.OperationID) <-chan struct{} {
				listening <- struct{}{}
				return ended
			}
		})
		r.site()
		id := into[api.Accepted](t, r.put("/api/v1/sites/plant-1/instances/press-7", `{"config":{}}`)).Operation.ID
		answered := make(chan api.Operation)
		go func() { answered <- into[api.Operation](t, r.get("/api/v1/operations/"+id+"?wait=60s")) }()
		<-listening
		r.sql(`UPDATE operations SET state = 'succeeded', ended_at = now() WHERE id = $1`, id)
		close(ended)
		select {
		case op := <-answered:
			require.Equal(t, fleet.OperationSucceeded, op.State)
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
	})

	t.Run("answers when the wait is over", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		id := into[api.Accepted](t, r.put("/api/v1/sites/plant-1/instances/press-7", `{"config":{}}`)).Operation.ID
		op := into[api.Operation](t, r.get("/api/v1/operations/"+id+"?wait=20ms"))
		require.Equal(t, fleet.OperationRunning, op.State)
	})

	t.Run("sees an end that nobody announced", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.site()
		id := into[api.Accepted](t, r.put("/api/v1/sites/plant-1/instances/press-7", `{"config":{}}`)).Operation.ID
		answered := make(chan api.Operation)
		go func() { answered <- into[api.Operation](t, r.get("/api/v1/operations/"+id+"?wait=60s")) }()
		r.sql(`UPDATE operations SET state = 'failed', reason = 'deadline', ended_at = now() WHERE id = $1`, id)
		select {
		case op := <-answered:
			require.Equal(t, "deadline", op.Reason)
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
	})
}
