package region

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// fakeWorker keeps the answer of its first start, as the SDK's does.
type fakeWorker struct {
	worker.Worker
	start error
}

func (f *fakeWorker) Start() error { return f.start }

func TestInsist(t *testing.T) {
	t.Parallel()
	t.Run("says again what it waits for when there is something else to do about it", func(t *testing.T) {
		t.Parallel()
		var said bytes.Buffer
		away := fleet.Errorf(fleet.Unavailable, "away")
		answers := []error{away, away, away.WithHint("renew it"), away.WithHint("renew it"), nil}
		require.NoError(t, insist(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), "temporal", func(context.Context) error {
			next := answers[0]
			answers = answers[1:]
			return next
		}))
		require.Equal(t, 2, strings.Count(said.String(), "waiting"), said.String())
		require.Equal(t, 1, strings.Count(said.String(), "renew it"), said.String())
	})
	t.Run("ends with what waiting does not mend", func(t *testing.T) {
		t.Parallel()
		err := insist(t.Context(), slog.New(slog.DiscardHandler), "temporal", func(context.Context) error {
			return fleet.Errorf(fleet.Denied, "no")
		})
		require.Equal(t, fleet.Denied, fleet.KindOf(err))
	})
}

func TestStartWorker(t *testing.T) {
	t.Parallel()
	t.Run("makes a new worker for each try", func(t *testing.T) {
		t.Parallel()
		workers := []*fakeWorker{{start: errors.New("nobody answers")}, {}}
		made := 0
		w, err := startWorker(t.Context(), slog.New(slog.DiscardHandler), "temporal", func() worker.Worker {
			made++
			return workers[made-1]
		})
		require.NoError(t, err)
		require.Same(t, workers[1], w)
	})
	t.Run("gives up with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := startWorker(ctx, slog.New(slog.DiscardHandler), "temporal", func() worker.Worker {
			cancel()
			return &fakeWorker{start: errors.New("nobody answers")}
		})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// The polls of a server wait until Temporal is back; other calls fail at once.
func TestPollsWaitForTemporal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "temporal")
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), redial(100*time.Millisecond), grpc.WithChainUnaryInterceptor(patient))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	temporal := workflowservice.NewWorkflowServiceClient(conn)
	polls := map[string]func() error{
		"workflows": func() error {
			_, err := temporal.PollWorkflowTaskQueue(t.Context(), &workflowservice.PollWorkflowTaskQueueRequest{})
			return err
		},
		"activities": func() error {
			_, err := temporal.PollActivityTaskQueue(t.Context(), &workflowservice.PollActivityTaskQueueRequest{})
			return err
		},
	}
	ended := make(chan error, len(polls))
	for _, poll := range polls {
		go func() { ended <- poll() }()
	}
	_, err = temporal.GetSystemInfo(t.Context(), &workflowservice.GetSystemInfoRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	_, err = temporal.PollActivityTaskQueue(t.Context(), &workflowservice.PollActivityTaskQueueRequest{}, grpc.WaitForReady(false))
	require.Equal(t, codes.Unavailable, status.Code(err), "a node hears that Temporal is away")

	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := grpc.NewServer()
	workflowservice.RegisterWorkflowServiceServer(server, workflowservice.UnimplementedWorkflowServiceServer{})
	defer server.Stop()
	go func() { _ = server.Serve(listener) }()
	for range polls {
		require.Equal(t, codes.Unimplemented, status.Code(<-ended), "it arrived")
	}
}
