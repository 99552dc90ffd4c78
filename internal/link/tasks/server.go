package tasks

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Namespace is the nodes' name for the Temporal namespace. The server replaces it by the real one: no node needs to
// know that, and none can name another.
const Namespace = "link"

// nodePrefix is how the identity of a node begins; others have no tasks.
const nodePrefix = "node:"

// Options configure a Server; all except Log are required.
type Options struct {
	Upstream workflowservice.WorkflowServiceClient
	// Namespace is the region's Temporal namespace.
	Namespace string
	// Queue names a node's task queue.
	Queue func(fleet.NodeName) string
	// Secret is shared by all servers of the region, SecretBytes long.
	Secret []byte
	// Identity is the proven identity of the caller: "node:NAME" or another one, and its key.
	Identity func(context.Context) (name, key string, err error)
	// Refuse records a refusal, and limits the cost of a flood of them.
	Refuse func(identity, reason, what string)
	Log    *slog.Logger
}

// Server is the part of Temporal's WorkflowService that a node may use.
type Server struct {
	// It answers what is not overridden, and is never reached: see methods.
	workflowservice.UnimplementedWorkflowServiceServer

	opt   Options
	polls polls
	calls *prometheus.CounterVec
}

var _ workflowservice.WorkflowServiceServer = (*Server)(nil)

// New makes a Server.
func New(opt Options) (*Server, error) {
	if len(opt.Secret) != SecretBytes {
		return nil, fleet.Errorf(fleet.Internal, "the secret of task tokens has %d bytes, not %d", len(opt.Secret), SecretBytes)
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Server{
		opt: opt,
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_node_tasks_calls_total", Help: "Calls of nodes to Temporal through the link, by method and how they ended.",
		}, []string{"method", "code"}),
	}, nil
}

// methods are all methods that nodes may call. None of them names a workflow or an activity by id.
func methods() []string {
	return []string{
		"GetSystemInfo", "DescribeNamespace", "PollActivityTaskQueue",
		"RespondActivityTaskCompleted", "RespondActivityTaskFailed", "RespondActivityTaskCanceled",
		"RecordActivityTaskHeartbeat", "RecordWorkerHeartbeat", "ShutdownWorker",
	}
}

// Register registers the service with only the methods of methods. The gRPC server also needs
// grpc.UnknownServiceHandler(s.Unknown).
func (s *Server) Register(at grpc.ServiceRegistrar) {
	whole := workflowservice.WorkflowService_ServiceDesc
	narrow := grpc.ServiceDesc{ServiceName: whole.ServiceName, HandlerType: whole.HandlerType, Metadata: whole.Metadata}
	for _, name := range methods() {
		for _, m := range whole.Methods {
			if m.MethodName == name {
				narrow.Methods = append(narrow.Methods, m)
			}
		}
	}
	at.RegisterService(&narrow, s)
}

// Cut ends the polls of a node that were opened by an invalidated key: the node was revoked, or changed
// its key. Polls of valid keys continue, because a worker whose polls fail backs off. Polls at other servers are
// cut there.
func (s *Server) Cut(node fleet.NodeName, valid ...string) { s.polls.cut(node, valid) }

// Polling are the nodes that wait for tasks at this server.
func (s *Server) Polling() []fleet.NodeName { return s.polls.nodes() }

// caller is the node that calls.
func (s *Server) caller(ctx context.Context, method string) (fleet.NodeName, error) {
	identity, _, err := s.opt.Identity(ctx)
	if err != nil {
		return "", unauthenticated(err)
	}
	name, isNode := strings.CutPrefix(identity, nodePrefix)
	if !isNode || fleet.ValidateName("node", name) != nil {
		return "", s.refuse(identity, reasonNotNode, method)
	}
	return fleet.NodeName(name), nil
}

var openPolls = prometheus.NewDesc("holdfast_node_tasks_polls", "Long polls of nodes that wait at Temporal through this server.", nil, nil)

var pollingNodes = prometheus.NewDesc("holdfast_node_tasks_polling_nodes", "Nodes that poll through this server; the others are idle or disconnected.", nil, nil)

// Describe names the metrics (X22).
func (s *Server) Describe(to chan<- *prometheus.Desc) {
	s.calls.Describe(to)
	to <- openPolls
	to <- pollingNodes
}

// Collect reads them.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	s.calls.Collect(to)
	polls, nodes := s.polls.count()
	to <- prometheus.MustNewConstMetric(openPolls, prometheus.GaugeValue, float64(polls))
	to <- prometheus.MustNewConstMetric(pollingNodes, prometheus.GaugeValue, float64(nodes))
}
