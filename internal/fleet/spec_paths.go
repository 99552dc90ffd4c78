package fleet

import (
	"encoding/json"
	"strings"
)

// ChangePath is how a change of a deployment's spec reaches what runs (F51).
type ChangePath string

// In place, running replicas stay and obey the new value within seconds. A new runtime object is a replica of a new
// process version, which takes the place of a running one. Needs restart is a change that waits for a restart, in mode
// versioned. Deferred is every change while nothing runs: the next replicas begin with it.
const (
	PathInPlace          ChangePath = "in_place"
	PathNewRuntimeObject ChangePath = "new_runtime_object"
	PathNeedsRestart     ChangePath = "needs_restart"
	PathDeferred         ChangePath = "deferred"
)

// SpecChange is a field of a spec that differs from what runs. Field is a JSON pointer into the spec, "" if no
// declared field differs and what its type generates does.
type SpecChange struct {
	Field string     `json:"field"`
	Path  ChangePath `json:"path"`
}

// RunningSpec is what a write or a plan of a deployment compares with: the release that most live replicas run, the
// earlier of two; the last release if none lives.
type RunningSpec struct {
	UID    string // of the declaration
	Spec   json.RawMessage
	Target int
	// Definition is the hash of what it generated, Body its content; whoever knows that it is the same may leave it nil.
	Definition Hash
	Body       []byte
	// Applied is the release that is rolled out, or else the deployment's own: beside it a change may wait for a restart.
	Applied AppliedSpec
}

// AppliedSpec is a release, with the hash of its definition and, if that is not RunningSpec's, its content.
type AppliedSpec struct {
	Spec       json.RawMessage
	Definition Hash
	Body       []byte
}

// AppliedBody is the definition that is applied.
func (r RunningSpec) AppliedBody() []byte {
	if r.Applied.Definition == r.Definition {
		return r.Body
	}
	return r.Applied.Body
}

// specPaths has every field of a DeploymentSpec (F2, F5, F13 to F15, F39). In those that end with a slash each
// member is one field.
var specPaths = []SpecChange{
	{"/type", PathNewRuntimeObject},
	{"/process/driver", PathNewRuntimeObject},
	{"/process/image", PathNewRuntimeObject},
	{"/process/command", PathNewRuntimeObject},
	{"/process/args", PathNewRuntimeObject},
	{"/process/env/", PathNewRuntimeObject},
	{"/process/files", PathNewRuntimeObject},
	{"/process/ports", PathNewRuntimeObject},
	{"/process/health/type", PathNewRuntimeObject},
	{"/process/health/port", PathNewRuntimeObject},
	{"/process/health/path", PathNewRuntimeObject},
	{"/process/health/method", PathNewRuntimeObject},
	{"/process/health/expected_status", PathNewRuntimeObject},
	{"/process/health/interval", PathInPlace},
	{"/process/health/timeout", PathInPlace},
	{"/process/health/unhealthy_threshold", PathInPlace},
	{"/process/health/healthy_threshold", PathInPlace},
	{"/process/readiness/type", PathNewRuntimeObject},
	{"/process/readiness/port", PathNewRuntimeObject},
	{"/process/readiness/path", PathNewRuntimeObject},
	{"/process/readiness/method", PathNewRuntimeObject},
	{"/process/readiness/expected_status", PathNewRuntimeObject},
	{"/process/readiness/interval", PathInPlace},
	{"/process/readiness/timeout", PathInPlace},
	{"/process/readiness/unhealthy_threshold", PathInPlace},
	{"/process/readiness/healthy_threshold", PathInPlace},
	{"/process/startup/deadline", PathNewRuntimeObject},
	{"/process/stopSeconds", PathInPlace},
	{"/process/preStart", PathNewRuntimeObject},
	{"/process/sharedMemory", PathNewRuntimeObject},
	{"/model", PathNewRuntimeObject},
	{"/modelDefinition/name", PathNewRuntimeObject},
	{"/modelDefinition/model_path", PathNewRuntimeObject},
	{"/modelDefinition/service/pre_start_actions", PathNewRuntimeObject},
	{"/modelDefinition/service/start_command", PathNewRuntimeObject},
	{"/modelDefinition/service/port", PathNewRuntimeObject},
	{"/modelDefinition/service/health_check/path", PathNewRuntimeObject},
	{"/modelDefinition/service/health_check/interval", PathNewRuntimeObject}, // it is part of the startup deadline
	{"/modelDefinition/service/health_check/max_retries", PathNewRuntimeObject},
	{"/modelDefinition/service/health_check/max_wait_time", PathInPlace},
	{"/modelDefinition/service/health_check/expected_status_code", PathNewRuntimeObject},
	{"/modelDefinition/service/health_check/initial_delay", PathNewRuntimeObject},
	{"/resources/cpu", PathNewRuntimeObject},
	{"/resources/memory", PathNewRuntimeObject},
	{"/resources/gpus", PathNewRuntimeObject},
	{"/replicas/min", PathInPlace},
	{"/replicas/max", PathInPlace},
	{"/replicas/initial", PathInPlace},
	{"/placement/sites", PathInPlace},
	{"/placement/pools", PathInPlace},
	{"/placement/labels/", PathInPlace},
	{"/placement/modules", PathInPlace},
	{"/placement/spread", PathInPlace},
	{"/state", PathInPlace},
	{"/recovery/restarts", PathInPlace},
	{"/recovery/resetSeconds", PathInPlace},
	{"/recovery/attempts", PathInPlace},
	{"/recovery/attemptSeconds", PathInPlace},
	{"/recovery/crashes", PathInPlace},
	{"/recovery/crashSeconds", PathInPlace},
	{"/recovery/crashMaxSeconds", PathInPlace},
	{"/recovery/giveUp", PathInPlace},
	{"/recovery/lostSeconds", PathInPlace},
	{"/strategy/type", PathInPlace},
	{"/strategy/steps", PathInPlace},
	{"/strategy/max_surge", PathInPlace},
	{"/strategy/max_unavailable", PathInPlace},
	{"/strategy/max_in_flight", PathInPlace},
	{"/strategy/min_healthy_time", PathInPlace},
	{"/strategy/progress_deadline", PathInPlace},
	{"/strategy/pause_deadline", PathInPlace},
	{"/strategy/when_full", PathInPlace},
	{"/update", PathInPlace},
	{"/memoryKeepsVersion", PathInPlace},
	{"/secretEnv", PathInPlace},
}

// SpecChangeAt is the field of a spec that a JSON pointer lies in, and its path. A field that this build does not
// know needs a new runtime object.
func SpecChangeAt(pointer string) SpecChange {
	for _, f := range specPaths {
		rest, in := strings.CutPrefix(pointer, f.Field)
		switch {
		case !in:
		case strings.HasSuffix(f.Field, "/"):
			member, _, _ := strings.Cut(rest, "/")
			return SpecChange{f.Field + member, f.Path}
		case rest == "" || rest[0] == '/':
			return f
		}
	}
	return SpecChange{pointer, PathNewRuntimeObject}
}
