package region

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

// collect takes what is sent to an OTLP endpoint.
func collect(t *testing.T) (endpoint string, received func() string) {
	t.Helper()
	var mu sync.Mutex
	var all []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, body...)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string { mu.Lock(); defer mu.Unlock(); return string(all) }
}

// X22
func TestTracer(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

	t.Run("goes on in the trace that was kept", func(t *testing.T) {
		t.Parallel()
		endpoint, _ := collect(t)
		traces, err := newTracer(t.Context(), endpoint, "test")
		require.NoError(t, err)
		t.Cleanup(func() { traces.close(context.Background()) })
		ctx, span := traces.tracer.Start(traces.resume(t.Context(), parent), "wake")
		defer span.End()
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", trace.SpanContextFromContext(ctx).TraceID().String())
		for _, none := range []string{"", "nonsense"} {
			require.False(t, trace.SpanContextFromContext(traces.resume(t.Context(), none)).IsValid())
		}
	})
	t.Run("loses nothing to a path that is no text", func(t *testing.T) {
		t.Parallel()
		endpoint, received := collect(t)
		traces, err := newTracer(t.Context(), endpoint, "test")
		require.NoError(t, err)
		h := traces.serving(http.NotFoundHandler())
		for _, path := range []string{"/whole", "/%ff"} {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		traces.close(t.Context())
		require.Contains(t, received(), "/whole")
		require.Contains(t, received(), "/%ff")
	})
	t.Run("traces nothing without an endpoint", func(t *testing.T) {
		t.Parallel()
		traces, err := newTracer(t.Context(), "", "test")
		require.NoError(t, err)
		require.Equal(t, t.Context(), traces.resume(t.Context(), parent))
	})
}
