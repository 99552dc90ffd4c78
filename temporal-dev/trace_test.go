package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans collects what processes send to an OTLP endpoint: by trace, process and span name.
type spans struct {
	mu  sync.Mutex
	all map[string]map[string]bool
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if z, zErr := gzip.NewReader(bytes.NewReader(body)); zErr == nil {
		body, err = io.ReadAll(z)
	}
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
				id := string(span.GetTraceId())
				if s.all[id] == nil {
					s.all[id] = map[string]bool{}
				}
				s.all[id][process+": "+span.GetName()] = true
			}
		}
	}
}

// has says whether one trace holds all of some spans.
func (s *spans) has(names ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.all {
		found := 0
		for _, name := range names {
			if of[name] {
				found++
			}
		}
		if found == len(names) {
			return true
		}
	}
	return false
}

// X22: a delivery is one trace, from the HTTP request through workflow, activity and node,
// and back to the fetch.
func TestTrace(t *testing.T) {
	realOnly(t)
	seen := &spans{all: map[string]map[string]bool{}}
	endpoint := httptest.NewServer(seen)
	t.Cleanup(endpoint.Close)
	t.Setenv(traceVariable, endpoint.URL)
	upRegion(t, filepath.Join(t.TempDir(), "data"))
	eventually(t, "a whole delivery is one trace", func() bool {
		return seen.has(
			"holdfast-server: HTTP PUT", "holdfast-server: SignalWithStartWorkflow:Instance", "holdfast-server: RunWorkflow:Instance",
			"holdfast-server: StartActivity:RefreshDeployment", "holdfast-node plant-1-a: RunActivity:RefreshDeployment",
			"holdfast-node plant-1-b: RunActivity:RefreshDeployment", "holdfast-node plant-1-a: HTTP GET", "holdfast-server: HTTP GET",
		)
	})
}
