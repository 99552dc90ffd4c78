package tasks

import (
	"context"
	"slices"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// requestMost limits a request: 64 KiB of payload (X9) plus its envelope.
const requestMost = 64<<10 + 8<<10

// named is a request with a namespace.
type named interface {
	proto.Message
	GetNamespace() string
}

// enter is the first step of every call except GetSystemInfo: it authenticates the caller and checks its limits.
func (s *Server) enter(ctx context.Context, method string, r named) (fleet.NodeName, error) {
	node, err := s.caller(ctx, method)
	if err != nil {
		return "", err
	}
	if r.GetNamespace() != Namespace {
		return "", s.refuse(nodePrefix+string(node), reasonNamespace, method+" "+r.GetNamespace())
	}
	if proto.Size(r) > requestMost {
		return "", s.refuse(nodePrefix+string(node), reasonTooLarge, method)
	}
	return node, nil
}

// enterTask is enter for a call about a task: it also returns the task's own token.
func (s *Server) enterTask(ctx context.Context, method string, r interface {
	named
	GetTaskToken() []byte
},
) (fleet.NodeName, []byte, error) {
	node, err := s.enter(ctx, method, r)
	if err != nil {
		return "", nil, err
	}
	token, ok := s.unwrap(node, r.GetTaskToken())
	if !ok {
		return "", nil, s.refuse(nodePrefix+string(node), reasonToken, method)
	}
	return node, token, nil
}

// left is the last step: what a node gets of the answer.
func left[T any](ctx context.Context, s *Server, method string, out T, err error) (T, error) {
	s.calls.WithLabelValues(method, codeOf(err).String()).Inc()
	if err == nil {
		return out, nil
	}
	s.opt.Log.DebugContext(ctx, "Temporal refused a node's call", "method", method, "err", err)
	var none T
	return none, outward(err)
}

// who is a node's name in Temporal's histories and poller lists.
func who(node fleet.NodeName) string { return "node." + string(node) }

// GetSystemInfo returns what Temporal supports; it is called once per connection.
func (s *Server) GetSystemInfo(ctx context.Context, _ *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	if _, err := s.caller(ctx, "GetSystemInfo"); err != nil {
		return nil, err
	}
	out, err := s.opt.Upstream.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	return left(ctx, s, "GetSystemInfo", out, err)
}

// DescribeNamespace returns what a worker must know of the namespace, without any text written by people.
func (s *Server) DescribeNamespace(ctx context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	node, err := s.enter(ctx, "DescribeNamespace", r)
	if err != nil {
		return nil, err
	}
	if r.GetId() != "" {
		return nil, s.refuse(nodePrefix+string(node), reasonNamespace, "DescribeNamespace by id")
	}
	out, err := s.opt.Upstream.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.opt.Namespace})
	info := out.GetNamespaceInfo()
	return left(ctx, s, "DescribeNamespace", &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{
		Name: Namespace, State: info.GetState(), Capabilities: info.GetCapabilities(), Limits: info.GetLimits(),
	}}, err)
}

// PollActivityTaskQueue waits for a task of the node's own queue.
func (s *Server) PollActivityTaskQueue(ctx context.Context, r *workflowservice.PollActivityTaskQueueRequest) (*workflowservice.PollActivityTaskQueueResponse, error) {
	const method = "PollActivityTaskQueue"
	node, err := s.enter(ctx, method, r)
	if err != nil {
		return nil, err
	}
	if !s.ownQueue(node, r.GetTaskQueue()) {
		return nil, s.refuse(nodePrefix+string(node), reasonQueue, method+" "+r.GetTaskQueue().GetName()+" "+r.GetTaskQueue().GetKind().String())
	}
	_, key, _ := s.opt.Identity(ctx) // it was found out above
	ctx, done, ok := s.polls.begin(ctx, node, key)
	if !ok { // a worker that was restarted often has some: it waits and tries again
		return nil, status.Error(codes.ResourceExhausted, "this node has too many concurrent polls")
	}
	defer done()
	out, err := s.opt.Upstream.PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
		Namespace: s.opt.Namespace, Identity: who(node), WorkerInstanceKey: ownKey(node, r.GetWorkerInstanceKey()),
		TaskQueue: &taskqueuepb.TaskQueue{Name: s.opt.Queue(node), Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	}, grpc.WaitForReady(false)) // the node polls again while it is wanted
	if err == nil && len(out.GetTaskToken()) > 0 {
		out.TaskToken = s.wrap(node, out.GetTaskToken())
		out.WorkflowNamespace = Namespace
	}
	return left(ctx, s, method, out, err)
}

// ownQueue accepts only the plain queue of the node, not a partition, sticky or other kind of it.
func (s *Server) ownQueue(node fleet.NodeName, q *taskqueuepb.TaskQueue) bool {
	plain := q.GetKind() == enumspb.TASK_QUEUE_KIND_NORMAL || q.GetKind() == enumspb.TASK_QUEUE_KIND_UNSPECIFIED
	return plain && q.GetName() == s.opt.Queue(node) && q.GetNormalName() == ""
}

// ownKey separates the names of workers by node: a shutdown of one ends no other node's polls.
func ownKey(node fleet.NodeName, key string) string {
	if key == "" {
		return ""
	}
	return who(node) + ":" + bounded(key)
}

// RespondActivityTaskCompleted answers a task that this node was given.
func (s *Server) RespondActivityTaskCompleted(ctx context.Context, r *workflowservice.RespondActivityTaskCompletedRequest) (*workflowservice.RespondActivityTaskCompletedResponse, error) {
	const method = "RespondActivityTaskCompleted"
	node, token, err := s.enterTask(ctx, method, r)
	if err != nil {
		return nil, err
	}
	out, err := s.opt.Upstream.RespondActivityTaskCompleted(ctx, &workflowservice.RespondActivityTaskCompletedRequest{
		Namespace: s.opt.Namespace, Identity: who(node), TaskToken: token, Result: r.GetResult(),
	})
	return left(ctx, s, method, out, err)
}

// RespondActivityTaskFailed answers a task that this node was given.
func (s *Server) RespondActivityTaskFailed(ctx context.Context, r *workflowservice.RespondActivityTaskFailedRequest) (*workflowservice.RespondActivityTaskFailedResponse, error) {
	const method = "RespondActivityTaskFailed"
	node, token, err := s.enterTask(ctx, method, r)
	if err != nil {
		return nil, err
	}
	out, err := s.opt.Upstream.RespondActivityTaskFailed(ctx, &workflowservice.RespondActivityTaskFailedRequest{
		Namespace: s.opt.Namespace, Identity: who(node), TaskToken: token, Failure: r.GetFailure(),
		LastHeartbeatDetails: r.GetLastHeartbeatDetails(),
	})
	return left(ctx, s, method, out, err)
}

// RespondActivityTaskCanceled answers a task that this node was given.
func (s *Server) RespondActivityTaskCanceled(ctx context.Context, r *workflowservice.RespondActivityTaskCanceledRequest) (*workflowservice.RespondActivityTaskCanceledResponse, error) {
	const method = "RespondActivityTaskCanceled"
	node, token, err := s.enterTask(ctx, method, r)
	if err != nil {
		return nil, err
	}
	out, err := s.opt.Upstream.RespondActivityTaskCanceled(ctx, &workflowservice.RespondActivityTaskCanceledRequest{
		Namespace: s.opt.Namespace, Identity: who(node), TaskToken: token, Details: r.GetDetails(),
	})
	return left(ctx, s, method, out, err)
}

// RecordActivityTaskHeartbeat keeps a task alive that this node was given, and returns its cancellation.
func (s *Server) RecordActivityTaskHeartbeat(ctx context.Context, r *workflowservice.RecordActivityTaskHeartbeatRequest) (*workflowservice.RecordActivityTaskHeartbeatResponse, error) {
	const method = "RecordActivityTaskHeartbeat"
	node, token, err := s.enterTask(ctx, method, r)
	if err != nil {
		return nil, err
	}
	out, err := s.opt.Upstream.RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
		Namespace: s.opt.Namespace, Identity: who(node), TaskToken: token, Details: r.GetDetails(),
	})
	return left(ctx, s, method, out, err)
}

// RecordWorkerHeartbeat reports the state of a worker of this node.
func (s *Server) RecordWorkerHeartbeat(ctx context.Context, r *workflowservice.RecordWorkerHeartbeatRequest) (*workflowservice.RecordWorkerHeartbeatResponse, error) {
	const method = "RecordWorkerHeartbeat"
	node, err := s.enter(ctx, method, r)
	if err != nil {
		return nil, err
	}
	beats := r.GetWorkerHeartbeat()
	if i := slices.IndexFunc(beats, func(b *workerpb.WorkerHeartbeat) bool { return b.GetTaskQueue() != s.opt.Queue(node) }); i >= 0 {
		return nil, s.refuse(nodePrefix+string(node), reasonQueue, method+" "+beats[i].GetTaskQueue())
	}
	in := &workflowservice.RecordWorkerHeartbeatRequest{Namespace: s.opt.Namespace, Identity: who(node)}
	for _, b := range beats {
		in.WorkerHeartbeat = append(in.WorkerHeartbeat, s.beat(node, b))
	}
	out, err := s.opt.Upstream.RecordWorkerHeartbeat(ctx, in)
	return left(ctx, s, method, out, err)
}

// beat is what a node may report of its worker.
func (s *Server) beat(node fleet.NodeName, b *workerpb.WorkerHeartbeat) *workerpb.WorkerHeartbeat {
	return &workerpb.WorkerHeartbeat{
		WorkerInstanceKey: ownKey(node, b.GetWorkerInstanceKey()), WorkerIdentity: who(node), TaskQueue: s.opt.Queue(node),
		SdkName: bounded(b.GetSdkName()), SdkVersion: bounded(b.GetSdkVersion()), Status: b.GetStatus(),
		StartTime: b.GetStartTime(), HeartbeatTime: b.GetHeartbeatTime(),
		ElapsedSinceLastHeartbeat: b.GetElapsedSinceLastHeartbeat(), ActivityTaskSlotsInfo: b.GetActivityTaskSlotsInfo(),
		ActivityPollerInfo: b.GetActivityPollerInfo(),
	}
}

// ShutdownWorker ends the polls of one worker of this node.
func (s *Server) ShutdownWorker(ctx context.Context, r *workflowservice.ShutdownWorkerRequest) (*workflowservice.ShutdownWorkerResponse, error) {
	const method = "ShutdownWorker"
	node, err := s.enter(ctx, method, r)
	if err != nil {
		return nil, err
	}
	own := s.opt.Queue(node)
	if q := r.GetTaskQueue(); q != "" && q != own {
		return nil, s.refuse(nodePrefix+string(node), reasonQueue, method+" "+q)
	}
	// Temporal unloads the workflow queue that is named as sticky, whosever it is: this one is
	// the node's own, which has no workflows.
	out, err := s.opt.Upstream.ShutdownWorker(ctx, &workflowservice.ShutdownWorkerRequest{
		Namespace: s.opt.Namespace, Identity: who(node), Reason: bounded(r.GetReason()),
		WorkerInstanceKey: ownKey(node, r.GetWorkerInstanceKey()), TaskQueue: own, StickyTaskQueue: own,
		TaskQueueTypes: []enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_ACTIVITY},
	})
	return left(ctx, s, method, out, err)
}
