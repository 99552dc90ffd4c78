package guardian

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// BenchmarkStart is the start and stop of one command, as the agent's user and as a user of its own.
func BenchmarkStart(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("only root can become another user")
	}
	self, err := os.Executable()
	require.NoError(b, err)
	data := b.TempDir()
	dir := filepath.Join(data, "instances", "line-7")
	require.NoError(b, os.MkdirAll(dir, 0o700))
	for name, confined := range map[string]Confinement{"agent": {}, "uid": {UID: other, Hide: data}} {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, os.Chown(dir, confined.UID, confined.UID))
			r := &Runtime{Root: filepath.Join(data, "run"), Executable: self, LifetimePID: os.Getpid(), Unleased: true}
			spec := Spec{
				Instance: "line-7", Dir: dir, Confinement: confined,
				Run: fleet.Run{Command: []string{"/bin/sleep", "1000"}, StartSeconds: 0.001},
			}
			for b.Loop() {
				_, err := r.Start(b.Context(), spec)
				require.NoError(b, err)
				require.NoError(b, r.Stop(b.Context(), "line-7"))
			}
		})
	}
}
