package definition

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

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

// Registry knows the generators, and what the settings say.
type Registry struct {
	generators map[fleet.DeploymentType]Generator
	files      fs.FS
	overrides  map[string]Section // by name, as they were read
}

func generators() map[fleet.DeploymentType]Generator {
	return map[fleet.DeploymentType]Generator{
		fleet.TypeProcess: process{},
		fleet.TypeCmd:     process{},
		fleet.TypeVLLM:    vllm{},
		fleet.TypeTGI:     tgi{},
		fleet.TypeSGLang:  sglang{},
		fleet.TypeNIM:     nim{},
		fleet.TypeMAX:     maxServer{},
		fleet.TypeCustom:  custom{},
	}
}

// root names the section of all types.
const root = "root"

// NewRegistry reads overrides over the embedded settings: a file of the same name (root.json,
// vllm.json, …) is merged over the embedded one field by field. Nil has none. They are read once. What
// is not understood, or makes no process, is invalid, with its file and its field.
func NewRegistry(overrides fs.FS) (*Registry, error) {
	r := &Registry{generators: generators(), files: files, overrides: map[string]Section{}}
	if overrides == nil {
		return r, nil
	}
	if err := r.refuseOthers(overrides); err != nil {
		return nil, err
	}
	for _, name := range r.names() {
		s, err := read(overrides, name+".json")
		if err != nil {
			return nil, err
		}
		r.overrides[name] = s
		whole, err := r.whole(name)
		if err != nil {
			return nil, err
		}
		if err := whole.check(); err != nil {
			return nil, inFile(name+".json", err)
		}
	}
	return r, nil
}

// names are those that sections may have, the root first.
func (r *Registry) names() []string {
	names := []string{root}
	for _, t := range fleet.DeploymentTypes() {
		names = append(names, string(t))
	}
	return names
}

// refuseOthers refuses files of settings that are of no type: a name that is misspelt would go unseen.
func (r *Registry) refuseOthers(overrides fs.FS) error {
	entries, err := fs.ReadDir(overrides, ".")
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "read the definitions: %w", err)
	}
	for _, e := range entries {
		name, settings := strings.CutSuffix(e.Name(), ".json")
		if settings && !slices.Contains(r.names(), name) {
			return fleet.Errorf(fleet.Invalid, "settings %s are of no type", e.Name()).At(e.Name()).
				WithHint("a file is named after " + strings.Join(r.names(), ", "))
		}
	}
	return nil
}

// check looks at a section as far as it says something by itself.
func (s Section) check() error {
	for field, name := range map[string]string{"/modelEnv": s.ModelEnv, "/portEnv": s.PortEnv} {
		if name != "" && !fleet.ValidEnvName(name) {
			return fleet.Errorf(fleet.Invalid, "invalid environment name %.40q", name).At(field).WithHint(fleet.EnvHint)
		}
	}
	for field, check := range map[string]*fleet.HealthCheck{fleet.HealthField: s.Health, fleet.ReadinessField: s.Readiness} {
		if check == nil {
			continue
		}
		if err := check.WithDefaults().CheckProbe(field); err != nil {
			return err
		}
	}
	return fleet.DeploymentSpec{Type: fleet.TypeProcess, Process: s.Process}.WithDefaults().Validate()
}

// inFile says in which file of the settings a field is wrong.
func inFile(file string, err error) error {
	field := ""
	var e *fleet.Error
	if errors.As(err, &e) {
		field = strings.TrimPrefix(e.Field, "/process")
	}
	return fleet.Errorf(fleet.Invalid, "settings %s, %s: %w", file, cmp.Or(field, "/"), err).At(file + field)
}

// of is the generator of a type, and its section over the root's.
func (r *Registry) of(t fleet.DeploymentType) (Generator, Section, error) {
	g, known := r.generators[t]
	if !known {
		return nil, Section{}, fleet.Errorf(fleet.Invalid, "there is no generator of type %.40q", t).At("/type")
	}
	section, err := r.whole(string(t))
	return g, section, err
}

// whole is a section over the root's.
func (r *Registry) whole(name string) (Section, error) {
	below, err := r.section(root)
	if err != nil || name == root {
		return below, err
	}
	own, err := r.section(name)
	return below.over(own), err
}

// section is the embedded one with the override of the same name over it.
func (r *Registry) section(name string) (Section, error) {
	s, err := read(r.files, "settings/"+name+".json")
	return s.over(r.overrides[name]), err
}

// read answers an empty section for a file that does not exist.
func read(from fs.FS, file string) (Section, error) {
	text, err := fs.ReadFile(from, file)
	if errors.Is(err, fs.ErrNotExist) {
		return Section{}, nil
	}
	if err != nil {
		return Section{}, fleet.Errorf(fleet.Invalid, "read the settings: %w", err).At(file)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var s Section
	err = d.Decode(&s)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something behind the object")
		}
	}
	if err != nil {
		return Section{}, inFile(file, fleet.Errorf(fleet.Invalid, "%w", err).At(fieldOf(err)))
	}
	return s, nil
}

// fieldOf is the field that a decoder did not understand, "" where it names none.
func fieldOf(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return "/" + strings.ReplaceAll(strings.TrimPrefix(kind.Field, "Process."), ".", "/")
	}
	if _, name, unknown := strings.Cut(err.Error(), "unknown field "); unknown {
		return "/" + strings.Trim(name, `"`)
	}
	return ""
}
