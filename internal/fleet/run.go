package fleet

import "strings"

// OnChange is how a running command is notified of a new config.
type OnChange string

// A restart stops the old process before the new one starts; a signal leaves it running.
const (
	OnChangeRestart OnChange = "restart"
	OnChangeSignal  OnChange = "signal"
)

// Run is the optional command of an instance. Durations are seconds. The command finds
// HOLDFAST_INSTANCE, HOLDFAST_NODE, HOLDFAST_SITE, HOLDFAST_EPOCH and HOLDFAST_CONFIG (the
// file) in its environment.
type Run struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"`
	// OnChange defaults to restart; Signal (SIGHUP by default) is for OnChange "signal".
	OnChange OnChange `json:"onChange,omitempty"`
	Signal   string   `json:"signal,omitempty"`
	// StartSeconds is how long the process must live to count as started (default 0.2).
	StartSeconds float64 `json:"startSeconds,omitempty"`
	// StopSeconds is the time between SIGTERM and SIGKILL (default 10).
	StopSeconds float64 `json:"stopSeconds,omitempty"`
}

// MaxRun is the longest run section that a node reads.
const MaxRun = 64 << 10

// RunSection is a run section as nodes get it: the declaration and its project. The region sets the project, and
// the revision's run hash covers it.
type RunSection struct {
	Run
	Project ProjectName `json:"project"`
}

// RunSignals are the signals that a run section may name.
func RunSignals() []string { return []string{"SIGHUP", "SIGUSR1", "SIGUSR2"} }

const maxRunSeconds = 3600

// Validate rejects a run section that cannot be carried out; field is its place in the input.
func (r Run) Validate(field string) error {
	switch {
	case len(r.Command) == 0 || r.Command[0] == "":
		return Errorf(Invalid, "command is empty: give at least its program").At(field + "/command")
	case r.OnChange != "" && r.OnChange != OnChangeRestart && r.OnChange != OnChangeSignal:
		return Errorf(Invalid, "unknown onChange %.40q; use restart or signal", r.OnChange).At(field + "/onChange")
	case r.StartSeconds < 0 || r.StartSeconds > maxRunSeconds:
		return Errorf(Invalid, "invalid start time: want 0 to %d seconds", maxRunSeconds).At(field + "/startSeconds")
	case r.StopSeconds < 0 || r.StopSeconds > maxRunSeconds:
		return Errorf(Invalid, "invalid stop time: want 0 to %d seconds", maxRunSeconds).At(field + "/stopSeconds")
	}
	for _, arg := range r.Command {
		if strings.ContainsRune(arg, 0) {
			return Errorf(Invalid, "a NUL byte cannot be passed to a command").At(field + "/command")
		}
	}
	if err := validateEnv(field+"/env", r.Env); err != nil {
		return err
	}
	if r.Signal == "" {
		return nil
	}
	for _, s := range RunSignals() {
		if r.Signal == s {
			return nil
		}
	}
	return Errorf(Invalid, "invalid signal: want one of %s", strings.Join(RunSignals(), ", ")).At(field + "/signal")
}
