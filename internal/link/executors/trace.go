package executors

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

// trace records how far a call got: what was never sent was never started.
type trace struct {
	sent     atomic.Bool // the request left
	answers  atomic.Bool // an answer began
	answered atomic.Bool // the other side sent the result
}

// carrying adds the caller's W3C trace to the call, so that an executor can continue it.
func carrying(ctx context.Context) context.Context {
	carried := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carried)
	for _, name := range carried.Keys() {
		ctx = metadata.AppendToOutgoingContext(ctx, name, carried.Get(name))
	}
	return ctx
}

type traceKey struct{}

func traced(ctx context.Context) (context.Context, *trace) {
	t := &trace{}
	return context.WithValue(ctx, traceKey{}, t), t
}

// traces fills the trace of each call.
type traces struct{}

var _ stats.Handler = traces{}

// TagRPC leaves the context as it is: the trace is in it.
func (traces) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC records the progress of a call.
func (traces) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(traceKey{}).(*trace)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.OutPayload:
		t.sent.Store(true)
	case *stats.InHeader:
		t.answers.Store(true)
	case *stats.InTrailer:
		t.answered.Store(true)
	}
}

// TagConn leaves the context as it is.
func (traces) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (traces) HandleConn(context.Context, stats.ConnStats) {}
