package region

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"
)

// fakeWorker keeps the answer of its first start, as the SDK's does.
type fakeWorker struct {
	worker.Worker
	start error
}

func (f *fakeWorker) Start() error { return f.start }

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
