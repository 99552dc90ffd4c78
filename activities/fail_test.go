package activities

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X13, X14: every kind reaches Temporal as its own type, retried only where that may help.
func TestFail(t *testing.T) {
	t.Parallel()
	require.NoError(t, fail(t.Context(), nil))
	for _, kind := range fleet.Kinds() {
		var app *temporal.ApplicationError
		require.ErrorAs(t, fail(t.Context(), fleet.Errorf(kind, "it went wrong")), &app)
		require.Equal(t, string(kind), app.Type())
		require.Equal(t, kind.Retryable(), !app.NonRetryable(), kind)
	}
}

// X10: what an unknown error says stays in the process: it may quote a config or a secret.
func TestFailSaysNothingUnknown(t *testing.T) {
	t.Parallel()
	err := fail(t.Context(), errors.New("password=hunter2"))
	require.NotContains(t, err.Error(), "hunter2")
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, string(fleet.Internal), app.Type())
}

// X10: the cause goes to the log of the process, and not to Temporal.
func TestFailLogsTheCause(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail}))))
	env := suite.NewTestActivityEnvironment()
	act := func(ctx context.Context) error {
		return fail(ctx, &fleet.Error{Kind: fleet.Unavailable, Message: "read node", Err: errors.New("no route to host")})
	}
	env.RegisterActivity(act)
	_, err := env.ExecuteActivity(act)
	require.ErrorContains(t, err, "read node")
	require.NotContains(t, err.Error(), "no route")
	require.Contains(t, out.String(), `err="read node: no route to host"`)
}

// N41: work that was cut short says nothing about the revision.
func TestCutShort(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, fleet.Communication, fleet.KindOf(cutShort(ended, errors.New("interrupted"))))
	require.Equal(t, fleet.ApplyFailed, fleet.KindOf(cutShort(ended, fleet.Errorf(fleet.ApplyFailed, "no"))))
	require.Equal(t, fleet.Internal, fleet.KindOf(cutShort(t.Context(), errors.New("odd"))))
	require.NoError(t, cutShort(ended, nil))
}
