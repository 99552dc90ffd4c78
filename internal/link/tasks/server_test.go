package tasks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"
)

const workflowService = "/temporal.api.workflowservice.v1.WorkflowService/"

// C87: every method that Temporal has, by its exact name.
func TestMethods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.call = func(_ context.Context, in any) (any, error) { return nil, fmt.Errorf("%T reached Temporal", in) }
	var refused []string
	for _, m := range workflowservice.WorkflowService_ServiceDesc.Methods {
		if !slices.Contains(methods(), m.MethodName) {
			refused = append(refused, workflowService+m.MethodName)
		}
	}
	require.Len(t, refused, len(workflowservice.WorkflowService_ServiceDesc.Methods)-9)
	for _, m := range operatorservice.OperatorService_ServiceDesc.Methods {
		refused = append(refused, "/temporal.api.operatorservice.v1.OperatorService/"+m.MethodName)
	}
	refused = append(refused,
		workflowService+"RespondActivityTaskCompletedById", workflowService+"RecordActivityTaskHeartbeatById",
		workflowService+"pollactivitytaskqueue", workflowService+"PollActivityTaskQueue/", workflowService+"Unheard",
		"/temporal.server.api.adminservice.v1.AdminService/DescribeMutableState",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/x/y")
	for _, method := range refused {
		err := b.conn.Invoke(as(t, nodeA), method, &emptypb.Empty{}, &emptypb.Empty{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%s: %v", method, err)
	}
	require.Len(t, b.refusals(), len(refused), "all are written down")
	stream, err := b.conn.NewStream(as(t, nodeA), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, workflowService+"StreamHistory")
	require.NoError(t, err)
	require.Equal(t, codes.PermissionDenied, status.Code(stream.RecvMsg(&emptypb.Empty{})))
	require.Equal(t, []refusal{{nodeA, reasonMethod, workflowService + "StreamHistory"}}, b.refusals())
}

func TestCallers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	t.Run("who has proven nothing is not told what there is", func(t *testing.T) {
		for _, method := range []string{"GetSystemInfo", "PollActivityTaskQueue", "StartWorkflowExecution"} {
			err := b.conn.Invoke(t.Context(), workflowService+method, &emptypb.Empty{}, &emptypb.Empty{})
			require.Equal(t, codes.Unauthenticated, status.Code(err))
		}
	})
	t.Run("who is no node has no tasks", func(t *testing.T) {
		for _, who := range []string{"token:7", "node:", "node:../x", "plant-1-a"} {
			_, err := b.client().PollActivityTaskQueue(as(t, who), pollOf("plant-1-a"))
			require.Equal(t, codes.PermissionDenied, status.Code(err))
			require.Equal(t, []refusal{{who, reasonNotNode, "PollActivityTaskQueue"}}, b.refusals())
		}
	})
	t.Run("a call of this link that this server does not know is no attack", func(t *testing.T) {
		err := b.conn.Invoke(as(t, nodeA), "/holdfast.node.v2.ControlPlane/Next", &emptypb.Empty{}, &emptypb.Empty{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
		require.Empty(t, b.refusals())
	})
}

func pollOf(node string) *workflowservice.PollActivityTaskQueueRequest {
	return &workflowservice.PollActivityTaskQueueRequest{
		Namespace: Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: "node." + node, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	}
}

// calls are one good call of each method that names a namespace.
func calls(token []byte) map[string]proto.Message {
	return map[string]proto.Message{
		"DescribeNamespace":            &workflowservice.DescribeNamespaceRequest{},
		"PollActivityTaskQueue":        pollOf("plant-1-a"),
		"RespondActivityTaskCompleted": &workflowservice.RespondActivityTaskCompletedRequest{TaskToken: token},
		"RespondActivityTaskFailed":    &workflowservice.RespondActivityTaskFailedRequest{TaskToken: token},
		"RespondActivityTaskCanceled":  &workflowservice.RespondActivityTaskCanceledRequest{TaskToken: token},
		"RecordActivityTaskHeartbeat":  &workflowservice.RecordActivityTaskHeartbeatRequest{TaskToken: token},
		"RecordWorkerHeartbeat":        &workflowservice.RecordWorkerHeartbeatRequest{},
		"ShutdownWorker":               &workflowservice.ShutdownWorkerRequest{TaskQueue: "node.plant-1-a"},
	}
}

func set(m proto.Message, field string, value any) {
	r := m.ProtoReflect()
	r.Set(r.Descriptor().Fields().ByName(protoreflect.Name(field)), protoreflect.ValueOf(value))
}

func (b *bundle) invoke(ctx context.Context, method string, in proto.Message) error {
	return b.conn.Invoke(ctx, workflowService+method, in, &emptypb.Empty{})
}

func TestRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var upstream proto.Message
	b.temporal.call = func(_ context.Context, in any) (any, error) {
		upstream = in.(proto.Message)
		return nil, nil //nolint:nilnil // an empty answer
	}
	token := b.server.wrap("plant-1-a", []byte("task-1"))
	t.Run("reach Temporal in its namespace, under the proven identity, with the task's own token", func(t *testing.T) {
		for method, in := range calls(token) {
			set(in, "namespace", Namespace)
			require.NoError(t, b.invoke(as(t, nodeA), method, in), method)
			require.Equal(t, "holdfast", upstream.(named).GetNamespace(), method)
			if who, ok := upstream.(interface{ GetIdentity() string }); ok {
				require.Equal(t, "node.plant-1-a", who.GetIdentity(), method)
			}
			if task, ok := upstream.(interface{ GetTaskToken() []byte }); ok {
				require.Equal(t, "task-1", string(task.GetTaskToken()), method)
			}
		}
		require.Empty(t, b.refusals())
	})
	t.Run("of another namespace are refused", func(t *testing.T) {
		upstream = nil
		for method, in := range calls(token) {
			for _, namespace := range []string{"", "holdfast", "temporal-system"} {
				set(in, "namespace", namespace)
				require.Equal(t, codes.PermissionDenied, status.Code(b.invoke(as(t, nodeA), method, in)), method)
				require.Equal(t, []refusal{{nodeA, reasonNamespace, method + " " + namespace}}, b.refusals())
			}
		}
		err := b.invoke(as(t, nodeA), "DescribeNamespace", &workflowservice.DescribeNamespaceRequest{Namespace: Namespace, Id: "1"})
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		require.Nil(t, upstream)
	})
	t.Run("carry nothing of a node's that is not meant to go on", func(t *testing.T) {
		for method, in := range calls(token) {
			fill(in.ProtoReflect(), 6)
			for field, value := range map[string]any{"namespace": Namespace, "task_token": token, "id": ""} {
				if in.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(field)) != nil {
					set(in, field, value)
				}
			}
			switch m := in.(type) {
			case *workflowservice.PollActivityTaskQueueRequest:
				m.TaskQueue = pollOf("plant-1-a").GetTaskQueue()
			case *workflowservice.ShutdownWorkerRequest:
				m.TaskQueue = "node.plant-1-a"
			case *workflowservice.RecordWorkerHeartbeatRequest:
				for _, beat := range m.GetWorkerHeartbeat() {
					beat.TaskQueue = "node.plant-1-a"
				}
			}
			require.NoError(t, b.invoke(as(t, nodeA), method, in), method)
			evil(t, method, upstream)
		}
	})
}

// may are the members of a request to Temporal in which a node has a say.
var may = []string{
	"result", "failure", "details", "last_heartbeat_details", "reason",
	"worker_instance_key", // behind the node's own name
	"sdk_name", "sdk_version", "status", "start_time", "heartbeat_time", "elapsed_since_last_heartbeat",
	"activity_task_slots_info", "activity_poller_info",
}

// evil finds what a node said in members that are not its own to fill.
func evil(t *testing.T, at string, m proto.Message) {
	t.Helper()
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if slices.Contains(may, string(f.Name())) {
			if f.Name() == "worker_instance_key" {
				require.True(t, strings.HasPrefix(v.String(), "node.plant-1-a:"))
			}
			return true
		}
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				evil(t, at, v.List().Get(i).Message().Interface())
			}
		case f.Message() != nil:
			evil(t, at, v.Message().Interface())
		default:
			require.NotContains(t, fmt.Sprint(v.Interface()), "evil", "%s %s in %s", at, f.Name(), prototext.Format(m))
			require.True(t, f.Enum() != nil || fmt.Sprint(v.Interface()) != "1", "%s %s", at, f.Name())
		}
		return true
	})
}

// fill sets every member, however deep, to something.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap() || depth == 0 && f.Message() != nil:
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(f))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() { //nolint:exhaustive // the rest are numbers
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("evil")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("evil"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	}
	return protoreflect.ValueOfFloat64(1)
}

func TestQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.call = func(_ context.Context, in any) (any, error) { return nil, fmt.Errorf("%T reached Temporal", in) }
	poll := func(name, normal string, kind enumspb.TaskQueueKind) proto.Message {
		return &workflowservice.PollActivityTaskQueueRequest{
			Namespace: Namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: name, Kind: kind, NormalName: normal},
		}
	}
	beats := []*workerpb.WorkerHeartbeat{{TaskQueue: "node.plant-1-a"}, {TaskQueue: "holdfast"}}
	for name, row := range map[string]struct {
		method string
		in     proto.Message
	}{
		"another node's":   {"PollActivityTaskQueue", poll("node.plant-1-b", "", enumspb.TASK_QUEUE_KIND_NORMAL)},
		"the servers'":     {"PollActivityTaskQueue", poll("holdfast", "", enumspb.TASK_QUEUE_KIND_NORMAL)},
		"a partition":      {"PollActivityTaskQueue", poll("/_sys/node.plant-1-a/1", "", enumspb.TASK_QUEUE_KIND_NORMAL)},
		"a sticky one":     {"PollActivityTaskQueue", poll("node.plant-1-a", "", enumspb.TASK_QUEUE_KIND_STICKY)},
		"of a normal one":  {"PollActivityTaskQueue", poll("node.plant-1-a", "holdfast", enumspb.TASK_QUEUE_KIND_NORMAL)},
		"of another kind":  {"PollActivityTaskQueue", poll("node.plant-1-a", "", 7)},
		"none":             {"PollActivityTaskQueue", &workflowservice.PollActivityTaskQueueRequest{Namespace: Namespace}},
		"that is shut":     {"ShutdownWorker", &workflowservice.ShutdownWorkerRequest{Namespace: Namespace, TaskQueue: "node.plant-1-b"}},
		"that is reported": {"RecordWorkerHeartbeat", &workflowservice.RecordWorkerHeartbeatRequest{Namespace: Namespace, WorkerHeartbeat: beats}},
	} {
		t.Run("a queue is refused: "+name, func(t *testing.T) {
			require.Equal(t, codes.PermissionDenied, status.Code(b.invoke(as(t, nodeA), row.method, row.in)))
			seen := b.refusals()
			require.Len(t, seen, 1)
			require.Equal(t, reasonQueue, seen[0].reason)
		})
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.server.wrap("plant-1-a", []byte("task-1"))
	answer := func(bytes int) error {
		result := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: make([]byte, bytes)}}}
		_, err := b.client().RespondActivityTaskCompleted(as(t, nodeA), &workflowservice.RespondActivityTaskCompletedRequest{
			Namespace: Namespace, TaskToken: token, Result: result,
		})
		return err
	}
	require.NoError(t, answer(64<<10), "X9")
	require.Equal(t, codes.PermissionDenied, status.Code(answer(requestMost)))
	require.Equal(t, reasonTooLarge, b.refusals()[0].reason)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.server.wrap("plant-1-a", []byte("task-1"))
	for code, err := range map[codes.Code]error{
		codes.NotFound:           serviceerror.NewNotFound("secret-7 of workflow instance.plant-1.press"),
		codes.Unavailable:        serviceerror.NewUnavailable("secret-7"),
		codes.ResourceExhausted:  serviceerror.NewResourceExhausted(enumspb.RESOURCE_EXHAUSTED_CAUSE_RPS_LIMIT, "secret-7"),
		codes.Canceled:           context.Canceled,
		codes.Internal:           fmt.Errorf("secret-7"),
		codes.DeadlineExceeded:   context.DeadlineExceeded,
		codes.FailedPrecondition: serviceerror.NewNamespaceNotActive("secret-7", "secret-7", "secret-7"),
	} {
		b.temporal.call = func(context.Context, any) (any, error) { return nil, err }
		_, got := b.client().RespondActivityTaskFailed(as(t, nodeA), &workflowservice.RespondActivityTaskFailedRequest{
			Namespace: Namespace, TaskToken: token, Failure: &failurepb.Failure{},
		})
		require.Equal(t, code, status.Code(got))
		require.NotContains(t, got.Error(), "secret-7")
		require.Empty(t, status.Convert(got).Details())
	}
}
