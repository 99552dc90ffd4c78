package fleet

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit/fields"
)

// F2, F5, F13, F14, F15, F39, F51: each field of a spec has its path, and there is no row of another.
func TestEveryFieldHasAPath(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, f := range specPaths {
		rows = append(rows, f.Field)
	}
	require.Equal(t, fields.Of[DeploymentSpec](), rows, "give a new field its path, in the order of the spec")
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(rows))), len(rows))
}

// F51
func TestSpecChangeAt(t *testing.T) {
	t.Parallel()
	for pointer, want := range map[string]SpecChange{
		"/process/env/X":                {"/process/env/X", PathNewRuntimeObject},
		"/process/env/a~1b":             {"/process/env/a~1b", PathNewRuntimeObject},
		"/placement/labels/rack":        {"/placement/labels/rack", PathInPlace},
		"/process/files/0/body/hash":    {"/process/files", PathNewRuntimeObject},
		"/process/health/timeout":       {"/process/health/timeout", PathInPlace},
		"/process/readiness/interval":   {"/process/readiness/interval", PathInPlace},
		"/process/readiness/path":       {"/process/readiness/path", PathNewRuntimeObject},
		"/process/readiness":            {"/process/readiness", PathNewRuntimeObject},
		"/process/healthy":              {"/process/healthy", PathNewRuntimeObject},
		"/recovery/crashSeconds":        {"/recovery/crashSeconds", PathInPlace},
		"/resources/cpu":                {"/resources/cpu", PathNewRuntimeObject},
		"/resources/memory":             {"/resources/memory", PathNewRuntimeObject},
		"/resources/gpus":               {"/resources/gpus", PathNewRuntimeObject},
		"/replicas/max":                 {"/replicas/max", PathInPlace},
		"/what/a/later/build/may/bring": {"/what/a/later/build/may/bring", PathNewRuntimeObject},
	} {
		require.Equal(t, want, SpecChangeAt(pointer), pointer)
	}
}
