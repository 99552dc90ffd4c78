package region

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

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
