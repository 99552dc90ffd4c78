package activities

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

type batchFunc func(ctx context.Context, cmd fleet.BatchCommand) (fleet.BatchOutcome, error)

var _ batcher = batchFunc(nil)

func (f batchFunc) ApplyBatch(ctx context.Context, cmd fleet.BatchCommand, _ func(string, int64, int64)) (fleet.BatchOutcome, error) {
	return f(ctx, cmd)
}

// N98, X27
func TestRefreshBatch(t *testing.T) {
	t.Parallel()
	run := func(f batchFunc) (fleet.BatchOutcome, error) {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestActivityEnvironment()
		node := &Node{Batches: f}
		env.RegisterActivity(node.RefreshBatch)
		var out fleet.BatchOutcome
		value, err := env.ExecuteActivity(node.RefreshBatch, fleet.BatchCommand{BatchID: "7"})
		if err == nil {
			err = value.Get(&out)
		}
		return out, err
	}
	t.Run("answers with numbers", func(t *testing.T) {
		t.Parallel()
		want := fleet.BatchOutcome{Applied: 3, Already: 2, Failed: 1, Fetched: 9}
		out, err := run(func(_ context.Context, cmd fleet.BatchCommand) (fleet.BatchOutcome, error) {
			require.Equal(t, fleet.BatchID("7"), cmd.BatchID)
			return want, nil
		})
		require.NoError(t, err)
		require.Equal(t, want, out)
	})
	t.Run("fails with its kind", func(t *testing.T) {
		t.Parallel()
		_, err := run(func(context.Context, fleet.BatchCommand) (fleet.BatchOutcome, error) {
			return fleet.BatchOutcome{}, fleet.Errorf(fleet.Stale, "another epoch")
		})
		require.ErrorContains(t, err, "type: stale, retryable: false")
	})
}
