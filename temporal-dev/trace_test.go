//go:build slow

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/api"
)

// spans collects what processes send to an OTLP endpoint: by trace, process and span name.
type spans struct {
	mu  sync.Mutex
	all map[string]map[string]bool
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range in.GetResourceSpans() {
		process := rs.GetResource().GetAttributes()[0].GetValue().GetStringValue()
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				id := fmt.Sprintf("%x", span.GetTraceId())
				if s.all[id] == nil {
					s.all[id] = map[string]bool{}
				}
				s.all[id][process+": "+span.GetName()] = true
			}
		}
	}
}

// has says what a trace lacks.
func (s *spans) has(trace string, names ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if !s.all[trace][name] {
			return fmt.Errorf("no %q among %q", name, slices.Sorted(maps.Keys(s.all[trace])))
		}
	}
	return nil
}

// putTraced declares an instance, once, as the caller of a trace.
func (s *stack) putTraced(t *testing.T, trace, instance string) {
	t.Helper()
	body, err := json.Marshal(api.InstancePut{Config: json.RawMessage(`{"of":"` + instance + `"}`)})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		s.doc.API+"/api/v1/sites/plant-1/instances/"+instance, strings.NewReader(string(body)))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+s.doc.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	said, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusAccepted, res.StatusCode, "%s", said)
}

// X22: a delivery is one trace, from the HTTP request through workflow, activity and node,
// and back to the fetch; also when somebody else than the request had to wake the entity.
func TestTrace(t *testing.T) {
	t.Parallel()
	realOnly(t)
	seen := &spans{all: map[string]map[string]bool{}}
	endpoint := httptest.NewServer(seen)
	t.Cleanup(endpoint.Close)
	st := startWith(t, 1, traceVariable+"="+endpoint.URL)
	whole := func(trace string) func(context.Context) error {
		return func(context.Context) error {
			return seen.has(trace,
				"holdfast-server: HTTP PUT", "holdfast-server: StartWorkflow:Instance", "holdfast-server: RunWorkflow:Instance",
				"holdfast-server: StartActivity:RefreshDeployment", "holdfast-node plant-1-a: RunActivity:RefreshDeployment",
				"holdfast-node plant-1-b: RunActivity:RefreshDeployment", "holdfast-node plant-1-a: HTTP GET", "holdfast-server: HTTP GET",
			)
		}
	}
	// A node that has just started is brought what it lacks by its comparison, in a trace of its own.
	waitFor(t, "both nodes have been compared", func(ctx context.Context) error {
		n, err := st.count(ctx, `SELECT count(DISTINCT node) FILTER (WHERE state = 'succeeded') - count(*) FILTER (WHERE state = 'running') FROM reconciles`)
		if err == nil && n != 2 {
			err = errNotYet
		}
		return err
	})
	t.Run("a delivery is one trace", func(t *testing.T) {
		trace := strings.Repeat("1", 32)
		st.putTraced(t, trace, "press-1")
		waitFor(t, "the trace is whole", whole(trace))
	})
	t.Run("a delivery is one trace when its wake was lost", func(t *testing.T) {
		trace := strings.Repeat("2", 32)
		st.order(t, "stop", temporalName)
		st.putTraced(t, trace, "press-2")
		st.order(t, "start", temporalName)
		waitFor(t, "the trace is whole", whole(trace))
	})
}
