package certs_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// C87: who is refused is in the listener's log, with what to do, once a minute for each mistake.
func TestListener(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	var told []audit.Refusal
	door := certs.Listener(b.conf, "peer", func() time.Time { return b.at }, slog.New(slog.NewTextHandler(&b.log, nil)),
		func(r audit.Refusal) { told = append(told, r) })
	stranger := testkit.NewAuthority(t)
	shown := func(a *testkit.Authority) *tls.Config {
		f := certs.ClientFiles{CA: b.ca.File}
		f.Cert, f.Key = a.Issue(filepath.Join(t.TempDir(), "client"))
		return must(certs.Client(f))
	}
	knock := func(as func(net.Conn)) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			c, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				as(c)
				_ = c.Close()
			}
		}()
		c, err := l.Accept()
		require.NoError(t, err)
		defer func() { _ = c.Close(); <-gone }()
		_, _, err = door.Clone().ServerHandshake(c)
		return err
	}
	secure := func(conf *tls.Config) func(net.Conn) {
		return func(c net.Conn) {
			conf := conf.Clone()
			conf.ServerName, conf.NextProtos = "localhost", []string{"h2"}
			s := tls.Client(c, conf)
			if s.Handshake() == nil {
				_, _ = s.Read(make([]byte, 1)) // until the other side ends it
			}
		}
	}
	for _, row := range []struct {
		as   func(net.Conn)
		hint string
	}{
		{func(c net.Conn) { _, _ = c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) }, "the caller does not use TLS"},
		{secure(must(certs.Client(certs.ClientFiles{CA: b.ca.File}))), "the caller sends no certificate"},
		{secure(shown(stranger)), "is not of --tls-client-ca"},
		{secure(must(certs.Client(certs.ClientFiles{CA: stranger.File}))), "the caller rejects this certificate"},
	} {
		for range 2 {
			require.Error(t, knock(row.as), row.hint)
		}
		require.Equal(t, 1, strings.Count(b.log.String(), row.hint), "%s\n%s", row.hint, b.log.String())
	}
	require.Len(t, told, 8, "each time")
	require.Equal(t, audit.Refusal{Door: "peer", Reason: audit.TLS, What: "it does not use TLS, from 127.0.0.1"}, told[0])
	said := b.log.Len()
	require.Error(t, knock(func(net.Conn) {}))
	require.Equal(t, said, b.log.Len(), "a probe of the port is nobody's mistake")
	b.at = b.at.Add(time.Minute)
	require.Error(t, knock(func(c net.Conn) { _, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }))
	require.Greater(t, b.log.Len(), said)
	require.NoError(t, knock(secure(shown(b.ca))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err) //nolint:forbidigo // a test ends here
	}
	return v
}

// C87: the same error has another remedy where another program is called.
func TestHints(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	_, err := b.meet(certs.ClientFiles{CA: testkit.NewAuthority(t).File})
	require.Contains(t, hint.Region(err), "the region's certificate")
	require.Contains(t, hint.Peer(err), "the peer's certificate")
	require.Contains(t, hint.Executor(err), "the executor's certificate")
	_, err = b.meet(certs.ClientFiles{CA: b.ca.File})
	require.Contains(t, hint.Peer(err), "start this node with --client-cert")
	require.Contains(t, hint.Executor(err), "start the region's servers with --client-cert")
	require.Empty(t, hint.Peer(nil))
	require.NoError(t, certs.TemporalError("temporal:7233", nil))
	require.Equal(t, net.ErrClosed, certs.TemporalError("temporal:7233", net.ErrClosed))
	for text, kind := range map[string]fleet.Kind{
		"remote error: tls: revoked certificate":                            fleet.Unauthenticated,
		"remote error: tls: unknown certificate":                            fleet.Unauthenticated,
		"remote error: tls: expired certificate":                            fleet.Unavailable,
		"x509: certificate has expired or is not yet valid: current time":   fleet.Unavailable,
		"x509: certificate is not valid for any names, but wanted to match": fleet.Invalid,
	} {
		err := certs.TemporalError("temporal:7233", errors.New(text))
		require.Equal(t, kind, fleet.KindOf(err), text)
		require.ErrorContains(t, err, "reach Temporal at temporal:7233: "+text)
	}
	require.Empty(t, hint.Executor(net.ErrClosed))
}

// C87: an HTTP server's log tells of callers that it refused, and keeps its lines.
func TestErrorLog(t *testing.T) {
	t.Parallel()
	b := setup(t, true)
	told := make(chan audit.Refusal, 10)
	var lines strings.Builder
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &http.Server{
		ReadHeaderTimeout: time.Minute, TLSConfig: b.conf,
		ErrorLog: certs.ErrorLog("http", slog.New(slog.NewTextHandler(&lines, nil)), func(r audit.Refusal) { told <- r }),
	}
	ended := make(chan error, 1)
	go func() { ended <- h.ServeTLS(l, "", "") }()
	res, err := http.Get("http://" + l.Addr().String()) //nolint:noctx // it is answered at once
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, res.StatusCode)
	require.NoError(t, res.Body.Close())
	require.Equal(t, audit.Refusal{Door: "http", Reason: audit.TLS, What: "it does not use TLS, from 127.0.0.1"}, <-told)
	conf := must(certs.Client(certs.ClientFiles{CA: b.ca.File}))
	conf.ServerName = "localhost"
	c, err := tls.Dial("tcp", l.Addr().String(), conf)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	require.Error(t, err)
	require.NoError(t, h.Shutdown(t.Context()))
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
	require.Equal(t, audit.Refusal{Door: "http", Reason: audit.TLS, What: "it sends no certificate, from 127.0.0.1"}, <-told)
	require.Equal(t, 2, strings.Count(lines.String(), "TLS handshake error"))
}
