package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// observe counts and logs each request, without tokens, bodies or query values, and turns a
// panic into an answer.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := s.Now()
		out := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		body := &bodyRead{ReadCloser: r.Body}
		r.Body = body
		defer func() {
			failure := recover()
			if failure != nil {
				s.recovered(out, r, failure)
			}
			s.dismiss(out, r, body)
			took := s.Now().Sub(began)
			route := routeOf(r)
			status := max(out.Status(), http.StatusOK) // 0 when nothing was written
			s.metrics.requests.WithLabelValues(route, r.Method, strconv.Itoa(status)).Inc()
			s.metrics.duration.WithLabelValues(route, r.Method).Observe(took.Seconds())
			s.Log.Log(r.Context(), levelOf(route, status), "request", "method", r.Method, "route", route, "path", r.URL.Path, "status", status,
				"bytes", out.BytesWritten(), "took", took)
			if failure != nil && !isProblem(out) {
				Abort()
			}
		}()
		next.ServeHTTP(out, r)
	})
}

// levelOf keeps what repeats every second out of the log while all is well.
func levelOf(route string, status int) slog.Level {
	if status < http.StatusBadRequest && (quiet[route] || strings.HasSuffix(route, "/reports")) {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

var quiet = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// recovered answers a panic where the answer has not begun.
func (s *Server) recovered(w middleware.WrapResponseWriter, r *http.Request, failure any) {
	if err, ok := failure.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return
	}
	s.Log.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(failure), "stack", string(debug.Stack()))
	if w.Status() == 0 {
		WriteProblem(w, ProblemFor(fleet.Errorf(fleet.Internal, "panic")))
	}
}

func isProblem(w http.ResponseWriter) bool {
	return w.Header().Get("Content-Type") == "application/problem+json"
}

// Abort closes the connection in the middle of an answer, so that no client takes the part
// that was sent for the whole.
func Abort() {
	panic(http.ErrAbortHandler) //nolint:forbidigo // the one way that net/http offers
}

// routeOf is the pattern that served a request, or one word for all that nothing served.
func routeOf(r *http.Request) string {
	if c := chi.RouteContext(r.Context()); c != nil && c.RoutePattern() != "" {
		return c.RoutePattern()
	}
	return "none"
}
