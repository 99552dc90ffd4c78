package region

import (
	"os"

	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// readDefinitions reads the settings in a directory over the embedded ones, once.
func readDefinitions(dir string) (*definition.Registry, error) {
	if dir == "" {
		return definition.Embedded(), nil
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, fleet.Errorf(fleet.Invalid, "there is no directory of definitions %s", dir).At("definitions").
			WithHint("leave the setting out for those that are embedded")
	}
	return definition.NewRegistry(os.DirFS(dir))
}
