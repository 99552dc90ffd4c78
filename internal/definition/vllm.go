package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// vllm serves a model by `vllm serve`; several GPUs share it by tensor parallelism.
type vllm struct{}

func (vllm) Validate(spec fleet.DeploymentSpec) error { return needsModel(spec) }

func (vllm) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return serve(spec, section), nil
}
