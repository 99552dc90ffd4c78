package definition

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Generator makes the process of one type of deployment. The section is what the settings say of the
// type, over the root's. What was declared is merged over its answer.
type Generator interface {
	// Validate refuses what the type could not generate, with the field in the spec.
	Validate(spec fleet.DeploymentSpec) error
	Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error)
}

// Section is what the settings say: of all types (root.json), or of one. Command and Args may hold
// ${MODEL}, ${GPUS} and ${DEVICES} (gpu:0,1,…); PerGPU is added to Args where there is more than one
// GPU, OnGPU where there is any.
type Section struct {
	fleet.Process
	PerGPU []string `json:"perGPU,omitempty"`
	OnGPU  []string `json:"onGPU,omitempty"`
	// ModelEnv names what gets the model in the environment.
	ModelEnv string `json:"modelEnv,omitempty"`
	// PortEnv names what gets the number of the first port there.
	PortEnv string `json:"portEnv,omitempty"`
	// ImageEntrypoint says that the type's images have an ENTRYPOINT that is to stay, since it sets up
	// more than Command does: a container is given Args alone.
	ImageEntrypoint *bool `json:"imageEntrypoint,omitempty"`
}

//go:embed settings/*.json
var files embed.FS

// embedded is what there is without overrides; a test reads all of it.
var embedded = &Registry{generators: generators(), files: files}

// Registry knows the generators, and the files of their settings.
type Registry struct {
	generators map[fleet.DeploymentType]Generator
	files      fs.FS
	overrides  fs.FS
}

func generators() map[fleet.DeploymentType]Generator {
	return map[fleet.DeploymentType]Generator{
		fleet.TypeProcess: process{},
		fleet.TypeVLLM:    vllm{},
		fleet.TypeTGI:     tgi{},
		fleet.TypeSGLang:  sglang{},
		fleet.TypeNIM:     nim{},
		fleet.TypeMAX:     maxServer{},
		fleet.TypeCustom:  custom{},
	}
}

// NewRegistry reads overrides over the embedded settings: a file of the same name (root.json,
// vllm.json, …) is merged over the embedded one field by field. Nil has none. A file that is not
// understood is invalid.
func NewRegistry(overrides fs.FS) (*Registry, error) {
	r := &Registry{generators: generators(), files: files, overrides: overrides}
	for _, t := range fleet.DeploymentTypes() {
		if _, _, err := r.of(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// of is the generator of a type, and its section over the root's.
func (r *Registry) of(t fleet.DeploymentType) (Generator, Section, error) {
	g, known := r.generators[t]
	if !known {
		return nil, Section{}, fleet.Errorf(fleet.Invalid, "there is no generator of type %.40q", t).At("/type")
	}
	root, err := r.section("root")
	if err != nil {
		return nil, Section{}, err
	}
	own, err := r.section(string(t))
	return g, root.over(own), err
}

// section is the embedded one with the override of the same name over it.
func (r *Registry) section(name string) (Section, error) {
	s, err := read(r.files, "settings/"+name+".json")
	if err != nil || r.overrides == nil {
		return s, err
	}
	over, err := read(r.overrides, name+".json")
	return s.over(over), err
}

// read answers an empty section for a file that does not exist.
func read(from fs.FS, file string) (Section, error) {
	text, err := fs.ReadFile(from, file)
	if errors.Is(err, fs.ErrNotExist) {
		return Section{}, nil
	}
	if err != nil {
		return Section{}, fmt.Errorf("read %s: %w", file, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var s Section
	if err := d.Decode(&s); err != nil {
		return Section{}, fleet.Errorf(fleet.Invalid, "settings %s: %w", file, err)
	}
	return s, nil
}
