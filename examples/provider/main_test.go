package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestModules(t *testing.T) {
	t.Parallel()
	t.Run("reverse turns a text around, by characters", func(t *testing.T) {
		t.Parallel()
		out, err := reverse(t.Context(), []byte(`{"text":"Öse"}`))
		require.NoError(t, err)
		require.JSONEq(t, `{"text":"esÖ"}`, string(out))
	})
	t.Run("wait ends with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := wait(ctx, []byte(`{"seconds":3600}`))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		out, err := wait(t.Context(), []byte(`{"seconds":0.001}`))
		require.NoError(t, err)
		require.JSONEq(t, `{"waited":"1ms"}`, string(out))
	})
	t.Run("nonsense is the caller's mistake", func(t *testing.T) {
		t.Parallel()
		for _, m := range modules() {
			_, err := m.Handle(t.Context(), []byte(`[`))
			require.Equal(t, codes.InvalidArgument, status.Code(err))
		}
	})
	t.Run("a command line that is wrong starts nothing", func(t *testing.T) {
		t.Parallel()
		require.Error(t, run(t.Context(), []string{"--link", "nowhere"}, slog.New(slog.DiscardHandler)))
	})
}
