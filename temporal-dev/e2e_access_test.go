//go:build slow

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	querypb "go.temporal.io/api/query/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/holdfast-io/holdfast/api"
	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	keys "github.com/holdfast-io/holdfast/internal/identity"
)

// linkNamespace is what nodes call the Temporal namespace.
const linkNamespace = "link"

// thief has the key of a node, and all that a node can reach.
type thief struct {
	key      keys.Key
	audience string
	link     *grpc.ClientConn
	temporal workflowservice.WorkflowServiceClient
}

// GetRequestMetadata signs a call as the node does.
func (th *thief) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := th.key.Sign(th.audience, time.Now())
	return map[string]string{"authorization": "Bearer " + token}, err
}

func (*thief) RequireTransportSecurity() bool { return false }

// steal copies the key of a node.
func (s *stack) steal(t *testing.T, node, audience string) *thief {
	t.Helper()
	key, err := keys.Load(filepath.Join(s.data, "nodes", node, "node.key"))
	require.NoError(t, err)
	th := &thief{key: key, audience: audience}
	th.link = s.dial(t, s.doc.Link, th)
	th.temporal = workflowservice.NewWorkflowServiceClient(th.link)
	return th
}

// dial connects as a thief does: over TLS with a certificate that is good, where the region speaks TLS.
func (s *stack) dial(t *testing.T, address string, th *thief) *grpc.ClientConn {
	t.Helper()
	secure := insecure.NewCredentials()
	if s.doc.TLS != nil {
		secure = credentials.NewTLS(s.security(t))
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure), grpc.WithPerRPCCredentials(th))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// poll asks for a task of a node's queue.
func (th *thief) poll(ctx context.Context, node string) (*workflowservice.PollActivityTaskQueueResponse, error) {
	return th.temporal.PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{
		Namespace: linkNamespace, TaskQueue: &taskqueuepb.TaskQueue{Name: "node." + node, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
	})
}

// written waits until a refusal is in the audit.
func (s *stack) written(t *testing.T, door, identity, reason, what string) {
	t.Helper()
	waitFor(t, "the audit has "+strings.Join([]string{door, identity, reason, what}, " "), func(ctx context.Context) error {
		n, err := s.count(ctx, `SELECT count(*) FROM refusals WHERE door = $1 AND identity = $2 AND reason = $3 AND what LIKE $4`,
			door, identity, reason, what)
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
}

// C87, N92, X23
func TestE2EAccess(t *testing.T) {
	t.Parallel()
	s := startStack(t, 2)
	const node, peer, foreign = "plant-1-a", "plant-1-b", "plant-2-a"
	st := newStory(t, s, "plant-1", "press-7")
	there := newStory(t, s, "plant-2", "press-7")
	th := s.steal(t, node, keys.LinkAudience)

	t.Run("a stolen key starts, reads, signals, queries and ends no workflow", func(t *testing.T) {
		of := &commonpb.WorkflowExecution{WorkflowId: st.entity()}
		for _, namespace := range []string{linkNamespace, temporalNamespace} {
			for name, call := range th.workflowCalls(namespace, of) {
				err := call(t.Context())
				require.Equal(t, codes.PermissionDenied, status.Code(err), "%s: %v", name, err)
			}
		}
		s.written(t, "tasks", "node:"+node, "method_not_allowed", "/temporal.api.workflowservice.v1.WorkflowService/%")
		for _, run := range s.histories(t) {
			require.NotEqual(t, stolenID, run.id)
			if run.id == st.entity() {
				require.False(t, run.meddled(), "%v", run.events)
			}
		}
	})
	t.Run("it polls no queue but its node's", func(t *testing.T) {
		for _, other := range []string{peer, foreign, "x"} {
			_, err := th.poll(t.Context(), other)
			require.Equal(t, codes.PermissionDenied, status.Code(err))
			s.written(t, "tasks", "node:"+node, "not_its_queue", "PollActivityTaskQueue node."+other+" %")
		}
	})
	t.Run("it answers no task that its node was not given", func(t *testing.T) { s.foreignTask(t, there, foreign, th) })
	t.Run("it opens nothing of another site, and its link token nothing of the API", func(t *testing.T) {
		s.foreignConfig(t, there, node, th)
	})
	t.Run("it votes for its own node alone, and is not told who holds another site", func(t *testing.T) {
		votes := nodev1.NewLeasesClient(th.link)
		said, err := votes.Vote(t.Context(), &nodev1.VoteRequest{
			Call: nodev1.Call_CALL_ASK, Site: "plant-2", Candidate: node, Ttl: durationpb.New(time.Second),
		})
		require.NoError(t, err)
		require.Equal(t, "not_a_voter", said.GetReason())
		require.Empty(t, said.GetVote().GetHolder())
		require.Zero(t, said.GetVote().GetPromised())
		s.written(t, "leases", "node:"+node, "not_a_voter", "Vote plant-2")
		_, err = votes.Vote(t.Context(), &nodev1.VoteRequest{
			Call: nodev1.Call_CALL_ASK, Site: "plant-1", Candidate: peer, Ttl: durationpb.New(time.Second),
		})
		require.Equal(t, codes.PermissionDenied, status.Code(err))
		s.written(t, "leases", "node:"+node, "not_the_candidate", "Vote plant-1")
	})
	t.Run("its peer's door takes nothing else by it, and that is listed", func(t *testing.T) { s.peerRefuses(t, node, peer) })
	t.Run("what comes by an earlier right is refused, counted and listed", func(t *testing.T) { s.staleAction(t, st, node, peer) })
	t.Run("who has no key is nobody", func(t *testing.T) {
		made, err := keys.Generate(node)
		require.NoError(t, err)
		other := *th
		other.key = made
		conn, err := grpc.NewClient(s.doc.Link, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(&other))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = (&thief{temporal: workflowservice.NewWorkflowServiceClient(conn)}).poll(t.Context(), node)
		require.Equal(t, codes.Unauthenticated, status.Code(err))
		s.written(t, "link", "?node:"+node, "node_token", "%PollActivityTaskQueue")
		_, err = s.steal(t, node, keys.RegionAudience).poll(t.Context(), node)
		require.Equal(t, codes.Unauthenticated, status.Code(err), "a token for the API is none for the link")
	})
	t.Run("the node itself is served all the while, and goes on by itself when the server was killed", func(t *testing.T) {
		s.kill(t, serverName)
		op, hash := st.release(t)
		requireSucceeded(t, st.ended(t, op.ID))
		st.good(t, hash)
	})
	t.Run("a node changes its key while deliveries go on, and the stolen one is void", func(t *testing.T) {
		s.rotated(t, st, node)
	})
	t.Run("once revoked, the key is good for nothing, and the node comes back with a new one", func(t *testing.T) {
		s.revoked(t, there, foreign)
	})
	t.Run("no secret of it is in any history, log or refusal", func(t *testing.T) {
		var secret []byte
		require.NoError(t, s.pg.QueryRow(t.Context(), `SELECT secret FROM region_secrets`).Scan(&secret))
		for _, form := range []string{fmt.Sprintf("%x", secret), string(secret)} {
			require.Error(t, s.logSays(serverName, form))
		}
	})
}

// stolenID is the workflow that a thief would start.
const stolenID = "stolen"

// meddled says that somebody ended a run, or signalled it without saying who it is, as a thief would.
func (f flow) meddled() bool {
	return slices.ContainsFunc(f.events, func(e *historypb.HistoryEvent) bool {
		signal := e.GetWorkflowExecutionSignaledEventAttributes()
		return e.GetWorkflowExecutionTerminatedEventAttributes() != nil ||
			e.GetWorkflowExecutionCancelRequestedEventAttributes() != nil ||
			signal != nil && signal.GetIdentity() == ""
	})
}

// workflowCalls are the ways to reach a workflow.
func (th *thief) workflowCalls(namespace string, of *commonpb.WorkflowExecution) map[string]func(context.Context) error {
	c := th.temporal
	return map[string]func(context.Context) error{
		"start": func(ctx context.Context) error {
			_, err := c.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
				Namespace: namespace, WorkflowId: stolenID, WorkflowType: &commonpb.WorkflowType{Name: "PurgePending"},
				TaskQueue: &taskqueuepb.TaskQueue{Name: "holdfast"}, RequestId: "1",
			})
			return err
		},
		"signal with start": func(ctx context.Context) error {
			_, err := c.SignalWithStartWorkflowExecution(ctx, &workflowservice.SignalWithStartWorkflowExecutionRequest{Namespace: namespace, WorkflowId: of.GetWorkflowId()})
			return err
		},
		"read": func(ctx context.Context) error {
			_, err := c.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{Namespace: namespace, Execution: of})
			return err
		},
		"describe": func(ctx context.Context) error {
			_, err := c.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{Namespace: namespace, Execution: of})
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := c.ListWorkflowExecutions(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace})
			return err
		},
		"signal": func(ctx context.Context) error {
			_, err := c.SignalWorkflowExecution(ctx, &workflowservice.SignalWorkflowExecutionRequest{Namespace: namespace, WorkflowExecution: of, SignalName: "wake"})
			return err
		},
		"query": func(ctx context.Context) error {
			_, err := c.QueryWorkflow(ctx, &workflowservice.QueryWorkflowRequest{Namespace: namespace, Execution: of, Query: &querypb.WorkflowQuery{QueryType: "status"}})
			return err
		},
		"terminate": func(ctx context.Context) error {
			_, err := c.TerminateWorkflowExecution(ctx, &workflowservice.TerminateWorkflowExecutionRequest{Namespace: namespace, WorkflowExecution: of})
			return err
		},
		"cancel": func(ctx context.Context) error {
			_, err := c.RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{Namespace: namespace, WorkflowExecution: of})
			return err
		},
		"answer by id": func(ctx context.Context) error {
			_, err := c.RespondActivityTaskCompletedById(ctx, &workflowservice.RespondActivityTaskCompletedByIdRequest{Namespace: namespace, WorkflowId: of.GetWorkflowId(), ActivityId: "5"})
			return err
		},
		"take workflow tasks": func(ctx context.Context) error {
			_, err := c.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{Namespace: namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: "holdfast"}})
			return err
		},
	}
}

// foreignTask takes a true task of another node, and has the thief answer it.
func (s *stack) foreignTask(t *testing.T, there *story, owner string, th *thief) {
	s.order(t, "stop", owner)
	own := s.steal(t, owner, keys.LinkAudience)
	op, hash := there.release(t)
	var task *workflowservice.PollActivityTaskQueueResponse
	waitFor(t, "its task comes", func(ctx context.Context) (err error) {
		if task, err = own.poll(ctx, owner); err == nil && len(task.GetTaskToken()) == 0 {
			err = errNotYet
		}
		return err
	})
	beat := &workflowservice.RecordActivityTaskHeartbeatRequest{Namespace: linkNamespace, TaskToken: task.GetTaskToken()}
	_, err := own.temporal.RecordActivityTaskHeartbeat(t.Context(), beat) // without one, the task is soon another's
	require.NoError(t, err)
	_, err = th.temporal.RespondActivityTaskCompleted(t.Context(), &workflowservice.RespondActivityTaskCompletedRequest{
		Namespace: linkNamespace, TaskToken: task.GetTaskToken(),
	})
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	_, err = th.temporal.RecordActivityTaskHeartbeat(t.Context(), beat)
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	_, err = own.temporal.RespondActivityTaskFailed(t.Context(), &workflowservice.RespondActivityTaskFailedRequest{
		Namespace: linkNamespace, TaskToken: task.GetTaskToken(), Failure: &failurepb.Failure{
			Message: "Communication failure: by hand",
			FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: "communication", NonRetryable: true},
			},
		},
	})
	require.NoError(t, err, "whose it is may answer")
	s.written(t, "tasks", "node:"+string(th.key.Node()), "not_its_task", "RespondActivityTaskCompleted")
	s.order(t, "start", owner)
	requireSucceeded(t, s.ended(t, op.ID))
	there.good(t, hash)
}

// foreignConfig asks the API for what belongs to another site, as the node and as its link.
func (s *stack) foreignConfig(t *testing.T, there *story, node string, th *thief) {
	site := there.key.Scope
	for _, audience := range []string{keys.RegionAudience, keys.LinkAudience} {
		token, err := th.key.Sign(audience, time.Now())
		require.NoError(t, err)
		for _, path := range []string{
			"/api/internal/sites/" + site + "/deployments", "/api/internal/sites/plant-1/deployments",
		} {
			code, _ := s.send(t, http.MethodGet, path, token, nil)
			require.Equal(t, http.StatusUnauthorized, code)
			s.written(t, "http", "?node:"+node, "unauthenticated", "GET "+path)
		}
		for _, path := range []string{"reports", "started", "logs"} {
			code, _ := s.send(t, http.MethodPost, "/api/internal/nodes/plant-2-a/"+path, token, []byte(`{}`))
			require.Equal(t, http.StatusUnauthorized, code)
		}
		code, _ := s.send(t, http.MethodGet, "/api/v1/nodes", token, nil)
		require.Equal(t, http.StatusUnauthorized, code)
	}
	token, err := th.key.Sign(keys.LinkAudience, time.Now())
	require.NoError(t, err)
	code, _ := s.send(t, http.MethodPost, "/api/internal/nodes/"+node+"/reports", token, []byte(`{}`))
	require.Equal(t, http.StatusUnauthorized, code, "a token for the link is none for the API")
}

// rotated has a node change its key, by the command line, with deliveries before, during and
// after.
func (s *stack) rotated(t *testing.T, of *story, node string) {
	stolen := s.steal(t, node, keys.LinkAudience)
	operator := newCLI(t, s)
	var n api.Node
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		operator.json(t, &n, cliOK, "node", "rotate-key", node, "--timeout", "2m")
	}()
	for changed := false; !changed; {
		select {
		case <-asked:
			changed = true // and one more
		default:
		}
		op, hash := of.release(t)
		requireSucceeded(t, of.ended(t, op.ID))
		of.good(t, hash)
	}
	require.Empty(t, n.Key.Rotation)
	require.True(t, n.Key.Since.After(*n.EnrolledAt))
	_, err := stolen.poll(t.Context(), node)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.False(t, s.steal(t, node, keys.LinkAudience).key.Same(stolen.key))
}

// revoked takes the key of a node back, with a poll and a stream of it open.
func (s *stack) revoked(t *testing.T, of *story, node string) {
	own := s.steal(t, node, keys.LinkAudience)
	s.order(t, "stop", node) // its process would end by itself
	open, since := make(chan error, 1), time.Now()
	go func() {
		_, err := own.poll(t.Context(), node)
		open <- err
	}()
	waitFor(t, "it polls", func(context.Context) error {
		if !s.polled(t, node, since) {
			return errNotYet
		}
		return nil
	})
	n, err := s.api.RevokeNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
	require.True(t, n.Revoked)
	select {
	case err := <-open:
		require.Equal(t, codes.Canceled, status.Code(err))
	case <-time.After(testPatience):
		require.Fail(t, "its poll goes on")
	}
	_, err = own.poll(t.Context(), node)
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	token, err := own.key.Sign(keys.RegionAudience, time.Now())
	require.NoError(t, err)
	code, _ := s.send(t, http.MethodPost, "/api/internal/nodes/"+node+"/reports", token, []byte(`{}`))
	require.Equal(t, http.StatusUnauthorized, code)
	n, err = s.api.RevokeNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err, "again, it changes nothing")
	require.True(t, n.Revoked)
	require.NoError(t, os.Remove(filepath.Join(s.data, "nodes", node, "node.key")))
	s.order(t, "start", node) // with a new join token, as each start on a laptop
	waitFor(t, "it is enrolled anew", func(ctx context.Context) error {
		n, err := s.api.Node(ctx, node)
		if err == nil && !n.Ready {
			err = errNotYet
		}
		return err
	})
	op, hash := of.release(t)
	requireSucceeded(t, s.ended(t, op.ID))
	of.good(t, hash)
}

// polled says whether Temporal had a poll on a node's queue since a time.
func (s *stack) polled(t *testing.T, node string, since time.Time) bool {
	t.Helper()
	out, err := s.temporal.DescribeTaskQueue(t.Context(), &workflowservice.DescribeTaskQueueRequest{
		Namespace: temporalNamespace, TaskQueue: &taskqueuepb.TaskQueue{Name: "node." + node, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		TaskQueueType: enumspb.TASK_QUEUE_TYPE_ACTIVITY,
	})
	require.NoError(t, err)
	for _, p := range out.GetPollers() {
		if p.GetLastAccessTime().AsTime().After(since) {
			return true
		}
	}
	return false
}
