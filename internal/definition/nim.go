package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// nim runs a NIM container. The image brings command and model; the environment names its port, and
// another model where one is declared.
type nim struct{}

func (nim) Validate(spec fleet.DeploymentSpec) error {
	if spec.Process.Driver == fleet.DriverProcess {
		return fleet.Errorf(fleet.Invalid, "NIM comes as a container").At("/process/driver").WithHint(`say "docker", or leave it out`)
	}
	return noModelDefinition(spec)
}

func (nim) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return serve(spec, section), nil
}
