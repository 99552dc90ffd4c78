package region

import (
	"os"

	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// readDefinitions reads the settings in a directory, which override the embedded ones, once.
func readDefinitions(dir string) (*definition.Registry, error) {
	if dir == "" {
		return definition.Embedded(), nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fleet.Errorf(fleet.Invalid, "directory of definitions %s not found", dir).At("definitions").
			WithHint("omit --definitions to use the embedded ones")
	}
	return definition.NewRegistry(os.DirFS(dir))
}
