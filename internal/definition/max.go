package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// maxServer serves a model by Modular's `max serve`, on the GPUs of the replica.
type maxServer struct{}

func (maxServer) Validate(spec fleet.DeploymentSpec) error { return needsModel(spec) }

func (maxServer) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return serve(spec, section), nil
}
