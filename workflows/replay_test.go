package workflows_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/workers"
)

// X16: every recorded history still replays, and there is one of every workflow type.
// Record those of a new version with `task replay:record`.
func TestReplay(t *testing.T) {
	t.Parallel()
	for name := range workers.Workflows() {
		files, err := filepath.Glob(filepath.Join("testdata", "history", name, "*.json.gz"))
		require.NoError(t, err)
		require.NotEmpty(t, files, "no recorded history of %s", name)
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				r := worker.NewWorkflowReplayer()
				for name, f := range workers.Workflows() {
					r.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
				}
				require.NoError(t, r.ReplayWorkflowHistory(quiet{}, readHistory(t, file)))
			})
		}
	}
}

func readHistory(t *testing.T, file string) *historypb.History {
	t.Helper()
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // read only
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var h historypb.History
	body, err := io.ReadAll(z)
	require.NoError(t, err)
	require.NoError(t, temporalproto.CustomJSONUnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &h))
	return &h
}
