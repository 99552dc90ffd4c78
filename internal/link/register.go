package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// The versions of the protocol that this server supports.
const (
	protocolOldest uint32 = 1
	protocolNewest uint32 = 1
)

const (
	maxModules     = 256
	maxSchema      = 256 << 10
	maxDescription = 4 << 10
)

// Register checks an offer and stores the connection only if it is accepted.
func (s *Server) Register(ctx context.Context, in *nodev1.RegisterRequest) (*nodev1.RegisterResponse, error) {
	out, err := s.register(ctx, in)
	if err != nil {
		kind := fleet.KindOf(err)
		s.metrics.registered.WithLabelValues(string(kind)).Inc()
		if kind == fleet.Internal {
			s.o.Log.Error("registration failed", "identity", IdentityOf(ctx).Name, "error", err)
		}
		return nil, StatusOf(err)
	}
	s.metrics.registered.WithLabelValues("accepted").Inc()
	return out, nil
}

func (s *Server) register(ctx context.Context, in *nodev1.RegisterRequest) (*nodev1.RegisterResponse, error) {
	if s.leaving.Load() {
		return nil, fleet.Errorf(fleet.Unavailable, "this server is stopping").WithHint("register at another server")
	}
	r, err := s.admit(ctx, in)
	if err != nil {
		return nil, err
	}
	results, err := s.judge(in.GetModules(), &r)
	if err != nil {
		return nil, err
	}
	made, err := s.crowds.registering.ask(ctx, r.Identity, r)
	err = cmp.Or(err, made.err)
	if fleet.KindOf(err) == fleet.Conflict && r.Namespace != "" {
		s.refuse(ctx, "namespace_owned", string(r.Namespace))
	}
	if err != nil {
		return nil, err
	}
	c := made.connection
	site, err := s.welcome(ctx, c, r.Node)
	if err != nil {
		return nil, err
	}
	return &nodev1.RegisterResponse{
		IdleAfter: s.idleAfter(r.Node), ConnectionId: string(c.id), ProtocolVersion: r.Protocol, Modules: results,
		HeartbeatInterval: durationpb.New(s.o.Timing.HeartbeatEvery), HeartbeatTimeout: durationpb.New(s.o.Timing.HeartbeatTimeout),
		RequiredTimeout: durationpb.New(s.o.Timing.StreamRequired), Site: site,
	}, nil
}

// admit checks everything except the modules: form, version, and what this identity may do.
func (s *Server) admit(ctx context.Context, in *nodev1.RegisterRequest) (fleet.Registration, error) {
	who := IdentityOf(ctx)
	r := fleet.Registration{
		Identity: who.Name, Node: who.Node, Key: who.Key, Provider: fleet.ProviderName(in.GetProvider()),
		PeerAddress: in.GetPeerAddress(), Namespace: fleet.ModuleNamespace(in.GetModuleNamespace()), Group: fleet.GroupID(in.GetGroupId()), Executor: in.GetExecutorAddress(),
		Caller: callerOf(ctx), ExecutorTLS: fleet.ExecutorTLS{On: in.GetExecutorTls() != nil, ServerName: in.GetExecutorTls().GetServerName()},
	}
	if in.GetNodeFacts() != nil {
		r.Facts = factsOf(in.GetNodeFacts())
	}
	var err error
	if r.Protocol, err = negotiate(in.GetProtocolVersion()); err != nil {
		return r, err
	}
	for _, m := range in.GetModules() {
		r.Modules = append(r.Modules, fleet.ModuleOffer{
			Name: fleet.ModuleName(m.GetName()), Description: m.GetDescription(),
			InputSchema: m.GetInputSchema(), OutputSchema: m.GetOutputSchema(),
		})
	}
	if err := r.Validate(); err != nil {
		if fleet.KindOf(err) == fleet.Denied {
			s.refuse(ctx, "namespace_reserved", string(r.Namespace))
		}
		return r, err
	}
	if host, _, err := net.SplitHostPort(r.Executor); err == nil {
		if err := s.o.Executors.AllowHost(r.Caller, host); err != nil {
			s.refuse(ctx, "executor_address", r.Executor)
			return r, err
		}
	}
	if r.Node == "" && in.GetNodeFacts() != nil {
		return r, fleet.Errorf(fleet.Invalid, "only nodes may send facts").At("nodeFacts")
	}
	if r.Node == "" && r.PeerAddress != "" {
		return r, fleet.Errorf(fleet.Invalid, "only nodes may have a peer").At("peerAddress")
	}
	if r.Node != "" && string(r.Provider) != string(r.Node) {
		s.refuse(ctx, "provider_name", string(r.Provider))
		return r, fleet.Errorf(fleet.Denied, "node %s may register only under its own name", r.Node).At("provider")
	}
	if r.Namespace != "" && !who.MayClaim(r.Namespace) {
		s.refuse(ctx, "namespace_not_granted", string(r.Namespace))
		return r, fleet.Errorf(fleet.Denied, "the module namespace %s was not granted to %s", r.Namespace, who.Name).At("moduleNamespace").
			WithHint("holdfast token create --role provider --module-namespace " + string(r.Namespace))
	}
	return r, nil
}

// callerOf is the address of the caller.
func callerOf(ctx context.Context) netip.Addr {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(from.Addr.String())
	if err != nil {
		return netip.Addr{} // not over a network
	}
	return at.Addr().Unmap()
}

func factsOf(in *nodev1.NodeFacts) fleet.NodeFacts {
	out := fleet.NodeFacts{
		Address: in.GetAddress(), Labels: in.GetLabels(), Separation: fleet.Separation(in.GetIsolation()), Readiness: in.GetReadiness(),
		Resources: fleet.Resources{CPU: in.GetCpu(), Memory: in.GetMemory(), GPUs: int(in.GetGpus())},
	}
	for _, d := range in.GetDrivers() {
		out.Drivers = append(out.Drivers, fleet.Driver(d))
	}
	return out
}

// negotiate takes the lower of both versions (C81).
func negotiate(theirs uint32) (uint32, error) {
	if theirs < protocolOldest {
		return 0, fleet.Errorf(fleet.Precondition, "protocol version %d is not supported", theirs).At("protocolVersion").
			WithHint(fmt.Sprintf("use versions %d to %d", protocolOldest, protocolNewest))
	}
	return min(theirs, protocolNewest), nil
}

// judge accepts or rejects each module separately, and leaves the accepted ones in r. If modules were offered and
// none is accepted, there is no connection.
func (s *Server) judge(offers []*nodev1.Module, r *fleet.Registration) ([]*nodev1.ModuleResult, error) {
	if len(offers) > maxModules {
		return nil, fleet.Errorf(fleet.TooLarge, "%d modules offered; the limit is %d", len(offers), maxModules).At("modules")
	}
	var results []*nodev1.ModuleResult
	var taken []fleet.ModuleOffer
	seen := map[fleet.ModuleName]bool{}
	for _, m := range r.Modules {
		result := &nodev1.ModuleResult{Name: string(m.Name), Accepted: true}
		if reason, err := s.reject(m, seen); err != nil {
			result.Accepted, result.Reason, result.Message = false, reason, err.Error()
		} else {
			seen[m.Name] = true
			taken = append(taken, m)
		}
		results = append(results, result)
	}
	if len(offers) > 0 && len(taken) == 0 {
		return nil, noneTaken(results)
	}
	r.Modules = taken
	return results, nil
}

func (s *Server) reject(m fleet.ModuleOffer, seen map[fleet.ModuleName]bool) (string, error) {
	switch err := m.Name.Validate(); {
	case err != nil:
		return "name", err
	case seen[m.Name]:
		return "repeated", errors.New("another module of this offer has the same name")
	case strings.Contains(m.Description, "\x00"):
		return "description", errors.New("the description contains a NUL byte")
	case len(m.Description) > maxDescription:
		return "description", fmt.Errorf("the description has %d bytes; the limit is %d", len(m.Description), maxDescription)
	}
	for _, schema := range []struct{ reason, text string }{{"input_schema", m.InputSchema}, {"output_schema", m.OutputSchema}} {
		if len(schema.text) > maxSchema {
			return schema.reason, fmt.Errorf("the schema has %d bytes; the limit is %d", len(schema.text), maxSchema)
		}
		if schema.text == "" {
			continue
		}
		if err := s.o.CheckSchema(schema.text); err != nil {
			return schema.reason, err
		}
	}
	return "", nil
}

// noneTaken is the refusal with the reasons in the status's details.
func noneTaken(results []*nodev1.ModuleResult) error {
	refused := status.Newf(codes.InvalidArgument, "no module was accepted; the first is %.80q: %s", results[0].GetName(), results[0].GetMessage())
	detailed, err := refused.WithDetails(&nodev1.RegisterResponse{Modules: results})
	if err != nil {
		return refused.Err()
	}
	return &fleet.Error{Kind: fleet.Invalid, Message: refused.Message(), Err: detailed.Err()}
}

// refuse records what a known identity may not do.
func (s *Server) refuse(ctx context.Context, reason, what string) {
	s.o.Refuse(audit.Refusal{Door: DoorLink, Identity: IdentityOf(ctx).Name, Reason: reason, What: what})
}

// Deregister ends one connection of the caller, at whichever server its stream is.
func (s *Server) Deregister(ctx context.Context, in *nodev1.DeregisterRequest) (*nodev1.DeregisterResponse, error) {
	id := fleet.ConnectionID(in.GetConnectionId())
	err := s.deregister(ctx, id, in.GetReplicasEnded())
	switch {
	case fleet.KindOf(err) == fleet.Denied:
		s.refuse(ctx, "not_its_connection", "Deregister")
		err = fleet.Errorf(fleet.NotFound, "connection %.80q not found", in.GetConnectionId())
	case err == nil:
		if c := s.find(id); c != nil {
			s.endedElsewhere(c, fleet.Deregistered)
		}
	}
	return &nodev1.DeregisterResponse{}, StatusOf(err)
}

// deregister ends the row of a connection, and the replicas that its node reports as ended.
func (s *Server) deregister(ctx context.Context, id fleet.ConnectionID, replicasEnded bool) error { //nolint:revive // the word of the protocol
	if !replicasEnded || s.o.Replicas == nil {
		return s.o.Store.DeregisterConnection(ctx, id, IdentityOf(ctx).Name)
	}
	heard, err := s.o.Replicas.NodeStopped(ctx, id, IdentityOf(ctx).Name)
	s.wakes.add(heard.Wake)
	return err
}
