package tasks

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C87: a token is good for the node that it was given to, whole and unchanged, and for nobody
// else.
func TestToken(t *testing.T) {
	t.Parallel()
	s := &Server{opt: Options{Secret: make([]byte, SecretBytes)}}
	elsewhere := &Server{opt: Options{Secret: append(make([]byte, SecretBytes-1), 1)}}
	name := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}`)
	rapid.Check(t, func(t *rapid.T) {
		node, other := fleet.NodeName(name.Draw(t, "node")), fleet.NodeName(name.Draw(t, "other"))
		token := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "token")
		wrapped := s.wrap(node, token)
		got, ok := s.unwrap(node, wrapped)
		require.True(t, ok)
		require.Equal(t, token, got)
		if other != node {
			_, ok = s.unwrap(other, wrapped)
			require.False(t, ok)
		}
		_, ok = elsewhere.unwrap(node, wrapped)
		require.False(t, ok, "of a server of another region")
		changed := append([]byte(nil), wrapped...)
		changed[rapid.IntRange(0, len(changed)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		_, ok = s.unwrap(node, changed)
		require.False(t, ok)
		_, ok = s.unwrap(node, wrapped[:rapid.IntRange(0, len(wrapped)-1).Draw(t, "cut")])
		require.False(t, ok)
	})
	_, ok := s.unwrap("n", s.wrap("n", nil))
	require.False(t, ok, "an empty token is no task's")
}

func TestTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.temporal.call = func(_ context.Context, in any) (any, error) {
		if _, poll := in.(*workflowservice.PollActivityTaskQueueRequest); poll {
			return &workflowservice.PollActivityTaskQueueResponse{TaskToken: []byte("task-1"), WorkflowNamespace: "holdfast"}, nil
		}
		return nil, nil //nolint:nilnil // an empty answer
	}
	task, err := b.client().PollActivityTaskQueue(as(t, nodeA), pollOf("plant-1-a"))
	require.NoError(t, err)
	require.NotEqual(t, "task-1", string(task.GetTaskToken()))
	require.Equal(t, Namespace, task.GetWorkflowNamespace())
	answers := calls(task.GetTaskToken())
	for _, method := range []string{"RespondActivityTaskCompleted", "RespondActivityTaskFailed", "RespondActivityTaskCanceled", "RecordActivityTaskHeartbeat"} {
		in := answers[method]
		set(in, "namespace", Namespace)
		t.Run(method+" takes the task from the node that has it", func(t *testing.T) {
			require.NoError(t, b.invoke(as(t, nodeA), method, in))
		})
		t.Run(method+" takes it from no other, nor one that nobody was given", func(t *testing.T) {
			require.Equal(t, codes.PermissionDenied, status.Code(b.invoke(as(t, nodeB), method, in)))
			require.Equal(t, []refusal{{nodeB, reasonToken, method}}, b.refusals())
			for _, token := range []string{"", "task-1", "\x01task-1"} {
				set(in, "task_token", []byte(token))
				require.Equal(t, codes.PermissionDenied, status.Code(b.invoke(as(t, nodeA), method, in)))
				require.Equal(t, []refusal{{nodeA, reasonToken, method}}, b.refusals())
			}
		})
	}
	t.Run("an empty poll has no token", func(t *testing.T) {
		b.temporal.call = func(context.Context, any) (any, error) { return nil, nil } //nolint:nilnil // an empty answer
		task, err := b.client().PollActivityTaskQueue(as(t, nodeA), pollOf("plant-1-a"))
		require.NoError(t, err)
		require.Empty(t, task.GetTaskToken())
	})
}
