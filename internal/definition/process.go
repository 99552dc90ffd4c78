package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// process runs its command, or its image, as it is declared; what a cmd has more is its section.
type process struct{}

func (process) Validate(spec fleet.DeploymentSpec) error {
	if spec.Model != "" {
		return fleet.Errorf(fleet.Invalid, "type %s takes no model", spec.Type).At("/model").WithHint("name it in the command, or choose the type of its server")
	}
	return noModelDefinition(spec)
}

func (process) Generate(_ fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return section.Process, nil
}
