package node

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
)

// replicaRegion answers one request as it is told, and keeps what was asked.
type replicaRegion struct {
	status    int
	tag, body string
	asked     *http.Request
	sent      string
}

func (f *replicaRegion) client(t *testing.T) *Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		f.asked, f.sent = r, string(sent)
		if f.tag != "" {
			w.Header().Set("ETag", f.tag)
		}
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, f.body)
	}))
	t.Cleanup(server.Close)
	key, err := identity.Generate("plant-1-a")
	require.NoError(t, err)
	return &Client{API: server.URL, HTTP: NewHTTPClient(nil), Key: func() identity.Key { return key }, Now: time.Now}
}

// X5: only a whole answer with its version is a set.
func TestNodeReplicas(t *testing.T) {
	t.Parallel()
	const set = `{"era":2,"version":7,"count":1,"replicas":[{"id":"aaaaaaaaaaaa","deployment":"web","run":true}]}`
	have := fleet.SetVersion{Era: 2, Number: 6}
	for name, c := range map[string]struct {
		answer    replicaRegion
		kind      fleet.Kind
		unchanged bool
		replicas  int
	}{
		"a set":                     {answer: replicaRegion{status: 200, tag: `"2.7"`, body: set}, replicas: 1},
		"an empty one":              {answer: replicaRegion{status: 200, tag: `"2.8"`, body: `{"era":2,"version":8,"count":0,"replicas":[]}`}},
		"one that was compressed":   {answer: replicaRegion{status: 200, tag: `W/"2.7"`, body: set}, replicas: 1},
		"the same":                  {answer: replicaRegion{status: 304, tag: `"2.6"`}, unchanged: true},
		"without a version":         {answer: replicaRegion{status: 200, body: set}, kind: fleet.Communication},
		"with another version":      {answer: replicaRegion{status: 200, tag: `"2.8"`, body: set}, kind: fleet.Communication},
		"cut short":                 {answer: replicaRegion{status: 200, tag: `"2.7"`, body: set[:40]}, kind: fleet.Communication},
		"something of another kind": {answer: replicaRegion{status: 200, body: "{}"}, kind: fleet.Communication},
		"a refusal":                 {answer: replicaRegion{status: 403}, kind: fleet.Denied},
		"nobody there":              {answer: replicaRegion{status: 502}, kind: fleet.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, unchanged, err := c.answer.client(t).NodeReplicas(t.Context(), have)
			if c.kind != "" {
				require.Equal(t, c.kind, fleet.KindOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.unchanged, unchanged)
			require.Len(t, got.Replicas, c.replicas)
			require.Equal(t, "/api/internal/nodes/plant-1-a/replicas", c.answer.asked.URL.Path)
			require.Equal(t, `"2.6"`, c.answer.asked.Header.Get("If-None-Match"))
			require.True(t, strings.HasPrefix(c.answer.asked.Header.Get("Authorization"), "Bearer "))
		})
	}
}

// X10: a definition is bounded.
func TestReplicaDefinition(t *testing.T) {
	t.Parallel()
	f := replicaRegion{status: 200, body: `{"command":["x"]}`}
	body, err := f.client(t).ReplicaDefinition(t.Context(), "abc")
	require.NoError(t, err)
	require.JSONEq(t, f.body, string(body))
	require.Equal(t, "/api/internal/nodes/plant-1-a/definitions/abc", f.asked.URL.Path)
	f = replicaRegion{status: 200, body: strings.Repeat(" ", maxDefinition+1)}
	_, err = f.client(t).ReplicaDefinition(t.Context(), "abc")
	require.Equal(t, fleet.TooLarge, fleet.KindOf(err))
}

// X27
func TestReplicaLogAndSamples(t *testing.T) {
	t.Parallel()
	f := replicaRegion{status: http.StatusNoContent}
	c := f.client(t)
	require.NoError(t, c.ReplicaLog(t.Context(), replicas.LogPiece{Replica: "aaaaaaaaaaaa", Offset: 3, Data: []byte("up"), Skipped: 1}))
	require.JSONEq(t, `{"replica":"aaaaaaaaaaaa","offset":3,"data":"dXA=","skipped":1}`, f.sent)
	require.NoError(t, c.ReplicaSamples(t.Context(), []replicas.Sample{{ID: "aaaaaaaaaaaa", CPU: 0.5, Memory: 9}}))
	var sent map[string]any
	require.NoError(t, json.Unmarshal([]byte(f.sent), &sent))
	require.Equal(t, map[string]any{"samples": []any{map[string]any{"id": "aaaaaaaaaaaa", "cpu": 0.5, "memory": 9.0}}}, sent)
}
