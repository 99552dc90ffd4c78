package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fakeRegion answers the part of the contract that the command line uses, from memory.
type fakeRegion struct {
	t      *testing.T
	server *httptest.Server

	mu         sync.Mutex
	objects    map[string]api.Object // by path below /api/v1
	operations map[string][]api.Operation
	deliveries []api.Delivery
	logs       []api.LogChunk
	events     []api.Event
	uploads    map[string][]byte
	mutations  []mutation
	replays    map[string][]byte // by Idempotency-Key
	// next is what the next mutations of instances and fleet changes start, each a story of an operation.
	next [][]api.Operation
	// hook may answer a request in the region's place.
	hook func(http.ResponseWriter, *http.Request) bool
}

// mutation is a change as it arrived.
type mutation struct {
	method, path, query, key, ifMatch, body string
}

const regionToken = "token-of-the-test"

func newRegion(t *testing.T) *fakeRegion {
	t.Helper()
	r := &fakeRegion{
		t: t, objects: map[string]api.Object{}, operations: map[string][]api.Operation{},
		uploads: map[string][]byte{}, replays: map[string][]byte{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/sites/{site}/instances/{name}/deliveries", r.listDeliveries)
	mux.HandleFunc("GET /api/v1/sites/{site}/instances/{name}/logs", r.readLogs)
	mux.HandleFunc("GET /api/v1/sites/{site}/instances/{name}/config", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"b":1,  "a":2}`))
	})
	mux.HandleFunc("GET /api/v1/operations/{id}", r.readOperation)
	mux.HandleFunc("GET /api/v1/operations", r.listOperations)
	mux.HandleFunc("GET /api/v1/events", r.readEvents)
	mux.HandleFunc("GET /api/v1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.List[api.Node]{Items: []api.Node{{Name: "plant-1-a", Site: "plant-1", Role: fleet.RoleActive, Epoch: 3, Enrolled: true, Ready: true, Instances: 2}}})
	})
	mux.HandleFunc("POST /api/v1/tokens", r.createToken)
	mux.HandleFunc("DELETE /api/v1/tokens/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	mux.HandleFunc("POST /api/v1/operations/{id}/cancel", r.cancel)
	mux.HandleFunc("POST /api/v1/artifacts", r.beginUpload)
	mux.HandleFunc("GET /api/v1/artifacts/uploads/{id}", r.offset)
	mux.HandleFunc("PATCH /api/v1/artifacts/uploads/{id}", r.appendUpload)
	mux.HandleFunc("POST /api/v1/artifacts/uploads/{id}/complete", r.completeUpload)
	mux.HandleFunc("GET /api/v1/", r.read)
	mux.HandleFunc("PUT /api/v1/", r.mutate)
	mux.HandleFunc("POST /api/v1/", r.mutate)
	mux.HandleFunc("DELETE /api/v1/", r.mutate)
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+regionToken {
			refuse(w, 401, fleet.Unauthenticated, "the token is not valid", "")
			return
		}
		r.mu.Lock()
		hook := r.hook
		r.mu.Unlock()
		if hook == nil || !hook(w, req) {
			mux.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(r.server.Close)
	return r
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, kind fleet.Kind, detail, field string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{
		Type: "https://holdfast.example/problems/" + string(kind), Title: string(kind), Status: status,
		Detail: detail, Field: field, Hint: "as the region says",
	})
}

// read serves objects and lists of them, one object a page.
func (r *fakeRegion) read(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(req.URL.Path, "/api/v1/")
	if o, ok := r.objects[path]; ok {
		w.Header().Set("ETag", strconv.Quote(o.ResourceVersion))
		reply(w, 200, o)
		return
	}
	if last := path[strings.LastIndex(path, "/")+1:]; !strings.HasSuffix(last, "s") {
		refuse(w, 404, fleet.NotFound, path+" does not exist", "")
		return
	}
	list := api.List[api.Object]{Items: []api.Object{}}
	skip, _ := strconv.Atoi(req.URL.Query().Get("cursor"))
	var found []api.Object
	for _, at := range sortedKeys(r.objects) {
		if name, ok := strings.CutPrefix(at, path+"/"); ok && !strings.Contains(name, "/") {
			found = append(found, r.objects[at])
		}
	}
	if skip < len(found) {
		list.Items = found[skip : skip+1]
	}
	if skip+1 < len(found) {
		list.Next = strconv.Itoa(skip + 1)
	}
	reply(w, 200, list)
}

// mutate takes any change of an object; a repeat of a key gets the first answer again.
func (r *fakeRegion) mutate(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(req.Body)
	m := mutation{
		req.Method, strings.TrimPrefix(req.URL.Path, "/api/v1/"), req.URL.RawQuery,
		req.Header.Get("Idempotency-Key"), req.Header.Get("If-Match"), string(body),
	}
	r.mutations = append(r.mutations, m)
	if first, repeated := r.replays[m.key]; repeated {
		w.WriteHeader(202)
		_, _ = w.Write(first)
		return
	}
	path := m.path
	if req.Method == http.MethodPost { // the verb comes last
		path = path[:strings.LastIndex(path, "/")]
	}
	o := r.objects[path]
	switch {
	case m.key == "":
		refuse(w, 400, fleet.Invalid, "no key", "Idempotency-Key")
		return
	case m.ifMatch != "" && m.ifMatch != strconv.Quote(o.ResourceVersion):
		refuse(w, 412, fleet.Precondition, "the object has changed", "If-Match")
		return
	case req.Method == http.MethodPost && o.Name == "":
		refuse(w, 404, fleet.NotFound, path+" does not exist", "")
		return
	}
	if req.Method == http.MethodPut {
		o = r.declare(path, string(body))
	}
	accepted := api.Accepted{Object: &o, DryRun: req.URL.Query().Get("dryRun") == "true"}
	status := 200
	if len(r.next) > 0 && (strings.Contains(path, "/instances/") || strings.HasPrefix(path, "fleets/") || strings.HasPrefix(path, "deployments/")) {
		story := r.next[0]
		r.next = r.next[1:]
		r.operations[story[0].ID] = story
		accepted.Operation, status = &story[0], 202
	}
	r.replays[m.key], _ = json.Marshal(accepted)
	reply(w, status, accepted)
}

// declare stores an object; the lock is held.
func (r *fakeRegion) declare(path, spec string) api.Object {
	parts := strings.Split(path, "/")
	o := r.objects[path]
	o.Kind, o.Name = strings.TrimSuffix(parts[len(parts)-2], "s"), parts[len(parts)-1]
	if len(parts) == 4 {
		o.Site = parts[1]
	}
	o.Generation++
	o.ResourceVersion, o.Project, o.Spec = fmt.Sprint(100+o.Generation), "default", json.RawMessage(spec)
	o.UpdatedAt = testNow.Add(-5 * time.Minute)
	r.objects[path] = o
	return o
}

func (r *fakeRegion) readOperation(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.PathValue("id")
	story := r.operations[id]
	if len(story) == 0 {
		refuse(w, 404, fleet.NotFound, "operation "+id+" does not exist", "")
		return
	}
	if len(story) > 1 {
		r.operations[id] = story[1:]
	}
	reply(w, 200, r.operations[id][0])
}

func (r *fakeRegion) listOperations(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := api.List[api.Operation]{Items: []api.Operation{}}
	for _, id := range sortedKeys(r.operations) {
		op := r.operations[id][0]
		if want := req.URL.Query().Get("instance"); want == "" || want == op.Instance {
			list.Items = append(list.Items, op)
		}
	}
	reply(w, 200, list)
}

func (r *fakeRegion) cancel(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op := r.operations[req.PathValue("id")][0]
	op.State = fleet.OperationCancelled
	reply(w, 202, api.Accepted{Operation: &op})
}

func (r *fakeRegion) listDeliveries(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reply(w, 200, api.List[api.Delivery]{Items: r.deliveries})
}

func (r *fakeRegion) readLogs(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after, _ := strconv.ParseInt(req.URL.Query().Get("after"), 10, 64)
	list := api.List[api.LogChunk]{Items: []api.LogChunk{}}
	for _, chunk := range r.logs {
		if chunk.Node == req.URL.Query().Get("node") && chunk.Offset >= after {
			chunk.Data = base64.StdEncoding.EncodeToString([]byte(chunk.Data))
			list.Items = append(list.Items, chunk)
		}
	}
	reply(w, 200, list)
}

// readEvents lists, or streams what is behind Last-Event-ID and then closes the stream.
func (r *fakeRegion) readEvents(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Header.Get("Accept") != "text/event-stream" {
		reply(w, 200, api.List[api.Event]{Items: r.events})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	last, _ := strconv.Atoi(req.Header.Get("Last-Event-ID"))
	for _, e := range r.events {
		if id, _ := strconv.Atoi(e.ID); id > last {
			data, _ := json.Marshal(e)
			fmt.Fprintf(w, ": keep-alive\nid: %s\ndata: %s\n\n", e.ID, data)
			return // one per connection, so that the client has to come back
		}
	}
	w.(http.Flusher).Flush()
	r.mu.Unlock()
	<-req.Context().Done()
	r.mu.Lock()
}

func (r *fakeRegion) createToken(w http.ResponseWriter, req *http.Request) {
	var in api.TokenRequest
	_ = json.NewDecoder(req.Body).Decode(&in)
	reply(w, 201, api.Token{ID: "t1", Token: "shown-once", Role: in.Role, Project: in.Project, Note: in.Note, CreatedAt: testNow})
}

func (r *fakeRegion) beginUpload(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("u%d", len(r.uploads)+1)
	r.uploads[id] = []byte{}
	size, _ := strconv.ParseInt(req.URL.Query().Get("size"), 10, 64)
	w.Header().Set("Upload-Offset", "0")
	reply(w, 202, api.Artifact{Upload: id, Size: size})
}

func (r *fakeRegion) offset(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Upload-Offset", fmt.Sprint(len(r.uploads[req.PathValue("id")])))
}

func (r *fakeRegion) appendUpload(w http.ResponseWriter, req *http.Request) {
	data, err := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.PathValue("id")
	if req.Header.Get("Upload-Offset") != fmt.Sprint(len(r.uploads[id])) {
		refuse(w, 409, fleet.Conflict, "the upload stands elsewhere", "Upload-Offset")
		return
	}
	r.uploads[id] = append(r.uploads[id], data...)
	if err == nil {
		w.Header().Set("Upload-Offset", fmt.Sprint(len(r.uploads[id])))
	}
}

func (r *fakeRegion) completeUpload(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256(r.uploads[req.PathValue("id")])
	reply(w, 200, api.Artifact{SHA256: fleet.Hash(hex.EncodeToString(sum[:])), Size: int64(len(r.uploads[req.PathValue("id")]))})
}

// changes lists what arrived, as "METHOD path".
func (r *fakeRegion) changes() []string {
	var all []string
	for _, m := range r.arrived() {
		all = append(all, m.method+" "+m.path)
	}
	return all
}

func (r *fakeRegion) last() mutation {
	all := r.arrived()
	require.NotEmpty(r.t, all)
	return all[len(all)-1]
}

func (r *fakeRegion) arrived() []mutation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.mutations)
}

func (r *fakeRegion) uploaded(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.uploads[id])
}
