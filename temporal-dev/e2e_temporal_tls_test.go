//go:build slow

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const noAttributes = "bare" // a namespace without search attributes

// guarded stands before the real Temporal as a managed one's door does: it speaks TLS, lets in who
// has a certificate and a key, and registers nothing for them.
type guarded struct {
	address string
	files   certs.ServerFiles
	proxy   *httputil.ReverseProxy

	mu    sync.Mutex
	key   string
	shown []string // serial numbers of the certificates that were let in
	conns map[net.Conn]struct{}
}

func guard(t *testing.T, frontend string, files certs.ServerFiles, key string) *guarded {
	t.Helper()
	plain := &http.Protocols{}
	plain.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: plain}
	t.Cleanup(transport.CloseIdleConnections)
	g := &guarded{files: files, key: key, conns: map[net.Conn]struct{}{}}
	to := &url.URL{Scheme: "http", Host: frontend}
	g.proxy = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	conf, err := certs.Server(files, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	l, err := net.Listen("tcp", loopback+":0")
	require.NoError(t, err)
	g.address = l.Addr().String()
	h := &http.Server{
		Handler: g, TLSConfig: conf, ConnState: g.connState, ReadHeaderTimeout: testPatience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan error, 1)
	go func() { done <- h.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		require.NoError(t, h.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return g
}

func (g *guarded) connState(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if state == http.StateClosed {
		delete(g.conns, c)
	} else {
		g.conns[c] = struct{}{}
	}
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	key := g.key
	serial := r.TLS.PeerCertificates[0].SerialNumber.String()
	if !slices.Contains(g.shown, serial) {
		g.shown = append(g.shown, serial)
	}
	g.mu.Unlock()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+key:
		refuse(w, "16")
	case strings.HasSuffix(r.URL.Path, "/AddSearchAttributes"):
		refuse(w, "7")
	default:
		g.proxy.ServeHTTP(w, r)
	}
}

func refuse(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", code)
	w.Header().Set("Grpc-Message", "Request unauthorized.")
}

// renew takes from now on another key, and other certificates, and cuts who came by the old ones.
func (g *guarded) renew(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.key = key
	for c := range g.conns {
		_ = c.Close()
	}
}

func (g *guarded) serials() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.shown)
}

// startServer runs holdfast server until the end of the test, or until the function is called.
func (c cli) startServer(t *testing.T, args ...string) (said *transcript, stop func()) {
	t.Helper()
	said = &transcript{}
	cmd := exec.Command(c.path, append([]string{"server"}, args...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, said, said
	require.NoError(t, spawn(cmd, syscall.SIGKILL))
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), said)
		}
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("the server said:\n%s", said)
		}
	})
	return said, stop
}

// C87, X10: a server whose Temporal asks for TLS, a certificate and a key, in front of real ones.
func TestE2ETemporalTLS(t *testing.T) {
	t.Parallel()
	s := startStack(t, 1)
	operator := newCLI(t, s)
	ca, next := testkit.NewAuthority(t), testkit.NewAuthority(t)
	files := certs.ServerFiles{ClientCA: filepath.Join(t.TempDir(), "clients.pem")}
	files.Cert, files.Key = ca.Issue(filepath.Join(t.TempDir(), "temporal"))
	require.NoError(t, os.WriteFile(files.ClientCA, ca.PEM(), 0o600))
	const first, second = "first-s3cret", "second-s3cret"
	door := guard(t, s.doc.Temporal, files, first)
	base, key := filepath.Join(t.TempDir(), "server"), filepath.Join(t.TempDir(), "key")
	cert, certKey := ca.Issue(base)
	require.NoError(t, os.WriteFile(key, []byte(first+"\n"), 0o600))
	chosen, err := choose([]listener{{name: "api", want: loopback + ":0"}}, nil)
	require.NoError(t, err)
	address := chosen.dial("api")
	region := []string{"--database-url", s.database, "--listen", address, "--link", s.otherLink, lasting(e2eLease)}
	shows, trusts, sends := []string{"--temporal-tls-cert", cert, "--temporal-tls-key", certKey}, []string{"--temporal-tls-ca", ca.File}, []string{"--temporal-api-key-file", key}
	secure := []string{"--temporal-tls", "--temporal-address", door.address}
	all := slices.Concat(region, secure, shows, trusts, sends)

	t.Run("who is refused says what to give, and ends", func(t *testing.T) {
		wrong := filepath.Join(t.TempDir(), "wrong")
		require.NoError(t, os.WriteFile(wrong, []byte("wrong-s3cret"), 0o600))
		s.register(t, noAttributes)
		for what, row := range map[string]struct {
			args []string
			code int
			says string
		}{
			"the system's authorities":       {slices.Concat(secure, shows, sends), cliUsage, "hint: give the authority that signed Temporal's certificate: --temporal-tls-ca FILE"},
			"another authority":              {slices.Concat(secure, shows, sends, []string{"--temporal-tls-ca", next.File}), cliUsage, "--temporal-tls-ca FILE"},
			"another authority, API alone":   {slices.Concat(secure, shows, sends, []string{"--temporal-tls-ca", next.File, "--roles", "api"}), cliUsage, "--temporal-tls-ca FILE"},
			"no certificate":                 {slices.Concat(secure, trusts, sends), cliDenied, "hint: Temporal requires a client certificate of an authority that it trusts: give --temporal-tls-cert and --temporal-tls-key"},
			"no key":                         {slices.Concat(secure, trusts, shows), cliDenied, "give --temporal-api-key-file"},
			"another key":                    {slices.Concat(secure, trusts, shows, []string{"--temporal-api-key-file", wrong}), cliDenied, "check that the key in --temporal-api-key-file is valid"},
			"a Temporal without TLS":         {[]string{"--temporal-tls", "--temporal-address", s.doc.Temporal}, cliUsage, "leave out --temporal-tls"},
			"a certificate without its key":  {slices.Concat(secure, trusts, sends, []string{"--temporal-tls-cert", cert}), cliUsage, "give both, or neither"},
			"a key in the clear":             {sends, cliUsage, "give --temporal-tls as well"},
			"a file that is missing":         {slices.Concat(secure, trusts, shows, []string{"--temporal-api-key-file", "missing"}), cliUsage, "read --temporal-api-key-file"},
			"no search attributes, no right": {slices.Concat(secure, trusts, shows, sends, []string{"--temporal-namespace", noAttributes}), cliConflict, "lacks the search attributes Site, Node, "},
		} {
			t.Run(what, func(t *testing.T) {
				_, said := operator.call(t, row.code, slices.Concat([]string{"server"}, region, row.args)...)
				require.Contains(t, said, row.says)
				require.NotContains(t, said, "s3cret")
			})
		}
	})

	s.order(t, "stop", serverName) // from here on all goes by the door
	said, stop := operator.startServer(t, all...)
	waitFor(t, "the server is ready", func(ctx context.Context) error { return answers(ctx, "http://"+address+"/readyz") })
	over := *s
	over.api, err = api.NewClient("http://"+address, s.doc.Token)
	require.NoError(t, err)
	st := newStory(t, &over, "plant-1", "press-7") // an operation, end to end
	require.Len(t, door.serials(), 1)
	t.Run("another certificate and another key are used without a restart", func(t *testing.T) {
		next.Issue(base)
		require.NoError(t, os.WriteFile(key, []byte(second+"\n"), 0o600))
		require.NoError(t, os.WriteFile(files.ClientCA, next.PEM(), 0o600))
		ca.Issue(strings.TrimSuffix(files.Cert, ".pem"))
		door.renew(second)
		for range 2 {
			op, hash := st.release(t)
			requireSucceeded(t, st.ended(t, op.ID))
			st.good(t, hash)
		}
		require.Len(t, door.serials(), 2)
	})
	stop()
	for _, secret := range []string{first, second} {
		require.NotContains(t, said.String(), secret)
	}
	require.Contains(t, said.String(), "using the new Temporal API key")
}

// register makes a namespace, and waits until it can be asked for what is not in it.
func (s *stack) register(t *testing.T, namespace string) {
	t.Helper()
	_, err := s.temporal.RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: namespace, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	waitFor(t, "the namespace is there", func(ctx context.Context) error {
		_, err := s.temporal.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{Namespace: namespace, Query: `Site = "none"`})
		if status.Code(err) == codes.InvalidArgument {
			return nil
		}
		if err == nil {
			return errNotYet
		}
		return err
	})
}
