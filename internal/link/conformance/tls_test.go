package conformance

import (
	"context"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/link/executors"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/provider"
)

// execute has a region that trusts and shows some files run the module of a provider.
func (r *region) execute(files certs.ClientFiles, input string) (string, error) {
	r.Helper()
	conf, err := certs.Client(files)
	require.NoError(r, err)
	pool := executors.New(executors.Options{Directory: r.store, Now: now, TLS: certs.Named(conf), Hint: hint.Executor})
	defer pool.Close()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	answer, err := pool.Execute(ctx, fleet.Execution{
		ID: "1", Module: fleet.ModuleRef{Namespace: "acme.text", Name: "work"}, Input: []byte(input),
	})
	return string(answer.Output), err
}

// C87: executions over TLS, from the SDK's Executor to the region's pool.
func TestExecutorTLS(t *testing.T) {
	t.Parallel()
	ca, other := testkit.NewAuthority(t), testkit.NewAuthority(t)
	shown := func(a *testkit.Authority) certs.ClientFiles {
		f := certs.ClientFiles{CA: ca.File}
		f.Cert, f.Key = a.Issue(filepath.Join(t.TempDir(), "client"))
		return f
	}
	served := func(clientCA string) *tls.Config {
		f := certs.ServerFiles{ClientCA: clientCA}
		f.Cert, f.Key = ca.Issue(filepath.Join(t.TempDir(), "server"))
		conf, err := certs.Server(f, now, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return conf
	}
	echo := func(_ context.Context, input []byte) ([]byte, error) { return input, nil }
	offered := func(t *testing.T, security *tls.Config, change ...func(*provider.Options)) *region {
		r := newRegion(t, patient())
		with, _ := r.secured("acme.text", "", security, echo)
		r.run(options(r.address, r.token, append([]func(*provider.Options){with}, change...)...))
		r.active("p", "")
		return r
	}
	named := func(name string) func(*provider.Options) {
		return func(o *provider.Options) { o.ExecutorServerName = name }
	}
	for name, row := range map[string]struct {
		security *tls.Config
		change   []func(*provider.Options)
		files    certs.ClientFiles
		hint     string // "" when it works
	}{
		"by the host of its address":      {security: served(""), files: certs.ClientFiles{CA: ca.File}},
		"by the name that it registers":   {security: served(""), change: []func(*provider.Options){named("localhost")}, files: certs.ClientFiles{CA: ca.File}},
		"with certificates on both sides": {security: served(ca.File), files: shown(ca)},
		"in the clear, as before":         {},
		"by another name": {
			security: served(""), change: []func(*provider.Options){named("elsewhere.example")}, files: certs.ClientFiles{CA: ca.File},
			hint: "the server name that its provider registers",
		},
		"by an authority that the region does not know": {security: served(""), files: certs.ClientFiles{CA: other.File}, hint: "--ca FILE"},
		"where the region shows nothing":                {security: served(ca.File), files: certs.ClientFiles{CA: ca.File}, hint: "--client-cert"},
		"where the region shows another's certificate":  {security: served(ca.File), files: shown(other), hint: "--client-cert"},
		"of an executor that speaks in the clear":       {change: []func(*provider.Options){named("localhost")}, files: certs.ClientFiles{CA: ca.File}, hint: "the executor does not use TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := offered(t, row.security, row.change...)
			out, err := r.execute(row.files, `{"a":1}`)
			if row.hint == "" {
				require.NoError(t, err)
				require.JSONEq(t, `{"a":1}`, out)
				return
			}
			var refused *fleet.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, fleet.Unavailable, refused.Kind)
			require.Contains(t, refused.Hint, row.hint, "%v", err)
		})
	}
}

// X22: an execution carries the caller's trace to who runs it.
func TestExecutorTrace(t *testing.T) {
	t.Parallel()
	r := newRegion(t, patient())
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	with, _ := r.modules("acme.text", "", func(ctx context.Context, _ []byte) ([]byte, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		require.Equal(t, []string{trace}, md.Get("traceparent"))
		return []byte(`{}`), nil
	})
	r.run(options(r.address, r.token, with))
	r.active("p", "")
	pool := executors.New(executors.Options{Directory: r.store, Now: now})
	defer pool.Close()
	traced := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": trace})
	ctx, cancel := context.WithTimeout(traced, patience)
	defer cancel()
	_, err := pool.Execute(ctx, fleet.Execution{ID: "1", Module: fleet.ModuleRef{Namespace: "acme.text", Name: "work"}, Input: []byte(`{}`)})
	require.NoError(t, err)
}
