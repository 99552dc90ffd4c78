package fleet_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19: an image is a name, and no option, path or query for the engine.
func TestImageNames(t *testing.T) {
	t.Parallel()
	check := func(image string) error {
		return fleet.DeploymentSpec{Process: fleet.Process{Image: image, Health: &fleet.HealthCheck{Type: fleet.HealthNone}}}.WithDefaults().Validate()
	}
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, good := range []string{
		"nginx", "nginx:1.27", "library/nginx", "ghcr.io/huggingface/text-generation-inference:3.3.4", "localhost:5000/a/b_c__d-e.f:TAG_1",
		"registry.example/web" + digest, "registry.example/web:1" + digest, "[2001:db8::1]:5000/web", "Registry.Example/web", "10.0.0.7:5000/web:v1",
		"web@sha512:" + strings.Repeat("0a", 64), "cafe", "registry.example/sha256:0a",
	} {
		require.NoError(t, check(good), good)
	}
	for _, bad := range []string{
		"-v", "--privileged", "-v/:/host", "../containers/x", "a/../../containers/x", "/etc/passwd", "a//b", "a/", "a:", "a@", "a b", "a\nb", "a\x00", "a\x1b[2J",
		"a?tag=b", "a#b", "a&tag=b", "a%2e%2e/b", "http://registry.example/web", "user:secret@registry.example/web", "Web", "a:b:c", "a" + digest + "x/y", "é",
		strings.Repeat("a", 600), "a@sha256:" + strings.Repeat("0a", 16), "a@sha256:" + strings.Repeat("0A", 32), "a@md5:" + strings.Repeat("0a", 16), "a@sha512:" + strings.Repeat("0a", 32),
		"sha256:" + strings.Repeat("0a", 32), "sha256:0a", "a..b/c", "a.-b:5000/c", "localhost:500000/a", "localhost:5000/../a", "file:///etc/passwd", "docker.sock:/x", "a:b/c",
	} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(check(bad)), "%q", bad)
	}
}
