package definition

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// serve is what the model servers have in common: the section's command with the model in it, and
// what the settings add for GPUs.
func serve(spec fleet.DeploymentSpec, section Section) fleet.Process {
	p := section.Process
	args := slices.Clone(p.Args)
	if spec.Resources.GPUs > 0 {
		args = append(args, section.OnGPU...)
	}
	if spec.Resources.GPUs > 1 {
		args = append(args, section.PerGPU...)
	}
	fill := strings.NewReplacer("${MODEL}", escaped(spec.Model), "${GPUS}", strconv.Itoa(spec.Resources.GPUs), "${DEVICES}", devices(spec.Resources.GPUs))
	p.Command, p.Args = filled(p.Command, fill), filled(args, fill)
	if keep := section.ImageEntrypoint; keep != nil && *keep && merge(p, spec.Process).InContainer() {
		p.Command = nil
	}
	p.Env = maps.Clone(p.Env)
	set := func(name, value string) {
		if name == "" || value == "" {
			return
		}
		if p.Env == nil {
			p.Env = map[string]string{}
		}
		p.Env[name] = value
	}
	set(section.ModelEnv, escaped(spec.Model))
	if section.PortEnv != "" {
		set(section.PortEnv, "${PORT}")
	}
	return p
}

func filled(words []string, fill *strings.Replacer) []string {
	var out []string
	for _, w := range words {
		out = append(out, fill.Replace(w))
	}
	return out
}

// escaped keeps a dollar what it is where a node replaces names.
func escaped(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// devices names the GPUs that a replica sees, from 0.
func devices(n int) string {
	if n == 0 {
		return "cpu"
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = strconv.Itoa(i)
	}
	return "gpu:" + strings.Join(numbers, ",")
}

// needsModel refuses a server without something to serve, unless its command is declared whole.
func needsModel(spec fleet.DeploymentSpec) error {
	if spec.Model == "" && len(spec.Process.Command) == 0 {
		return fleet.Errorf(fleet.Invalid, "type %s needs a model", spec.Type).At("/model").WithHint("its name or its path, as the server takes it")
	}
	return noModelDefinition(spec)
}

func noModelDefinition(spec fleet.DeploymentSpec) error {
	if spec.ModelDefinition != nil {
		return fleet.Errorf(fleet.Invalid, "type %s takes no model definition", spec.Type).At("/modelDefinition").WithHint("it is for type custom")
	}
	return nil
}
