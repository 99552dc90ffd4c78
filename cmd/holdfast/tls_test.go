package main

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// C87: the command line over TLS, and what it says when that is not set up.
func TestTLS(t *testing.T) {
	t.Parallel()
	r, ca := newRegion(t), testkit.NewAuthority(t)
	files := certs.ServerFiles{}
	files.Cert, files.Key = ca.Issue(filepath.Join(t.TempDir(), "server"))
	conf, err := certs.Server(files, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.server.Config.Handler.ServeHTTP(w, req) }))
	secure.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: conf.GetConfigForClient, Certificates: conf.Certificates}
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	secure.StartTLS()
	t.Cleanup(secure.Close)

	s := newShell(t, r)
	s.env[envAddress] = secure.URL
	s.ok("get", "nodes", "--ca", ca.File)
	got := s.run("get", "nodes")
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.stderr, "--ca FILE")
	s.env[envCA] = ca.File
	s.ok("get", "nodes")
	s.env[envAddress] = strings.Replace(secure.URL, "https:", "http:", 1)
	require.Contains(t, s.run("get", "nodes").stderr, "that port speaks TLS")
	s.env[envAddress] = strings.Replace(r.server.URL, "http:", "https:", 1)
	require.Contains(t, s.run("get", "nodes").stderr, "does not speak TLS")
	s.env[envAddress] = r.server.URL
	s.ok("get", "nodes")
	require.Equal(t, exitUsage, s.run("get", "nodes", "--ca", ca.File).code)
}
