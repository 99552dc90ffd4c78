package definition

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// over merges another section over this one, field by field (S120).
func (s Section) over(o Section) Section {
	return Section{
		Process: merge(s.Process, o.Process), PerGPU: orList(o.PerGPU, s.PerGPU), OnGPU: orList(o.OnGPU, s.OnGPU),
		ModelEnv: cmp.Or(o.ModelEnv, s.ModelEnv), PortEnv: cmp.Or(o.PortEnv, s.PortEnv), ImageEntrypoint: cmp.Or(o.ImageEntrypoint, s.ImageEntrypoint),
	}
}

// merge puts what is declared over what is below it: a field that is left out keeps the one below;
// environments are merged by name, files by path, checks by field. A command takes the
// place of command and args below it; args that begin with an option are added to those below, any
// others take their place.
func merge(below, over fleet.Process) fleet.Process {
	p := fleet.Process{
		Driver: cmp.Or(over.Driver, below.Driver), Image: cmp.Or(over.Image, below.Image), Command: orList(over.Command, below.Command),
		Args: mergeArgs(below, over), Env: mergeEnv(below.Env, over.Env), Files: mergeFiles(below.Files, over.Files), Ports: orList(over.Ports, below.Ports),
		StopSeconds: cmp.Or(over.StopSeconds, below.StopSeconds), PreStart: orList(over.PreStart, below.PreStart),
		Health: mergeHealth(below.Health, over.Health), Readiness: mergeHealth(below.Readiness, over.Readiness), Startup: below.Startup, SharedMemory: cmp.Or(over.SharedMemory, below.SharedMemory),
	}
	if over.Startup != nil {
		p.Startup = over.Startup
	}
	if over.Driver == fleet.DriverProcess {
		p.Image = ""
	}
	return p
}

func orList[T any](over, below []T) []T {
	if len(over) > 0 {
		return over
	}
	return below
}

func mergeArgs(below, over fleet.Process) []string {
	switch {
	case len(over.Command) > 0:
		return over.Args
	case len(over.Args) > 0 && strings.HasPrefix(over.Args[0], "-"):
		return slices.Concat(below.Args, over.Args)
	}
	return orList(over.Args, below.Args)
}

func mergeEnv(below, over map[string]string) map[string]string {
	if len(below) == 0 {
		return maps.Clone(over)
	}
	out := maps.Clone(below)
	maps.Copy(out, over)
	return out
}

// mergeFiles keeps the order: what was first stays what HOLDFAST_CONFIG names.
func mergeFiles(below, over []fleet.ProcessFile) []fleet.ProcessFile {
	out := append([]fleet.ProcessFile(nil), over...)
	for _, f := range below {
		if !hasFile(over, f.Path) {
			out = append(out, f)
		}
	}
	return out
}

func hasFile(all []fleet.ProcessFile, path string) bool {
	for _, f := range all {
		if f.Path == path {
			return true
		}
	}
	return false
}

func mergeHealth(below, over *fleet.HealthCheck) *fleet.HealthCheck {
	if below == nil || over == nil {
		return cmp.Or(over, below)
	}
	if over.Type == fleet.HealthNone {
		return over
	}
	check := fleet.HealthCheck{
		Type: cmp.Or(over.Type, below.Type), Port: cmp.Or(over.Port, below.Port), Path: cmp.Or(over.Path, below.Path),
		Method: cmp.Or(over.Method, below.Method), ExpectedStatus: cmp.Or(over.ExpectedStatus, below.ExpectedStatus),
		Interval: cmp.Or(over.Interval, below.Interval), Timeout: cmp.Or(over.Timeout, below.Timeout),
		UnhealthyThreshold: cmp.Or(over.UnhealthyThreshold, below.UnhealthyThreshold),
		HealthyThreshold:   cmp.Or(over.HealthyThreshold, below.HealthyThreshold),
	}
	if over.Timeout == 0 && check.Timeout >= check.Interval && over.Interval > 0 {
		check.Timeout = 0 // who asks for a shorter interval need not know the timeout below it
	}
	return &check
}

// complete fills in omitted values. Without a check, declared or of its type, a replica is not probed.
func complete(p fleet.Process) fleet.Process {
	if p.Driver == "" {
		p.Driver = fleet.DriverProcess
		if p.Image != "" {
			p.Driver = fleet.DriverDocker
		}
	}
	if p.Health = completeCheck(p.Health, p.Ports); p.Health == nil {
		p.Health = &fleet.HealthCheck{Type: fleet.HealthNone}
	}
	p.Readiness = completeCheck(p.Readiness, p.Ports)
	p.StopSeconds = cmp.Or(p.StopSeconds, fleet.DefaultStopSeconds)
	if p.Startup == nil {
		p.Startup = &fleet.Startup{Deadline: fleet.DefaultStartup}
	}
	return p
}

// completeCheck is nil for a check that probes nothing.
func completeCheck(declared *fleet.HealthCheck, ports []fleet.ProcessPort) *fleet.HealthCheck {
	if declared == nil || declared.Type == fleet.HealthNone {
		return nil
	}
	check := declared.WithDefaults()
	if check.Port == "" && len(ports) > 0 {
		check.Port = ports[0].Name
	}
	return &check
}
