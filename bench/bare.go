package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// bareQueue is served by this process alone.
const bareQueue = "bench-bare"

// bareWorkflow is the yardstick: what two regular activities cost on this Temporal when
// they do nothing.
func bareWorkflow(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
	for range 2 {
		if err := workflow.ExecuteActivity(ctx, bareActivity).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func bareActivity(context.Context) error { return nil }

// bare starts bare workflows and serves them.
type bare struct {
	temporal client.Client
	worker   worker.Worker
	runs     atomic.Uint64
}

func startBare(r *region) (*bare, error) {
	// As many pollers as the region's own processes have for deliveries together; otherwise
	// the SDK's defaults.
	w := worker.New(r.temporal, bareQueue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: 4, MaxConcurrentActivityTaskPollers: 8,
	})
	w.RegisterWorkflow(bareWorkflow)
	w.RegisterActivity(bareActivity)
	if err := w.Start(); err != nil {
		return nil, fmt.Errorf("start the worker of the bare workflow: %w", err)
	}
	return &bare{temporal: r.temporal, worker: w}, nil
}

func (b *bare) stop() { b.worker.Stop() }

// once runs one, from the start to the result.
func (b *bare) once(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	run, err := b.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: bareQueue + "-" + strconv.FormatUint(b.runs.Add(1), 10), TaskQueue: bareQueue,
	}, bareWorkflow)
	if err == nil {
		err = run.Get(ctx, nil)
	}
	if err != nil {
		return 0, fmt.Errorf("run the bare workflow: %w", err)
	}
	return time.Since(began), nil
}
