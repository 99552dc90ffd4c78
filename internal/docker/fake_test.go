package docker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
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
	printed    int64
	requests   map[string]int // by the last part of their path
	exits      map[string]int // of commands that end at once, by program
	broken     string         // path that is answered 500
	stuck      bool           // stops do not help
	hung       bool           // nothing is answered
	filters    bool           // output is filtered piece by piece, as engines before 24 do
	corrupt    bool           // it cannot read its own files to their end
	comment    string         // of every image
	// The versions of the API that it speaks; every other is refused.
	oldest, newest apiVersion
}

// imageID is that of every image.
const imageID = "cafe0123456789"

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
	oomLooks        int // at its end before it is known
	unmeasured      bool
	starts          int
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
		containers: map[string]*fakeContainer{}, exits: map[string]int{}, requests: map[string]int{},
		oldest: apiVersion{1, 44}, newest: apiVersion{1, 60},
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /_ping":                            f.ping,
		"GET /{version}/images/{rest...}":       f.spoken(f.image),
		"POST /{version}/images/create":         f.spoken(f.pull),
		"POST /{version}/containers/create":     f.spoken(f.create),
		"GET /{version}/containers/json":        f.spoken(f.list),
		"GET /{version}/containers/{id}/json":   f.spoken(f.on(f.inspect)),
		"POST /{version}/containers/{id}/start": f.spoken(f.on(f.start)),
		"POST /{version}/containers/{id}/stop":  f.spoken(f.on(f.stop)),
		"POST /{version}/containers/{id}/kill":  f.spoken(f.on(f.kill)),
		"POST /{version}/containers/{id}/wait":  f.spoken(f.wait),
		"GET /{version}/containers/{id}/logs":   f.spoken(f.on(f.logs)),
		"GET /{version}/containers/{id}/stats":  f.spoken(f.on(f.stats)),
		"DELETE /{version}/containers/{id}":     f.spoken(f.on(f.remove)),
	} {
		mux.HandleFunc(pattern, handle)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return f
}

// ping says the newest version, to whoever asks without one.
func (f *fakeEngine) ping(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Api-Version", f.newest.String())
	_, _ = io.WriteString(w, "OK")
}

// spoken refuses other versions as an engine does, and hangs when it is told to.
func (f *fakeEngine) spoken(do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		oldest, newest, hung := f.oldest, f.newest, f.hung
		f.mu.Unlock()
		if hung {
			<-r.Context().Done()
			return
		}
		asked, err := parseVersion(strings.TrimPrefix(r.PathValue("version"), "v"))
		require.NoError(f.t, err)
		switch {
		case asked.compare(oldest) < 0:
			refuse(w, http.StatusBadRequest, fmt.Sprintf("client version %s is too old. Minimum supported API version is %s", asked, oldest))
		case asked.compare(newest) > 0:
			refuse(w, http.StatusBadRequest, fmt.Sprintf("client version %s is too new. Maximum supported API version is %s", asked, newest))
		default:
			do(w, r)
		}
	}
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
		f.requests[path.Base(r.URL.Path)]++
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
	if !f.hasImage(name) {
		refuse(w, http.StatusNotFound, "No such image")
		return
	}
	answer(w, http.StatusOK, map[string]string{"Comment": f.comment})
}

// hasImage finds an image by its name, or by the first digits of its id.
func (f *fakeEngine) hasImage(name string) bool {
	return f.images[name] || len(f.images) > 0 && strings.HasPrefix(imageID, name)
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
	if !f.hasImage(c.Image) {
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
			all = append(all, listed{ID: c.id, Names: []string{"/" + c.name}, Labels: maps.Clone(c.Labels), State: c.state})
		}
	}
	answer(w, http.StatusOK, all)
}

func (f *fakeEngine) inspect(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	var is inspected
	is.ID, is.Config.Labels, is.Config.StopTimeout, is.State.StartedAt = c.id, c.Labels, c.StopTimeout, strconv.Itoa(c.starts)
	is.State.Running, is.State.ExitCode, is.HostConfig.Memory = c.state == "running", c.code, c.HostConfig.Memory
	if is.State.Running {
		is.State.Pid = 4711
	} else {
		c.oomLooks--
		is.State.OOMKilled = c.oom && c.oomLooks < 0
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
	c.state, c.ended, c.starts = "running", make(chan struct{}), c.starts+1
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

func (f *fakeEngine) stop(w http.ResponseWriter, r *http.Request, c *fakeContainer) {
	c.signals = append(c.signals, "SIGTERM "+r.URL.Query().Get("t"))
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
	f.requests["wait"]++
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
	output := c.output
	if text := r.URL.Query().Get("tail"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(f.t, err)
		output = output[max(len(output)-n, 0):]
		f.requests["tail"]++
	}
	for _, p := range output {
		if p.at.Before(since) {
			continue
		}
		if !f.filters {
			since = time.Time{}
		}
		frameOf(w, 1, p.at.Format(time.RFC3339Nano)+" "+p.text)
	}
	if f.corrupt {
		frameOf(w, 3, "Error grabbing logs: unexpected EOF")
	}
}

func frameOf(w io.Writer, stream byte, text string) {
	header := make([]byte, 8)
	header[0] = stream
	binary.BigEndian.PutUint32(header[4:], uint32(len(text)))
	_, _ = w.Write(bytes.Join([][]byte{header, []byte(text)}, nil))
}

func (f *fakeEngine) stats(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	if c.unmeasured {
		return // an empty answer
	}
	_, _ = io.WriteString(w, `{"cpu_stats":{"cpu_usage":{"total_usage":2500000000}},"memory_stats":{"usage":9000,"stats":{"inactive_file":1000}}}`)
}

func (f *fakeEngine) remove(w http.ResponseWriter, _ *http.Request, c *fakeContainer) {
	c.end(137)
	delete(f.containers, c.name)
	w.WriteHeader(http.StatusNoContent)
}

// rotate drops the oldest output of a container, all but the last pieces.
func (f *fakeEngine) rotate(name string, keep int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[name]
	c.output = c.output[max(len(c.output)-keep, 0):]
}

// printsAt has a container print something that it began at a time.
func (f *fakeEngine) printsAt(name string, at int64, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[name]
	c.output = append(c.output, piece{time.Unix(1700000000+at, 0).UTC(), text})
}

// prints has a container print something.
func (f *fakeEngine) prints(name string, texts ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[name]
	for _, text := range texts {
		f.printed++
		at := time.Unix(1700000000, 5+f.printed/3) // parts of one line have one time
		c.output = append(c.output, piece{at.UTC(), text})
	}
}
