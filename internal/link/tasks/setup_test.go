package tasks

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeA    = "node:plant-1-a"
	nodeB    = "node:plant-1-b"
	deadline = 10 * time.Second
)

// temporal is the Temporal behind the proxy: what has no function here must not be called.
type temporal struct {
	workflowservice.WorkflowServiceClient
	call func(ctx context.Context, in any) (any, error)
}

func through[T any](ctx context.Context, t *temporal, in any) (*T, error) {
	out, err := t.call(ctx, in)
	if out == nil {
		return new(T), err
	}
	return out.(*T), err
}

func (t *temporal) GetSystemInfo(ctx context.Context, in *workflowservice.GetSystemInfoRequest, _ ...grpc.CallOption) (*workflowservice.GetSystemInfoResponse, error) {
	return through[workflowservice.GetSystemInfoResponse](ctx, t, in)
}

func (t *temporal) DescribeNamespace(ctx context.Context, in *workflowservice.DescribeNamespaceRequest, _ ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return through[workflowservice.DescribeNamespaceResponse](ctx, t, in)
}

func (t *temporal) PollActivityTaskQueue(ctx context.Context, in *workflowservice.PollActivityTaskQueueRequest, _ ...grpc.CallOption) (*workflowservice.PollActivityTaskQueueResponse, error) {
	return through[workflowservice.PollActivityTaskQueueResponse](ctx, t, in)
}

func (t *temporal) RespondActivityTaskCompleted(ctx context.Context, in *workflowservice.RespondActivityTaskCompletedRequest, _ ...grpc.CallOption) (*workflowservice.RespondActivityTaskCompletedResponse, error) {
	return through[workflowservice.RespondActivityTaskCompletedResponse](ctx, t, in)
}

func (t *temporal) RespondActivityTaskFailed(ctx context.Context, in *workflowservice.RespondActivityTaskFailedRequest, _ ...grpc.CallOption) (*workflowservice.RespondActivityTaskFailedResponse, error) {
	return through[workflowservice.RespondActivityTaskFailedResponse](ctx, t, in)
}

func (t *temporal) RespondActivityTaskCanceled(ctx context.Context, in *workflowservice.RespondActivityTaskCanceledRequest, _ ...grpc.CallOption) (*workflowservice.RespondActivityTaskCanceledResponse, error) {
	return through[workflowservice.RespondActivityTaskCanceledResponse](ctx, t, in)
}

func (t *temporal) RecordActivityTaskHeartbeat(ctx context.Context, in *workflowservice.RecordActivityTaskHeartbeatRequest, _ ...grpc.CallOption) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
	return through[workflowservice.RecordActivityTaskHeartbeatResponse](ctx, t, in)
}

func (t *temporal) RecordWorkerHeartbeat(ctx context.Context, in *workflowservice.RecordWorkerHeartbeatRequest, _ ...grpc.CallOption) (*workflowservice.RecordWorkerHeartbeatResponse, error) {
	return through[workflowservice.RecordWorkerHeartbeatResponse](ctx, t, in)
}

func (t *temporal) ShutdownWorker(ctx context.Context, in *workflowservice.ShutdownWorkerRequest, _ ...grpc.CallOption) (*workflowservice.ShutdownWorkerResponse, error) {
	return through[workflowservice.ShutdownWorkerResponse](ctx, t, in)
}

// refusal is one line of the audit.
type refusal struct{ identity, reason, what string }

// bundle is a link with the proxy behind it.
type bundle struct {
	server   *Server
	conn     *grpc.ClientConn
	temporal *temporal
	dial     func() (*grpc.ClientConn, error)

	mu   sync.Mutex
	seen []refusal
}

type identityKey struct{}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{temporal: &temporal{}}
	b.temporal.call = func(context.Context, any) (any, error) { return nil, nil } //nolint:nilnil // an empty answer
	var err error
	b.server, err = New(Options{
		Upstream: b.temporal, Namespace: "holdfast", Queue: func(n fleet.NodeName) string { return "node." + string(n) },
		Secret: slices.Repeat([]byte{7}, SecretBytes), Refuse: b.audit,
		Identity: func(ctx context.Context) (name, key string, err error) {
			if who, ok := ctx.Value(identityKey{}).(string); ok {
				name, key, _ = strings.Cut(who, " ")
				return name, key, nil
			}
			return "", "", status.Error(codes.Unauthenticated, "nobody")
		},
	})
	require.NoError(t, err)
	b.serve(t)
	return b
}

func (b *bundle) audit(identity, reason, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, refusal{identity, reason, what})
}

// refusals gives the audit so far, and empties it.
func (b *bundle) refusals() []refusal {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := b.seen
	b.seen = nil
	return seen
}

// known proves an identity as the link's own interceptors do.
func known(ctx context.Context) context.Context {
	if who := metadata.ValueFromIncomingContext(ctx, "who"); len(who) == 1 {
		return context.WithValue(ctx, identityKey{}, who[0])
	}
	return ctx
}

type knownStream struct{ grpc.ServerStream }

func (s knownStream) Context() context.Context { return known(s.ServerStream.Context()) }

func (b *bundle) serve(t *testing.T) {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer(
		grpc.UnknownServiceHandler(b.server.Unknown),
		grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(known(ctx), in)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, knownStream{stream})
		}))
	b.server.Register(g)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	b.dial = func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///link", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
	var err error
	b.conn, err = b.dial()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.conn.Close())
		g.Stop()
		require.NoError(t, <-served)
	})
}

// as calls under an identity.
func as(t *testing.T, who string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "who", who)
}

func (b *bundle) client() workflowservice.WorkflowServiceClient {
	return workflowservice.NewWorkflowServiceClient(b.conn)
}
