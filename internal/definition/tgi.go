package definition

import "github.com/holdfast-io/holdfast/internal/fleet"

// tgi serves a model by Text Generation Inference's launcher, in as many shards as there are GPUs.
type tgi struct{}

func (tgi) Validate(spec fleet.DeploymentSpec) error { return needsModel(spec) }

func (tgi) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	return serve(spec, section), nil
}
