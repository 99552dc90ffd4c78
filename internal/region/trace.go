package region

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/workflows"
)

// tracer makes one trace of a delivery: from the HTTP request through workflow, activity
// and node, and back to the fetch (X22). A nil tracer traces nothing and costs nothing.
type tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	carry    propagation.TextMapPropagator
}

// newTracer sends spans to an OTLP endpoint (http://host:4318); "" makes no tracer.
func newTracer(ctx context.Context, endpoint, process string) (*tracer, error) {
	if endpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint+"/v1/traces"))
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "trace to %s: %w", endpoint, err)
	}
	p := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", process))),
	)
	return &tracer{provider: p, tracer: p.Tracer("holdfast"), carry: propagation.TraceContext{}}, nil
}

const flushLimit = 2 * time.Second

// close sends what is left.
func (t *tracer) close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // spans that cannot be sent are lost
}

// workflows traces what a Temporal client starts and its workers run.
func (t *tracer) workflows() ([]interceptor.ClientInterceptor, error) {
	if t == nil {
		return nil, nil
	}
	i, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: t.tracer, TextMapPropagator: t.carry})
	if err != nil {
		return nil, fleet.Errorf(fleet.Internal, "trace workflows: %w", err)
	}
	return []interceptor.ClientInterceptor{i}, nil
}

// serving traces requests. Spans contain the method and the path, which contain no secret. Without a tracer, the
// caller's own trace is still passed on to executors.
func (t *tracer) serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		if t == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		ctx, span := t.tracer.Start(ctx, "HTTP "+r.Method, trace.WithSpanKind(trace.SpanKindServer),
			path(r.URL))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// resume continues the stored trace; "" is none.
func (t *tracer) resume(ctx context.Context, traceparent string) context.Context {
	if t == nil {
		return ctx
	}
	return t.carry.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// waker wakes an entity for a caller that does not know the original request, and continues that request's trace.
type waker struct {
	store  *store.Store
	flows  *workflows.Client
	tracer *tracer
}

func (w *waker) Wake(ctx context.Context, subject string) error {
	if w.tracer == nil {
		return w.flows.Wake(ctx, subject)
	}
	traceparent, err := w.store.WakeTrace(ctx, subject)
	if err != nil {
		return err
	}
	return w.flows.Wake(w.tracer.resume(ctx, traceparent), subject)
}

// path is the path of an address in a span. It stays escaped: one span with invalid UTF-8 would lose the whole
// batch it is sent with.
func path(u *url.URL) trace.SpanStartEventOption {
	return trace.WithAttributes(attribute.String("url.path", u.EscapedPath()))
}

// tracedTransport traces the requests that a node makes on behalf of an activity.
type tracedTransport struct {
	tracer *tracer
	base   http.RoundTripper
}

// calling returns a client whose requests carry the trace.
func (t *tracer) calling(c *http.Client) *http.Client {
	if t == nil {
		return c
	}
	traced := *c
	traced.Transport = &tracedTransport{tracer: t, base: c.Transport}
	return &traced
}

// RoundTrip sends the request within a new span, if it belongs to a trace.
func (t *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return t.base.RoundTrip(r)
	}
	ctx, span := t.tracer.tracer.Start(r.Context(), "HTTP "+r.Method, trace.WithSpanKind(trace.SpanKindClient),
		path(r.URL))
	defer span.End()
	r = r.Clone(ctx)
	t.tracer.carry.Inject(ctx, propagation.HeaderCarrier(r.Header))
	res, err := t.base.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
	}
	return res, err
}
