package region

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/identity"
)

// C87: what ends because the node's key changed is sent again by the new one, and its worker hears
// nothing of it: after a few failures it would ask more seldom than a hand-over waits.
func TestKeyChangesUnderACall(t *testing.T) {
	t.Parallel()
	made := func(t *testing.T) identity.Key {
		t.Helper()
		key, err := identity.Generate("plant-1-a")
		require.NoError(t, err)
		return key
	}
	for _, c := range []struct {
		name    string
		code    codes.Code
		changes bool
		leaves  bool // who called does not wait any more
		calls   int
	}{
		{"a poll that the region ends", codes.Canceled, true, false, 2},
		{"a call that it refuses", codes.Unauthenticated, true, false, 2},
		{"one that its caller gave up", codes.Canceled, true, true, 1},
		{"a failure of another kind", codes.Unavailable, true, false, 1},
		{"the key is the same", codes.Canceled, false, false, 1},
		{"a node that was revoked", codes.Unauthenticated, false, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			key, next := made(t), made(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tokens := nodeTokens{func() identity.Key { return key }, time.Now}
			calls := 0
			call := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				if calls++; calls > 1 {
					return nil
				}
				if c.changes {
					key = next
				}
				if c.leaves {
					cancel()
				}
				return status.Error(c.code, "ended")
			}
			err := tokens.again(ctx, "/poll", nil, nil, nil, call)
			require.Equal(t, c.calls, calls)
			require.Equal(t, c.calls == 1, err != nil)
		})
	}
}
