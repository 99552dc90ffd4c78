package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
)

// Defaults of ExecutorOptions.
const (
	DefaultMaxInFlight = 64
	DefaultShutdown    = 30 * time.Second
)

// Handler runs one execution of a module: JSON in, JSON out. The context ends with the call's deadline, and at
// the deadline of a drain. A status error of google.golang.org/grpc/status keeps its code; any other error is
// the module's own failure.
type Handler func(ctx context.Context, input []byte) ([]byte, error)

// Module is one function that the region can call.
type Module struct {
	// Name is a letter, then up to 62 letters, digits and '_'.
	Name, Description string
	// InputSchema and OutputSchema are JSON schemas (2020-12); "" accepts anything.
	InputSchema, OutputSchema string
	Handle                    Handler
}

// ExecutorOptions configure an Executor.
type ExecutorOptions struct {
	Modules []Module
	// MaxInFlight is how many executions run at a time, 64 by default. The region sends further ones to another
	// provider of the group.
	MaxInFlight int
	// TLS authenticates the executor to the region, whose servers trust the authority in their --ca; nil is
	// plaintext. To accept only calls of the region, require a client certificate in it.
	// Options.ExecutorServerName is the name in the certificate.
	TLS *tls.Config
	// Shutdown is how long executions may continue when Serve ends, 30 s by default.
	Shutdown time.Duration
	// Logger gets panics; nil is silent.
	Logger *slog.Logger
}

// Executor runs modules for the region. It accepts executions that name a live connection of one of its
// InstanceConnections.
type Executor struct {
	nodev1.UnimplementedExecutorServer

	opt      ExecutorOptions
	handlers map[string]Handler
	slots    chan struct{}

	mu    sync.Mutex
	lanes []*lane
}

// NewExecutor checks the modules.
func NewExecutor(opt ExecutorOptions) (*Executor, error) {
	if opt.MaxInFlight == 0 {
		opt.MaxInFlight = DefaultMaxInFlight
	}
	if opt.Shutdown == 0 {
		opt.Shutdown = DefaultShutdown
	}
	if opt.MaxInFlight < 0 || opt.Shutdown < 0 {
		return nil, errors.New("provider: MaxInFlight and Shutdown must not be negative")
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	opt.Modules = slices.Clone(opt.Modules)
	e := &Executor{opt: opt, handlers: map[string]Handler{}, slots: make(chan struct{}, opt.MaxInFlight)}
	for _, m := range opt.Modules {
		if m.Name == "" || m.Handle == nil {
			return nil, fmt.Errorf("provider: module %q needs a name and a handler", m.Name)
		}
		if e.handlers[m.Name] != nil {
			return nil, fmt.Errorf("provider: duplicate module %q", m.Name)
		}
		e.handlers[m.Name] = m.Handle
	}
	return e, nil
}

// attach accepts the executions of a lane until the returned function is called. A nil Executor has none.
func (e *Executor) attach(l *lane) func() {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lanes = append(slices.Clone(e.lanes), l)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lanes = slices.DeleteFunc(slices.Clone(e.lanes), func(other *lane) bool { return other == l })
	}
}

// security tells the region how to call this executor; nil is plaintext. A given server name means TLS too: a
// proxy in front of the executor may provide it.
func (e *Executor) security(serverName string) *nodev1.ExecutorTLS {
	if e == nil || e.opt.TLS == nil && serverName == "" {
		return nil
	}
	return &nodev1.ExecutorTLS{ServerName: serverName}
}

// offers are the modules in the form of a registration; a nil Executor has none.
func (e *Executor) offers() []*nodev1.Module {
	if e == nil {
		return nil
	}
	offers := make([]*nodev1.Module, len(e.opt.Modules))
	for i, m := range e.opt.Modules {
		offers[i] = &nodev1.Module{
			Name: m.Name, Description: m.Description, InputSchema: m.InputSchema, OutputSchema: m.OutputSchema,
		}
	}
	return offers
}

// Serve accepts executions on the listener until the context ends; then it gives running ones time to finish
// and returns nil.
func (e *Executor) Serve(ctx context.Context, listener net.Listener) error {
	options := []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: DefaultHeartbeatTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveEvery / 2, PermitWithoutStream: true}),
	}
	if e.opt.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(e.opt.TLS)))
	}
	server := grpc.NewServer(options...)
	nodev1.RegisterExecutorServer(server, e)
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		force := time.AfterFunc(e.opt.Shutdown, server.Stop)
		defer force.Stop()
		server.GracefulStop()
	})
	err := server.Serve(listener)
	if stop() {
		server.Stop()
		return fmt.Errorf("serve executions: %w", err)
	}
	<-finished
	return nil
}

// Execute implements the protocol; the region calls it.
func (e *Executor) Execute(ctx context.Context, request *nodev1.ExecuteRequest) (*nodev1.ExecuteResponse, error) {
	handle := e.handlers[request.GetModule()]
	if handle == nil {
		return nil, status.Errorf(codes.Unimplemented, "module %.80q not found", request.GetModule())
	}
	select {
	case e.slots <- struct{}{}:
		defer func() { <-e.slots }()
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d executions are running, which is the limit", e.opt.MaxInFlight)
	}
	ctx, leave, ok := e.enter(ctx, request.GetConnectionId())
	if !ok {
		return nil, status.Error(codes.Unavailable, "the connection has ended, is draining, or belongs to another provider")
	}
	defer leave()
	output, err := e.guarded(ctx, request, handle)
	if err != nil {
		return nil, failure(ctx, err)
	}
	return &nodev1.ExecuteResponse{Output: output}, nil
}

func (e *Executor) enter(ctx context.Context, id string) (context.Context, func(), bool) {
	e.mu.Lock()
	lanes := e.lanes
	e.mu.Unlock()
	for _, l := range lanes {
		if inner, leave, ok := l.enter(ctx, id); ok {
			return inner, leave, true
		}
	}
	return nil, nil, false
}

// guarded turns a panic into the failure of one execution.
func (e *Executor) guarded(ctx context.Context, request *nodev1.ExecuteRequest, handle Handler) (output []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			e.opt.Logger.Error("a module panicked", "module", request.GetModule(), "execution", request.GetExecutionId(),
				"panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = status.Errorf(codes.Internal, "module %s panicked", request.GetModule())
		}
	}()
	return handle(ctx, request.GetInput())
}

// failure gives a handler's error its code.
func failure(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errDrainDeadline):
		return status.Error(codes.Aborted, errDrainDeadline.Error())
	case cause != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return status.FromContextError(ctx.Err()).Err()
	}
	if st, ok := status.FromError(err); ok {
		return st.Err()
	}
	return status.Error(codes.Unknown, err.Error())
}
