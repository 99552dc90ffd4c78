package declaration

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Secrets are the places in a config that are marked as secret: by the specs that it was or is made from, and by their templates, as
// pinned and as they are now. So a mark that is made later holds for what is already deployed. It gives these templates too.
func (m *Maker) Secrets(ctx context.Context, specs ...fleet.InstanceSpec) (marks []string, _ []fleet.TemplateName, err error) {
	var c Chain
	pins := map[fleet.TemplatePin]bool{}
	for _, spec := range specs {
		marks = append(marks, spec.Secrets...)
		pin := fleet.TemplatePin{Name: spec.Template, Generation: spec.TemplateGeneration}
		if pin.Name == "" || pins[pin] {
			continue
		}
		pins[pin], c.Layers = true, nil // of another composition
		if _, err := c.Add(ctx, m, pin); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(c.Templates)
	c.Templates = slices.Compact(c.Templates)
	for _, name := range c.Templates {
		now, _, err := m.TemplateSpec(ctx, name, 0)
		if err != nil && fleet.KindOf(err) != fleet.NotFound { // deleted since, or not made yet
			return nil, nil, err
		}
		marks = append(marks, now.Secrets...)
	}
	return append(marks, c.Secrets...), c.Templates, nil
}

// EnvSections are the members of specs that have an environment: of instances, and of deployments.
func EnvSections() []string { return []string{"run", "process"} }

// SecretEnv are the names of the environment values that a spec marks as secret.
func SecretEnv(spec json.RawMessage) []string {
	var in struct {
		SecretEnv []string `json:"secretEnv"`
	}
	if json.Unmarshal(spec, &in) != nil {
		return nil // a spec without an environment
	}
	return in.SecretEnv
}

// SecretEnvAt are the places of those values in a spec.
func SecretEnvAt(spec json.RawMessage) []string {
	var at []string
	for _, name := range SecretEnv(spec) {
		for _, section := range EnvSections() {
			at = append(at, "/"+section+"/env/"+escapeToken(name))
		}
	}
	return at
}

// escapeToken writes a name as one step of a JSON pointer.
func escapeToken(name string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(name) }
