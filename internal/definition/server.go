package definition

import (
	"maps"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// serve is what the model servers have in common: the section's command with the model in it, and
// what the settings add for GPUs.
func serve(spec fleet.DeploymentSpec, section Section) fleet.Process {
	p := section.Process
	command := append([]string(nil), p.Command...)
	if spec.Resources.GPUs > 0 {
		command = append(command, section.OnGPU...)
	}
	if spec.Resources.GPUs > 1 {
		command = append(command, section.PerGPU...)
	}
	fill := strings.NewReplacer("${MODEL}", escaped(spec.Model), "${GPUS}", strconv.Itoa(spec.Resources.GPUs), "${DEVICES}", devices(spec.Resources.GPUs))
	for i, arg := range command {
		command[i] = fill.Replace(arg)
	}
	p.Command = command
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
	if spec.Model == "" && !wholeCommand(spec) {
		return fleet.Errorf(fleet.Invalid, "type %s needs a model", spec.Type).At("/model").WithHint("its name or its path, as the server takes it")
	}
	return noModelDefinition(spec)
}

func wholeCommand(spec fleet.DeploymentSpec) bool {
	return len(spec.Process.Command) > 0 && !strings.HasPrefix(spec.Process.Command[0], "-")
}

func noModelDefinition(spec fleet.DeploymentSpec) error {
	if spec.ModelDefinition != nil {
		return fleet.Errorf(fleet.Invalid, "type %s takes no model definition", spec.Type).At("/modelDefinition").WithHint("it is for type custom")
	}
	return nil
}
