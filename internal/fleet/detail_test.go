package fleet_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X10
func TestDetail(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	kept := &fleet.Error{Kind: fleet.Unavailable, Message: "read node", Hint: "wait", Err: fmt.Errorf("read node: %w", refused)}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"what the message says is not said twice", fleet.Errorf(fleet.Internal, "read node: %w", refused), "read node: connection refused"},
		{"the cause that an error keeps to itself", &fleet.Error{Message: "read node", Err: refused}, "read node: connection refused"},
		{"with what was being done", kept, "read node (wait): read node: connection refused"},
		{"below other errors", fmt.Errorf("reconcile: %w", &fleet.Error{Message: "read node", Err: refused}), "reconcile: read node: connection refused"},
		{"in each of many", errors.Join(errors.New("one"), &fleet.Error{Message: "two", Err: refused}), "one\ntwo: connection refused"},
		{"no cause at all", errors.New("plain"), "plain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, fleet.Detail(c.err))
		})
	}
	require.NotContains(t, kept.Error(), "refused", "answers and history are made of this")
}

func TestLogDetail(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail}))
	log.Warn("trying on", "err", &fleet.Error{Message: "read node", Err: errors.New("no route")}, "n", 7, "nothing", error(nil))
	require.Contains(t, out.String(), `"err":"read node: no route","n":7,"nothing":null`)
}
