package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func temporalOf(t *testing.T, l *laptop) workflowservice.WorkflowServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(l.addrs.dial(addrTemporal), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return workflowservice.NewWorkflowServiceClient(conn)
}

const keptWorkflow = "kept"

func startWorkflow(t *testing.T, l *laptop) {
	t.Helper()
	_, err := temporalOf(t, l).StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: temporalNamespace, WorkflowId: keptWorkflow, RequestId: keptWorkflow,
		WorkflowType: &commonpb.WorkflowType{Name: "Any"}, TaskQueue: &taskqueuepb.TaskQueue{Name: "any"},
	})
	require.NoError(t, err)
}

// workflowKept says whether Temporal knows the workflow and can change it.
func workflowKept(t *testing.T, l *laptop) func(context.Context) error {
	t.Helper()
	service := temporalOf(t, l)
	return func(ctx context.Context) error {
		execution := &commonpb.WorkflowExecution{WorkflowId: keptWorkflow}
		_, err := service.SignalWorkflowExecution(ctx, &workflowservice.SignalWorkflowExecutionRequest{
			Namespace: temporalNamespace, WorkflowExecution: execution, SignalName: "any",
		})
		return err
	}
}

func readDev(t *testing.T, l *laptop) devDoc {
	t.Helper()
	var doc devDoc
	require.NoError(t, readJSON(l.dir.file(devFile), &doc))
	return doc
}

func TestStores(t *testing.T) {
	t.Parallel()
	realOnly(t)
	t.Run("are there after kill -9 of each, at the same addresses", func(t *testing.T) {
		t.Parallel()
		l, said := newLaptop(t, t.TempDir())
		startStores(t, l)
		startWorkflow(t, l)
		keepSomething(t, databaseOf(t, l))
		for _, p := range l.supervisor.list() {
			kill9(t, p.snapshot().PID)
			require.NoError(t, p.await(t.Context(), func(v processView) bool { return v.Running && v.Starts == 2 }))
		}
		require.NoError(t, pollErr(t.Context(), testPatience, workflowKept(t, l)))
		require.NoError(t, pollErr(t.Context(), testPatience, databaseOf(t, l).ready))
		require.Equal(t, "x", query(t, databaseOf(t, l), "SELECT v FROM kept"))
		require.NoError(t, pollErr(t.Context(), testPatience, temporalReady(l.addrs.dial(addrTemporal), l.addrs.url(addrWeb))))
		require.Contains(t, said.String(), "! temporal ended on its own (signal: killed)")
		require.Contains(t, said.String(), "! postgres ended on its own (signal: killed)")
	})
	t.Run("are as they were at a second start, and dev.json tells where", func(t *testing.T) {
		t.Parallel()
		l, _ := newLaptop(t, t.TempDir())
		startStores(t, l)
		startWorkflow(t, l)
		first := readDev(t, l)
		require.Equal(t, []string{"postgres", "temporal"}, []string{first.Processes[0].Name, first.Processes[1].Name})
		for _, p := range first.Processes {
			require.True(t, p.Running && alive(p.PID), p)
		}
		l.stop()
		l.dir.close()
		for _, p := range readDev(t, l).Processes {
			require.Equal(t, devProcess{Name: p.Name}, p)
		}
		again, _ := newLaptop(t, l.dir.path)
		startStores(t, again)
		require.NoError(t, workflowKept(t, again)(t.Context()))
		second := readDev(t, again)
		first.Processes, second.Processes = nil, nil
		require.Equal(t, first, second)
	})
	t.Run("end with a supervisor that is killed, and are there again at the next start", func(t *testing.T) {
		t.Parallel()
		data := filepath.Join(t.TempDir(), "data")
		supervisor := exec.Command(os.Args[0], asStores, data)
		supervisor.Stderr = os.Stderr
		stdin, err := supervisor.StdinPipe()
		require.NoError(t, err)
		defer func() { _ = stdin.Close() }()
		stdout, err := supervisor.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, supervisor.Start())
		for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "up"; {
		}
		var doc devDoc
		require.NoError(t, readJSON(filepath.Join(data, devFile), &doc))
		require.Len(t, doc.Processes, 2)
		kill9(t, supervisor.Process.Pid)
		require.Error(t, supervisor.Wait())
		l, _ := newLaptop(t, data) // at once: what was killed may still be ending
		startStores(t, l)
		for _, p := range doc.Processes {
			require.NotZero(t, p.PID)
			eventually(t, p.Name+" ends", func() bool { return !alive(p.PID) })
		}
		require.Equal(t, doc.Token, readDev(t, l).Token)
	})
	t.Run("work in a directory whose name has odd characters", func(t *testing.T) {
		t.Parallel()
		l, _ := newLaptop(t, filepath.Join(t.TempDir(), "100% odd?mode=memory #1 'q'"))
		startStores(t, l)
		startWorkflow(t, l)
		info, err := os.Stat(l.dir.file("temporal", temporalSchema))
		require.NoError(t, err)
		require.NotZero(t, info.Size())
	})
}
