package region

import (
	"context"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	narrow "github.com/holdfast-io/holdfast/internal/link/tasks"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/workers"
)

// nodeWorker polls for deliveries once the store is recovered, the region knows the node and Temporal answers
// through the link.
type nodeWorker struct {
	cfg     NodeConfig
	agent   *node.Agent
	tasks   *activities.Node
	gate    *idle.Gate
	traces  *tracer
	serving chan<- struct{} // closed when it does
	log     *slog.Logger
}

func (n *nodeWorker) run(ctx context.Context) error {
	for _, first := range []<-chan struct{}{n.agent.Ready(), n.agent.Enrolled()} {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-first:
		}
	}
	c, err := dialLink(n.cfg, nodeTokens{n.agent.Key, time.Now}, n.gate, n.traces, n.log)
	if err != nil {
		return err
	}
	defer c.Close()
	w, err := startWorker(ctx, n.log, "temporal", func() worker.Worker {
		return workers.NewNode(c, fleet.NodeName(n.cfg.Node), n.tasks)
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	defer n.gate.Close() // the worker waits for its polls
	close(n.serving)
	<-ctx.Done()
	return ctx.Err()
}

// linkAlive is how often a quiet connection is probed: the shortest that gRPC allows.
const linkAlive = 10 * time.Second

// dialLink makes a client of the link's restricted Temporal, which connects on first use.
func dialLink(cfg NodeConfig, tokens nodeTokens, gate *idle.Gate, t *tracer, log *slog.Logger) (client.Client, error) {
	traced, err := t.workflows()
	if err != nil {
		return nil, err
	}
	target, err := linkTarget(cfg.Link)
	if err != nil {
		return nil, err
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: target, Namespace: narrow.Namespace, Identity: "node." + string(tokens.key().Node()),
		Logger: sdklog.NewStructuredLogger(log.With("from", "temporal")), Interceptors: traced,
		ConnectionOptions: client.ConnectionOptions{
			TLS:           cfg.security,
			KeepAliveTime: linkAlive, KeepAliveTimeout: linkAlive / 2, // one server may hang while others work
			DialOptions: []grpc.DialOption{
				grpc.WithPerRPCCredentials(tokens), grpc.WithChainUnaryInterceptor(gate.Unary, tokens.again), redial(cfg.reconnect()),
			},
		},
		WorkerHeartbeatInterval: -1, // the stream reports the node's state
	})
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "make a client of the link: %w", err)
	}
	return c, nil
}

// nodeTokens sign each call anew: an intercepted token is valid for a minute.
type nodeTokens struct {
	key func() identity.Key
	now func() time.Time
}

var _ credentials.PerRPCCredentials = nodeTokens{}

// GetRequestMetadata makes the token of one call.
func (t nodeTokens) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t.key().Sign(identity.LinkAudience, t.now())
	return map[string]string{"authorization": "Bearer " + token}, err
}

// RequireTransportSecurity is false: a token is short-lived, so a trusted network is enough.
func (nodeTokens) RequireTransportSecurity() bool { return false }

// again repeats a call that was refused or ended because the key changed. To a worker with failing polls,
// a key change would look like an overloaded region.
func (t nodeTokens) again(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error { //nolint:revive // the shape of grpc.UnaryClientInterceptor
	key := t.key()
	err := call(ctx, method, req, reply, cc, opts...)
	code := status.Code(err)
	void := code == codes.Unauthenticated || code == codes.Canceled && ctx.Err() == nil
	if void && !t.key().Same(key) {
		err = call(ctx, method, req, reply, cc, opts...)
	}
	return err
}
