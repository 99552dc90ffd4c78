package tasks

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// waiting lets polls wait at Temporal: began hears the deadline of each, ended why it ended.
func waiting(b *bundle) (began <-chan time.Time, ended <-chan error) {
	begin, end := make(chan time.Time, 2*pollsPerNode), make(chan error, 2*pollsPerNode)
	b.temporal.call = func(ctx context.Context, _ any) (any, error) {
		until, _ := ctx.Deadline()
		begin <- until
		<-ctx.Done()
		end <- ctx.Err()
		return nil, ctx.Err()
	}
	return begin, end
}

func hear[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(deadline):
		require.Fail(t, "nothing was heard")
	}
	return *new(T)
}

func TestPolls(t *testing.T) {
	t.Parallel()
	poll := func(ctx context.Context, b *bundle) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := b.client().PollActivityTaskQueue(ctx, pollOf("plant-1-a"))
			out <- err
		}()
		return out
	}
	t.Run("end at Temporal when the node's call ends", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began, ended := waiting(b)
		ctx, cancel := context.WithCancel(as(t, nodeA))
		out := poll(ctx, b)
		hear(t, began)
		cancel()
		require.Error(t, hear(t, ended))
		require.Equal(t, codes.Canceled, status.Code(hear(t, out)))
	})
	t.Run("end when the node is gone, whose deadline was never heard", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began, ended := waiting(b)
		ctx := as(t, nodeA)
		out := poll(ctx, b)
		until, _ := ctx.Deadline()
		require.WithinDuration(t, until.Add(-pollRoom), hear(t, began), time.Second, "the node's own deadline, and time for the answer")
		require.NoError(t, b.conn.Close())
		require.ErrorIs(t, hear(t, ended), context.Canceled)
		require.Error(t, hear(t, out))
		var err error
		b.conn, err = b.dial()
		require.NoError(t, err)
	})
	t.Run("end when the node is cut, and no other node's", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began, ended := waiting(b)
		out := poll(as(t, nodeA), b)
		hear(t, began)
		b.server.Cut("plant-1-b")
		require.Eventually(t, func() bool { n, nodes := b.server.polls.count(); return n == 1 && nodes == 1 }, deadline, time.Millisecond)
		b.server.Cut("plant-1-a")
		require.ErrorIs(t, hear(t, ended), context.Canceled)
		require.Equal(t, codes.Canceled, status.Code(hear(t, out)))
		require.Eventually(t, func() bool { n, nodes := b.server.polls.count(); return n == 0 && nodes == 0 }, deadline, time.Millisecond)
	})
	t.Run("end when their key is void, and those by the next key go on", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began, ended := waiting(b)
		out := poll(as(t, nodeA+" old"), b)
		hear(t, began)
		ctx, cancel := context.WithCancel(as(t, nodeA+" new"))
		goesOn := poll(ctx, b)
		hear(t, began)
		b.server.Cut("plant-1-a", "old", "new")
		b.server.Cut("plant-1-a", "new")
		require.ErrorIs(t, hear(t, ended), context.Canceled)
		require.Equal(t, codes.Canceled, status.Code(hear(t, out)))
		b.server.Cut("plant-1-a", "new")
		require.Eventually(t, func() bool { n, _ := b.server.polls.count(); return n == 1 }, deadline, time.Millisecond)
		require.Empty(t, goesOn)
		cancel()
		require.Error(t, hear(t, ended))
		require.Error(t, hear(t, goesOn))
	})
	t.Run("are bounded by node, and a place that is left is free", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		began, ended := waiting(b)
		ctx, cancel := context.WithCancel(as(t, nodeA))
		var open []<-chan error
		for range pollsPerNode {
			open = append(open, poll(ctx, b))
			hear(t, began)
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(hear(t, poll(ctx, b))))
		cancel()
		for _, out := range open {
			require.Error(t, hear(t, ended))
			require.Error(t, hear(t, out))
		}
		require.Eventually(t, func() bool { n, _ := b.server.polls.count(); return n == 0 }, deadline, time.Millisecond)
		ctx, cancel = context.WithCancel(as(t, nodeA))
		out := poll(ctx, b)
		hear(t, began)
		cancel()
		require.Error(t, hear(t, ended))
		require.Error(t, hear(t, out))
	})
}

// C87: what a caller has written down is bounded.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client().PollActivityTaskQueue(as(t, nodeA), pollOf(strings.Repeat("x", 3*whatMost)))
	require.Equal(t, codes.PermissionDenied, status.Code(err))
	seen := b.refusals()
	require.Len(t, seen, 1)
	require.Len(t, seen[0].what, whatMost)
}
