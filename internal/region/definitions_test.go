package region

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S12, S120: settings of a region are read once, at its start, which names what is wrong.
func TestReadDefinitions(t *testing.T) {
	t.Parallel()
	none, err := readDefinitions("")
	require.NoError(t, err)
	require.Same(t, definition.Embedded(), none)
	dir := t.TempDir()
	_, err = readDefinitions(filepath.Join(dir, "none"))
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))

	file := filepath.Join(dir, "vllm.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"image":"registry.example/vllm:1"}`), 0o600))
	r, err := readDefinitions(dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(`{"imag":"x"}`), 0o600))
	d, _, err := r.Generate(fleet.DeploymentSpec{Type: fleet.TypeVLLM, Model: "m"}, nil)
	require.NoError(t, err)
	require.Equal(t, "registry.example/vllm:1", d.Image)
	_, err = readDefinitions(dir)
	require.ErrorContains(t, err, "vllm.json, /imag")
}
