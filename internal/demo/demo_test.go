package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 30 * time.Second

// bench is a server with a clock and an environment of its own.
type bench struct {
	Process
	mu       sync.Mutex
	at       time.Time
	env      map[string]string
	out, err lines
}

// lines collects what the server prints.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.news)
	l.news = make(chan struct{})
	return l.text.Write(p)
}

// until waits for a line with a text.
func (l *lines) until(t *testing.T, part string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		l.mu.Lock()
		text, news := l.text.String(), l.news
		l.mu.Unlock()
		for line := range strings.Lines(text) {
			if strings.Contains(line, part) {
				return strings.TrimSpace(line)
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			require.Contains(t, text, part)
		}
	}
}

func setup(env map[string]string, args ...string) *bench {
	b := &bench{at: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), env: env}
	b.out.news, b.err.news = make(chan struct{}), make(chan struct{})
	b.Process = Process{
		Args: args, Env: func(name string) string { return b.env[name] }, Stdout: &b.out, Stderr: &b.err,
		Now: func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.at },
	}
	return b
}

func (b *bench) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = b.at.Add(d)
}

// get asks a handler.
func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func (b *bench) handler(t *testing.T) http.Handler {
	t.Helper()
	o, err := b.options()
	require.NoError(t, err)
	return newServer(b.Process, o).handler()
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"message":"hello","speed":45}`), 0o600))
	b := setup(map[string]string{
		"HOLDFAST_DEPLOYMENT": "web", "HOLDFAST_REPLICA": "0af3c21b9d44", "HOLDFAST_REVISION": "7", "HOLDFAST_EPOCH": "3",
		"HOLDFAST_NODE": "plant-1-a", "HOLDFAST_SITE": "plant-1", "HOLDFAST_CONFIG": path,
	})
	h := b.handler(t)
	b.later(2 * time.Second)
	code, text := get(h, "/")
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, `{"deployment":"web","replica":"0af3c21b9d44","revision":"7","epoch":"3","node":"plant-1-a","site":"plant-1",
		"config":{"hash":"751c88bfb5fb1ad98de1c774fd5ca372c1b41ba7dd65631e6e67a4fc865ba48b","bytes":30,"message":"hello"},
		"healthy":true,"requests":1,"inFlight":1,"seconds":2}`, text)
	require.Equal(t, `GET "/" in 0.000 s`, b.out.until(t, "GET"))

	require.NoError(t, os.WriteFile(path, []byte("plain"), 0o600))
	var a answer
	_, text = get(h, "/")
	require.NoError(t, json.Unmarshal([]byte(text), &a))
	require.Equal(t, 5, a.Config.Bytes, "the file as it is now")
	require.NoError(t, os.Remove(path))
	_, text = get(h, "/")
	require.Contains(t, text, "no such file")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	b := setup(nil)
	s := newServer(b.Process, Options{})
	h := s.handler()
	check := func(want int) {
		t.Helper()
		code, _ := get(h, "/health")
		require.Equal(t, want, code)
	}
	check(200)
	get(h, "/fail?for=30s")
	check(503)
	b.later(30 * time.Second)
	check(200)
	get(h, "/fail")
	b.later(24 * time.Hour)
	check(503)
	get(h, "/recover")
	check(200)
	s.failBetween(b.Now().Add(time.Minute), time.Time{}) // as --fail-after does
	check(200)
	b.later(time.Minute)
	check(503)
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	h := setup(nil).handler(t)
	for path, want := range map[string]string{
		"/delay?for=soon":         `invalid for "soon": want a duration of at most 1h0m0s, for example 2s`,
		"/fail?for=-1s":           `invalid for "-1s"`,
		"/burn?for=2h":            `invalid for "2h"`,
		"/burn?for=0&cores=0":     `invalid cores "0": want a number from 1 to `,
		"/exit?code=256":          `invalid code "256": want a number from 0 to 255`,
		"/delay?for=0.01&code=no": "",
		"/burn?for=1ms":           "",
	} {
		code, text := get(h, path)
		require.Equal(t, want != "", code == http.StatusBadRequest, path)
		require.Contains(t, text, want)
	}
	code, _ := get(h, "/other")
	require.Equal(t, http.StatusNotFound, code)
}

// run starts the server, and gives its address and how it ends.
func run(t *testing.T, ctx context.Context, b *bench) (url string, ended <-chan int) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	codes := make(chan int, 1)
	go func() { codes <- b.Main(ctx) }()
	_, address, _ := strings.Cut(b.out.until(t, "listens on"), "listens on ")
	return "http://" + address, codes
}

func within(t *testing.T, codes <-chan int) int {
	t.Helper()
	select {
	case code := <-codes:
		return code
	case <-time.After(patience):
		require.Fail(t, "it does not end")
		return 0
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	out, err := http.Get(url) //nolint:noctx // it listens on this machine
	require.NoError(t, err)
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	require.NoError(t, err)
	return string(text)
}

func TestServer(t *testing.T) {
	t.Parallel()
	t.Run("ends with the code that was requested, after its answer", func(t *testing.T) {
		t.Parallel()
		b := setup(map[string]string{"HOLDFAST_REPLICA": "0af3c21b9d44"}, "--listen", "127.0.0.1:0")
		url, ended := run(t, t.Context(), b)
		b.out.until(t, "replica 0af3c21b9d44 listens on 127.0.0.1:")
		require.Equal(t, "exits with code 3\n", fetch(t, url+"/exit?code=3"))
		require.Equal(t, 3, within(t, ended))
	})
	t.Run("answers what it received when it is stopped", func(t *testing.T) {
		t.Parallel()
		config := filepath.Join(t.TempDir(), "config")
		require.NoError(t, syscall.Mkfifo(config, 0o600))
		b := setup(map[string]string{"HOLDFAST_CONFIG": config}, "--listen", "127.0.0.1:0")
		ctx, stop := context.WithCancel(t.Context())
		url, ended := run(t, ctx, b)
		got := make(chan string, 1)
		go func() { got <- fetch(t, url+"/") }()
		written, err := os.OpenFile(config, os.O_WRONLY, 0) // returns when the server reads it
		require.NoError(t, err)
		stop()
		b.out.until(t, "stops: it finishes 1 requests")
		_, err = written.WriteString("late")
		require.NoError(t, err)
		require.NoError(t, written.Close())
		require.Contains(t, <-got, `"bytes":4`)
		require.Equal(t, 0, within(t, ended))
	})
	t.Run("exits by itself", func(t *testing.T) {
		t.Parallel()
		b := setup(nil, "--listen", "127.0.0.1:0", "--exit-after", "1ms", "--exit-code", "5")
		require.Equal(t, 5, b.Main(t.Context()))
		b = setup(nil, "--start-after", "1h", "--exit-after", "1ms", "--exit-code", "6")
		require.Equal(t, 6, b.Main(t.Context()), "also before it listens")
	})
	t.Run("listens where PORT says", func(t *testing.T) {
		t.Parallel()
		b := setup(map[string]string{"PORT": "nowhere"})
		require.Equal(t, 1, b.Main(t.Context()))
		b.err.until(t, "nowhere")
	})
	t.Run("explains its flags", func(t *testing.T) {
		t.Parallel()
		b := setup(nil, "--help")
		require.Equal(t, 0, b.Main(t.Context()))
		b.out.until(t, "-exit-after")
		for _, args := range [][]string{{"--port", "1"}, {"now"}} {
			b = setup(nil, args...)
			require.Equal(t, 2, b.Main(t.Context()))
			b.err.until(t, `see "holdfast demo --help"`)
		}
	})
}
