package definition

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Embedded is the registry of the embedded settings alone.
func Embedded() *Registry { return embedded }

// Generate makes the definition of a declared deployment by the embedded settings, with its
// canonical form (RFC 8785). Files has the content of each file by the hash of its body. Errors are
// invalid, with their field in the spec.
func Generate(spec fleet.DeploymentSpec, files map[fleet.Hash]string) (fleet.Definition, []byte, error) {
	return embedded.Generate(spec, files)
}

// Check looks at a declaration as far as that needs no settings: a region may have its own.
func Check(spec fleet.DeploymentSpec) error {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return err
	}
	g, known := embedded.generators[spec.Type]
	if !known {
		return fleet.Errorf(fleet.Invalid, "there is no generator of type %.40q", spec.Type).At("/type")
	}
	return g.Validate(spec)
}

// Validate says whether Generate would take a declaration, without its files.
func Validate(spec fleet.DeploymentSpec) error { return embedded.Validate(spec) }

// Generate is Generate by the registry's settings.
func (r *Registry) Generate(spec fleet.DeploymentSpec, files map[fleet.Hash]string) (fleet.Definition, []byte, error) {
	d, err := r.define(spec)
	if err != nil {
		return fleet.Definition{}, nil, err
	}
	for i, f := range d.Files {
		if f.Body == nil {
			continue
		}
		content, known := files[f.Body.Hash]
		if !known {
			return fleet.Definition{}, nil, fleet.Errorf(fleet.Invalid, "the content of file %s is not there", f.Path).At("/process/files/" + strconv.Itoa(i))
		}
		d.Files[i] = fleet.ProcessFile{Path: f.Path, Content: content}
	}
	text, err := canonical(d)
	return d, text, err
}

// Validate is Validate by the registry's settings.
func (r *Registry) Validate(spec fleet.DeploymentSpec) error {
	_, err := r.define(spec)
	return err
}

// define is all but the contents of files.
func (r *Registry) define(spec fleet.DeploymentSpec) (fleet.Definition, error) {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return fleet.Definition{}, err
	}
	g, section, err := r.of(spec.Type)
	if err != nil {
		return fleet.Definition{}, err
	}
	if err := g.Validate(spec); err != nil {
		return fleet.Definition{}, err
	}
	made, err := g.Generate(spec, section)
	if err != nil {
		return fleet.Definition{}, err
	}
	p := complete(merge(made, spec.Process))
	if err := check(p); err != nil {
		return fleet.Definition{}, err
	}
	p.Health = waiting(spec, p.Health)
	return fleet.Definition{Process: p, Resources: spec.Resources, Recovery: spec.Recovery.WithDefaults()}, nil
}

// check looks at what only the merged process shows.
func check(p fleet.Process) error {
	if p.Driver == fleet.DriverProcess && len(p.Command) == 0 {
		return fleet.Errorf(fleet.Invalid, "there is nothing to run").At("/process/command").WithHint("give a command, or an image")
	}
	if p.Driver == fleet.DriverDocker && p.Image == "" {
		return fleet.Errorf(fleet.Invalid, "a container needs an image").At("/process/image")
	}
	if (p.Health.Type != fleet.HealthNone || p.Readiness != nil) && len(p.Ports) == 0 {
		return fleet.Errorf(fleet.Invalid, "a check needs a port").At("/process/ports").WithHint(`give a port, or the check the type "none"`)
	}
	if err := p.Health.CheckProbe(fleet.HealthField); err != nil {
		return err
	}
	if p.Readiness != nil {
		if err := p.Readiness.CheckProbe(fleet.ReadinessField); err != nil {
			return err
		}
	}
	// What the type brings and what is declared may not fit together.
	return fleet.DeploymentSpec{Type: fleet.TypeProcess, Process: p}.WithDefaults().Validate()
}

func canonical(d fleet.Definition) ([]byte, error) {
	src, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("write the definition: %w", err)
	}
	text, err := compose.Canonical(src, compose.Limits{})
	if err != nil {
		return nil, fmt.Errorf("write the definition: %w", err)
	}
	if len(text) > MaxBytes {
		return nil, fleet.Errorf(fleet.Invalid, "the definition has %d bytes, allowed are %d", len(text), MaxBytes).At("/process/files").
			WithHint("shorten the files, or the environment; what is large comes with the program or its image")
	}
	return text, nil
}

// MaxBytes bounds a canonical definition, which a node fetches in one piece: with what JSON escapes of its
// files.
const MaxBytes = 1 << 20
