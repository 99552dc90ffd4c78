package docker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeEngine is as much of an engine as the driver speaks to, on a unix socket.
type fakeEngine struct {
	t    *testing.T
	host string

	mu         sync.Mutex
	images     map[string]bool // that are there
	configs    map[string]imageConfig
	remote     map[string]bool // that can be pulled
	pulls      []string
	containers map[string]*fakeContainer // by name
	made       int
	exits      map[string]int // of commands that end at once, by program
	broken     string         // path that is answered 500
	stuck      bool           // stops do not help
}

// imageConfig is what an image brings to run.
type imageConfig struct{ Entrypoint, Cmd []string }

// argv is what an engine runs: an ENTRYPOINT that is given drops the image's CMD too.
func (f *fakeEngine) argv(c *fakeContainer) []string {
	entrypoint, cmd := c.Entrypoint, c.Cmd
	if len(entrypoint) == 0 {
		entrypoint = f.configs[c.Image].Entrypoint
		if len(cmd) == 0 {
			cmd = f.configs[c.Image].Cmd
		}
	}
	return slices.Concat(entrypoint, cmd)
}

type fakeContainer struct {
	create
	id, name, state string
	code            int
	oom             bool
	ended           chan struct{}
	output          []piece
	signals         []string
}

type piece struct {
	at   time.Time
	text string
}

func newFakeEngine(t *testing.T) *fakeEngine {
	t.Helper()
	dir, err := os.MkdirTemp("", "engine") // short: it has to fit a socket's address
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakeEngine{
		t: t, host: "unix://" + filepath.Join(dir, "s"), images: map[string]bool{}, configs: map[string]imageConfig{}, remote: map[string]bool{},
		containers: map[string]*fakeContainer{}, exits: map[string]int{},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /v1.41/_ping":                  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "OK") },
		"GET /v1.41/images/{rest...}":       f.image,
		"POST /v1.41/images/create":         f.pull,
		"POST /v1.41/containers/create":     f.create,
		"GET /v1.41/containers/json":        f.list,
		"GET /v1.41/containers/{id}/json":   f.on(f.inspect),
		"POST /v1.41/containers/{id}/start": f.on(f.start),
		"POST /v1.41/containers/{id}/stop":  f.on(f.stop),
		"POST /v1.41/containers/{id}/kill":  f.on(f.kill),
		"POST /v1.41/containers/{id}/wait":  f.wait,
		"GET /v1.41/containers/{id}/logs":   f.on(f.logs),
		"GET /v1.41/containers/{id}/stats":  f.on(f.stats),
		"DELETE /v1.41/containers/{id}":     f.on(f.remove),
	} {
		mux.HandleFunc(pattern, handle)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return f
}

func answer(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]string{"message": message})
}

func (f *fakeEngine) find(id string) *fakeContainer {
	for _, c := range f.containers {
		if c.id == id || c.name == id {
			return c
		}
	}
	return nil
}

func (f *fakeEngine) on(do func(http.ResponseWriter, *http.Request, *fakeContainer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		c := f.find(r.PathValue("id"))
		switch {
		case c == nil:
			refuse(w, http.StatusNotFound, "No such container")
		case f.broken != "" && strings.HasSuffix(r.URL.Path, f.broken):
			refuse(w, http.StatusInternalServerError, "it does not work")
		default:
			do(w, r, c)
		}
	}
}

func (f *fakeEngine) image(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _ := strings.CutSuffix(r.PathValue("rest"), "/json")
	if !f.images[name] {
		refuse(w, http.StatusNotFound, "No such image")
		return
	}
	answer(w, http.StatusOK, map[string]string{})
}

func (f *fakeEngine) pull(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.URL.Query().Get("fromImage") + ":" + r.URL.Query().Get("tag")
	f.pulls = append(f.pulls, name)
	switch {
	case strings.HasPrefix(name, "gone"):
		refuse(w, http.StatusNotFound, "pull access denied")
	case strings.HasPrefix(name, "late"):
		answer(w, http.StatusOK, map[string]any{"error": "manifest unknown", "errorDetail": map[string]any{"code": 404}})
	case !f.remote[name]:
		_, _ = io.WriteString(w, `{"status":"Pulling"} {"error":"connection reset"}`)
	default:
		answer(w, http.StatusOK, map[string]any{"status": "Pulling"})
		f.images[name] = true
	}
}

func (f *fakeEngine) create(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := r.URL.Query().Get("name")
	c := &fakeContainer{name: name, state: "created", ended: make(chan struct{})}
	require.NoError(f.t, json.NewDecoder(r.Body).Decode(&c.create))
	if f.containers[name] != nil {
		refuse(w, http.StatusConflict, "the name is in use")
		return
	}
	if !f.images[c.Image] {
		refuse(w, http.StatusNotFound, "No such image")
		return
	}
	f.made++
	c.id = fmt.Sprintf("c%d", f.made)
	f.containers[name] = c
	answer(w, http.StatusCreated, map[string]string{"Id": c.id})
}

func (f *fakeEngine) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var filters struct{ Label []string }
	require.NoError(f.t, json.Unmarshal([]byte(r.URL.Query().Get("filters")), &filters))
	label, value, _ := strings.Cut(filters.Label[0], "=")
	all := []listed{}
	for _, c := range f.containers {
		if c.Labels[label] == value {
			all = append(all, listed{ID: c.id, Labels: c.Labels, State: c.state})
		}
	}
	answer(w, http.StatusOK, all)
}

func (f *fakeEngine) inspect(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	var is inspected
	is.ID, is.Config.Labels = c.id, c.Labels
	is.State.Running, is.State.ExitCode, is.State.OOMKilled = c.state == "running", c.code, c.oom
	if is.State.Running {
		is.State.Pid = 4711
	}
	answer(w, http.StatusOK, is)
}

func (f *fakeEngine) start(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	argv := f.argv(c)
	if len(argv) == 0 {
		refuse(w, http.StatusBadRequest, "no command specified")
		return
	}
	program := argv[0]
	if program == "no-such-program" {
		refuse(w, http.StatusNotFound, "executable file not found")
		return
	}
	c.state, c.ended = "running", make(chan struct{})
	if code, ends := f.exits[program]; ends {
		c.end(code)
	}
	w.WriteHeader(http.StatusNoContent)
}

// end is the end of a container's program; the engine's lock is held.
func (c *fakeContainer) end(code int) {
	if c.state == "running" {
		c.state, c.code = "exited", code
		close(c.ended)
	}
}

func (f *fakeEngine) stop(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	c.signals = append(c.signals, "SIGTERM")
	if f.stuck {
		refuse(w, http.StatusInternalServerError, "it did not stop")
		return
	}
	c.end(0)
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeEngine) kill(w http.ResponseWriter, r *http.Request, c *fakeContainer) {
	c.signals = append(c.signals, r.URL.Query().Get("signal"))
	c.end(137)
	w.WriteHeader(http.StatusNoContent)
}

func (f *fakeEngine) wait(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	c := f.find(r.PathValue("id"))
	f.mu.Unlock()
	if c == nil {
		refuse(w, http.StatusNotFound, "No such container")
		return
	}
	select {
	case <-c.ended:
		answer(w, http.StatusOK, map[string]int{"StatusCode": c.code})
	case <-r.Context().Done():
	}
}

func (f *fakeEngine) logs(w http.ResponseWriter, r *http.Request, c *fakeContainer) {
	since := time.Time{}
	if text := r.URL.Query().Get("since"); text != "" {
		seconds, nanos, _ := strings.Cut(text, ".")
		s, err := strconv.ParseInt(seconds, 10, 64)
		require.NoError(f.t, err)
		n, err := strconv.ParseInt(nanos, 10, 64)
		require.NoError(f.t, err)
		since = time.Unix(s, n)
	}
	for _, p := range c.output {
		if p.at.Before(since) {
			continue
		}
		raw := []byte(p.at.Format(time.RFC3339Nano) + " " + p.text)
		header := make([]byte, 8)
		header[0] = 1
		binary.BigEndian.PutUint32(header[4:], uint32(len(raw)))
		_, _ = w.Write(bytes.Join([][]byte{header, raw}, nil))
	}
}

func (f *fakeEngine) stats(w http.ResponseWriter, _ *http.Request, _ *fakeContainer) {
	_, _ = io.WriteString(w, `{"cpu_stats":{"cpu_usage":{"total_usage":2500000000}},"memory_stats":{"usage":9000,"stats":{"inactive_file":1000}}}`)
}

func (f *fakeEngine) remove(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	c.end(137)
	delete(f.containers, c.name)
	w.WriteHeader(http.StatusNoContent)
}

// prints has a container print something.
func (f *fakeEngine) prints(name string, texts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[name]
	for _, text := range texts {
		at := time.Unix(1700000000, 5)
		if n := len(c.output); n > 0 {
			at = c.output[n-1].at.Add(time.Nanosecond)
		}
		c.output = append(c.output, piece{at.UTC(), text})
	}
}
