package region

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// heard is a log that is read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *heard) find(what *regexp.Regexp) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if found := what.FindSubmatch(h.text.Bytes()); found != nil {
		return string(found[1])
	}
	return ""
}

// X22: a process that serves only the link can be watched too, over TLS and without a client
// certificate, and shows nothing else.
func TestProbesOfALinkOnlyServer(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	cfg := ServerConfig{
		Region: testkit.Region, DatabaseURL: testkit.DatabaseURL(t), TemporalAddress: "127.0.0.1:1", TemporalNamespace: "holdfast",
		Link: "127.0.0.1:0", Metrics: "127.0.0.1:0", Roles: Roles{RoleLink}, Timing: FastTiming(), Build: "test",
		TLS: certs.ServerFiles{ClientCA: ca.File},
	}
	cfg.TLS.Cert, cfg.TLS.Key = ca.Issue(filepath.Join(t.TempDir(), "server"))
	said := &heard{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- RunServer(ctx, cfg, slog.New(slog.NewTextHandler(io.MultiWriter(said, t.Output()), nil)))
	}()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	address := ""
	require.Eventually(t, func() bool {
		address = said.find(regexp.MustCompile(`"serving metrics" address=(\S+)`))
		return address != ""
	}, time.Minute, 5*time.Millisecond)

	security, err := certs.Client(certs.ClientFiles{CA: ca.File})
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: security}
	t.Cleanup(transport.CloseIdleConnections)
	get := func(path string) (int, string) {
		resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + address + path)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		code, _ := get(path)
		require.Equal(t, http.StatusOK, code, path)
	}
	_, metrics := get("/metrics")
	require.Contains(t, metrics, "holdfast_link_connections")
	code, _ := get("/api/v1/nodes")
	require.Equal(t, http.StatusNotFound, code)
}
