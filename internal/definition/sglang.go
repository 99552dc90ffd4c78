package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// sglang serves a model by SGLang's launch_server; several GPUs share it by tensor parallelism.
type sglang struct{}

func (sglang) Validate(spec fleet.DeploymentSpec) error { return needsModel(spec) }

func (sglang) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return serve(spec, section), nil
}
