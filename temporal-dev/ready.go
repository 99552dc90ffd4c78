package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	readyTimeout = 90 * time.Second
	// A child that ended this often before it was ever ready will not recover by itself.
	hopelessStarts = 3
	logTail        = 2000
)

// startAndWait starts a child and returns once it answers. It gives up on a child that keeps ending before that,
// and shows the last lines of its log.
func startAndWait(ctx context.Context, p *process, ready func(context.Context) error) error {
	ctx, enough := context.WithTimeout(ctx, readyTimeout)
	defer enough()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		before := p.snapshot().Starts
		hopeless := func(v processView) bool { return v.Starts-before >= hopelessStarts && !v.Running }
		if p.await(ctx, hopeless) == nil {
			cancel(fleet.Errorf(fleet.Unavailable, "%s ended %d times before it was ready:\n%s",
				p.spec.name, hopelessStarts, tail(p.spec.log)))
		}
	}()
	err := p.start(ctx)
	if err == nil {
		err = pollErr(ctx, readyTimeout, ready)
	}
	if gaveUp := (*fleet.Error)(nil); err != nil && errors.As(context.Cause(ctx), &gaveUp) {
		return gaveUp
	}
	if err != nil {
		return fmt.Errorf("wait until %s is ready (log: %s): %w", p.spec.name, p.spec.log, err)
	}
	return nil
}

func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "there is no log"
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "the log cannot be read"
	}
	text := make([]byte, min(info.Size(), logTail))
	n, _ := f.ReadAt(text, info.Size()-int64(len(text))) // a short read shows less
	return strings.TrimSpace(string(text[:n]))
}

// temporalReady asks the frontend and, through it, the history and the visibility store; and
// Temporal Web.
func temporalReady(frontend, web string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := grpc.NewClient(frontend, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return fmt.Errorf("dial Temporal: %w", err)
		}
		defer func() { _ = conn.Close() }()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		service := workflowservice.NewWorkflowServiceClient(conn)
		var notFound *serviceerror.NotFound
		_, err = service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: temporalNamespace,
			Execution: &commonpb.WorkflowExecution{WorkflowId: "temporal-dev-is-it-ready"},
		})
		if err = serviceerror.FromStatus(status.Convert(err)); !errors.As(err, &notFound) {
			return fmt.Errorf("ask Temporal's history: %w", err)
		}
		_, err = service.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: temporalNamespace,
		})
		if err != nil {
			return fmt.Errorf("ask Temporal's visibility: %w", err)
		}
		return answers(ctx, web+"/healthz")
	}
}

// answers says whether a URL gives 200.
func answers(ctx context.Context, url string) error { return answersTo(ctx, http.DefaultClient, url) }

func answersTo(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s answered %s", url, res.Status)
	}
	return nil
}
