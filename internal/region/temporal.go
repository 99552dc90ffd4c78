package region

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

const tryAgain = 500 * time.Millisecond

// temporalBack is the longest pause of a server between attempts to connect to Temporal.
const temporalBack = 2 * time.Second

// insist repeats a call until it succeeds or the context ends. It logs what it waits for once, and again when the
// error needs another action.
func insist(ctx context.Context, log *slog.Logger, what string, call func(context.Context) error) error {
	said, hint := false, ""
	for {
		err := call(ctx)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		if !fleet.KindOf(err).Retryable() {
			return fmt.Errorf("%s: %w", what, err)
		}
		if todo := hintOf(err); !said || todo != hint {
			log.WarnContext(ctx, "waiting", "for", what, "error", err)
			said, hint = true, todo
		}
		if pause.For(ctx, tryAgain) != nil {
			return ctx.Err()
		}
	}
}

func hintOf(err error) string {
	var known *fleet.Error
	if errors.As(err, &known) {
		return known.Hint
	}
	return ""
}

// startWorker starts a worker, a new one for each attempt, because the SDK returns the first failure of a worker
// for ever.
func startWorker(ctx context.Context, log *slog.Logger, what string, fresh func() worker.Worker) (worker.Worker, error) {
	var w worker.Worker
	err := insist(ctx, log, what, func(context.Context) error {
		w = fresh()
		return w.Start()
	})
	return w, err
}

// dial makes a client that connects on first use. Calls of nodes also use its connection.
func (s *server) dial(access temporalAccess) (client.Client, error) {
	traced, err := s.tracer.workflows()
	if err != nil {
		return nil, err
	}
	c, err := client.NewLazyClient(client.Options{
		HostPort: s.cfg.TemporalAddress, Namespace: s.cfg.TemporalNamespace, Identity: "server." + s.id[:8],
		Logger: sdklog.NewStructuredLogger(s.log.With("from", "temporal")), Interceptors: traced,
		Credentials: access.credentials, ConnectionOptions: client.ConnectionOptions{
			TLS: access.tls, DialOptions: []grpc.DialOption{redial(temporalBack), grpc.WithChainUnaryInterceptor(patient)},
		},
	})
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "make a Temporal client: %w", err)
	}
	return c, nil
}

// redial has a connection be tried again after pauses that double up to the longest one. gRPC's own grow to two minutes.
func redial(longest time.Duration) grpc.DialOption {
	p := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: linkAlive}
	p.Backoff.BaseDelay, p.Backoff.MaxDelay = 200*time.Millisecond, longest
	return grpc.WithConnectParams(p)
}

// patient has polls wait until Temporal is there: a worker whose polls fail pauses for up to 10 s, also when Temporal is back.
func patient(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error { //nolint:revive // the shape of grpc.UnaryClientInterceptor
	switch method {
	case workflowservice.WorkflowService_PollWorkflowTaskQueue_FullMethodName, workflowservice.WorkflowService_PollActivityTaskQueue_FullMethodName:
		opts = append([]grpc.CallOption{grpc.WaitForReady(true)}, opts...)
	}
	return call(ctx, method, req, reply, cc, opts...)
}

// reach checks that Temporal has the namespace.
func (s *server) reach(ctx context.Context) error {
	_, err := s.temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.cfg.TemporalNamespace})
	return s.cfg.unreached(err)
}

// prepare registers what a namespace needs before the first workflow: the search attributes and the schedules.
func prepare(ctx context.Context, c client.Client, namespace, region string, t Timing) error {
	if err := addAttributes(ctx, c, namespace); err != nil {
		return err
	}
	for _, d := range duties(t, region) {
		if err := d.schedule(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// BuildID identifies the running program by its own bytes: a rebuilt server is another build.
func BuildID() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the program: %w", err)
	}
	f, err := os.Open(path) //nolint:gosec // the program itself
	if err != nil {
		return "", fmt.Errorf("open the program: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
