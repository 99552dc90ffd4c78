package definition

import (
	"cmp"
	"maps"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// custom runs what a model definition says (S121).
type custom struct{}

// What a model definition's check means where it says nothing (S121). Seconds.
const (
	modelPort         = 8000
	modelInterval     = 10
	modelRetries      = 10
	modelWait         = 15
	modelStatus       = 200
	modelInitialDelay = 60
)

const (
	definitionField = "/modelDefinition"
	runCommand      = "run_command"
	maxModelSeconds = 3600
)

func (custom) Validate(spec fleet.DeploymentSpec) error {
	d := spec.ModelDefinition
	if d == nil {
		return fleet.Errorf(fleet.Invalid, "type custom needs a model definition").At(definitionField)
	}
	if len(d.Service.StartCommand) == 0 && len(spec.Process.Command) == 0 && spec.Process.Image == "" {
		return fleet.Errorf(fleet.Invalid, "there is nothing to run").At(definitionField + "/service/start_command")
	}
	if p := d.Service.Port; p < 0 || p > 65535 {
		return fleet.Errorf(fleet.Invalid, "invalid port %d: want 1 to 65535", p).At(definitionField + "/service/port")
	}
	for i, a := range d.Service.PreStartActions {
		if _, err := commandOf(a, definitionField+"/service/pre_start_actions/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return validateModelHealth(d.Service.HealthCheck)
}

func validateModelHealth(h *fleet.ModelHealth) error {
	const field = definitionField + "/service/health_check"
	if h == nil {
		return nil
	}
	switch {
	case !fleet.ValidHealthPath(h.Path):
		return fleet.Errorf(fleet.Invalid, "%s", fleet.NoHealthPath).At(field + "/path")
	case !fleet.ValidHealthStatus(h.ExpectedStatusCode):
		return fleet.Errorf(fleet.Invalid, "%d is no status that ends an answer: allowed are 200 to 599", h.ExpectedStatusCode).At(field + "/expected_status_code")
	case !(h.Interval >= 0 && h.Interval <= maxModelSeconds):
		return fleet.Errorf(fleet.Invalid, "allowed are up to %d seconds", maxModelSeconds).At(field + "/interval")
	case h.MaxRetries < 0 || h.MaxRetries > 1000:
		return fleet.Errorf(fleet.Invalid, "allowed are up to 1000").At(field + "/max_retries")
	case !(h.MaxWaitTime >= 0 && h.MaxWaitTime <= maxModelSeconds):
		return fleet.Errorf(fleet.Invalid, "allowed are up to %d seconds", maxModelSeconds).At(field + "/max_wait_time")
	case !(h.InitialDelay >= 0 && h.InitialDelay <= 12*maxModelSeconds):
		return fleet.Errorf(fleet.Invalid, "allowed are up to %d seconds", 12*maxModelSeconds).At(field + "/initial_delay")
	}
	return nil
}

func (custom) Generate(spec fleet.DeploymentSpec, section Section) (fleet.Process, error) {
	d, p := *spec.ModelDefinition, section.Process
	p.Command, p.Args = d.Service.StartCommand, nil
	p.Ports = []fleet.ProcessPort{{Name: "http", Port: cmp.Or(d.Service.Port, modelPort)}}
	p.Env = maps.Clone(p.Env)
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	if d.Name != "" {
		p.Env["MODEL_NAME"] = escaped(d.Name)
	}
	if path := cmp.Or(d.ModelPath, spec.Model); path != "" {
		p.Env["MODEL_PATH"] = escaped(path)
	}
	for _, a := range d.Service.PreStartActions {
		command, err := commandOf(a, definitionField)
		if err != nil {
			return fleet.Process{}, err
		}
		p.PreStart = append(p.PreStart, command)
	}
	if h := d.Service.HealthCheck; h != nil {
		p.Health, p.Startup = modelHealth(*h)
	}
	return p, nil
}

// commandOf is the command of a step before the start.
func commandOf(a fleet.ModelAction, field string) ([]string, error) {
	if a.Action != runCommand {
		return nil, fleet.Errorf(fleet.Invalid, "unknown action %.80q; use %s", a.Action, runCommand).At(field + "/action")
	}
	words, _ := a.Args["command"].([]any)
	var command []string
	for _, w := range words {
		if s, isText := w.(string); isText {
			command = append(command, s)
		}
	}
	if len(command) == 0 || len(command) != len(words) {
		return nil, fleet.Errorf(fleet.Invalid, "a command is a list of words").At(field + "/args/command")
	}
	return command, nil
}

// modelHealth translates a check, all but its wait. The first success has the initial delay and all retries.
func modelHealth(h fleet.ModelHealth) (*fleet.HealthCheck, *fleet.Startup) {
	interval, retries := cmp.Or(h.Interval, modelInterval), cmp.Or(h.MaxRetries, modelRetries)
	return &fleet.HealthCheck{
		Type: fleet.HealthHTTP, Path: h.Path, ExpectedStatus: cmp.Or(h.ExpectedStatusCode, modelStatus),
		Interval: interval, UnhealthyThreshold: retries, HealthyThreshold: 1,
	}, &fleet.Startup{Deadline: cmp.Or(h.InitialDelay, modelInitialDelay) + interval*float64(retries)}
}

// waiting puts the wait of a model definition into its check, unless a timeout is declared beside it. It may be
// longer than the interval, as it is by default (15 beside 10): no prober begins a probe before the last
// one has ended (S111).
func waiting(spec fleet.DeploymentSpec, check *fleet.HealthCheck) *fleet.HealthCheck {
	d, over := spec.ModelDefinition, spec.Process.Health
	if d == nil || d.Service.HealthCheck == nil || check.Type == fleet.HealthNone || over != nil && over.Timeout > 0 {
		return check
	}
	out := *check
	out.Timeout = cmp.Or(d.Service.HealthCheck.MaxWaitTime, modelWait)
	return &out
}
