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

// C87: the command line over TLS, and what it says when that is not set up. It goes alone: it
// changes its directory.
func TestTLS(t *testing.T) {
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
	require.Contains(t, s.run("get", "nodes").stderr, "that port uses TLS")
	s.env[envAddress] = strings.Replace(r.server.URL, "http:", "https:", 1)
	require.Contains(t, s.run("get", "nodes").stderr, "does not use TLS")
	s.env[envAddress] = r.server.URL
	s.ok("get", "nodes")
	require.Equal(t, exitUsage, s.run("get", "nodes", "--ca", ca.File).code)

	// A saved context has all that its region is spoken to with, and lends it to no other.
	saved := newShell(t, nil)
	saved.stdin = regionToken + "\n"
	t.Chdir(filepath.Dir(ca.File))
	saved.ok("context", "set", "lab", "--address", secure.URL, "--token", "-", "--ca", filepath.Base(ca.File),
		"--client-cert", files.Cert, "--client-key", files.Key)
	t.Chdir(t.TempDir())
	require.Contains(t, saved.ok("get", "nodes").stderr+saved.ok("context", "list", "-o", "json").stdout, ca.File)
	other := testkit.NewAuthority(t)
	saved.env[envCA] = other.File
	require.Equal(t, exitUnreachable, saved.run("get", "nodes").code, "the environment is before the current context")
	saved.ok("get", "nodes", "--context", "lab")
	require.Equal(t, exitUnreachable, saved.run("get", "nodes", "--context", "lab", "--ca", other.File).code)
	delete(saved.env, envCA)
	require.Equal(t, exitUsage, saved.run("context", "set", "lab", "--ca", "missing.pem").code)
	require.Equal(t, exitUsage, saved.run("context", "set", "lab", "--client-cert", files.Cert).code, "a certificate without its key")
	saved.ok("get", "nodes")
	saved.env[envAddress] = strings.Replace(secure.URL, "127.0.0.1", "localhost", 1)
	require.Contains(t, saved.run("get", "nodes").stderr, "--ca FILE", "another address, without what was saved for the first")
	delete(saved.env, envAddress)
	saved.ok("context", "set", "lab", "--address", r.server.URL)
	require.NotContains(t, saved.ok("context", "list", "-o", "json").stdout, ca.File)
}
