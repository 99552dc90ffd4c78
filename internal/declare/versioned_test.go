package declare

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/fields"
)

type specEdit = func(*fleet.DeploymentSpec)

// fieldEdit changes one field of a spec of a type.
type fieldEdit struct {
	of   specEdit
	edit specEdit
}

func generated(t *testing.T, edits ...specEdit) Made {
	t.Helper()
	m := Made{Files: map[fleet.Hash]string{"a": "one"}}
	m.Spec = fleet.DeploymentSpec{
		Type: fleet.TypeProcess, Resources: fleet.Resources{CPU: 1, Memory: 1 << 20}, Replicas: fleet.ReplicaBounds{Min: 1, Max: 5, Initial: 2},
		Process: fleet.Process{
			Command: []string{"serve"}, Env: map[string]string{"A": "1"}, Ports: []fleet.ProcessPort{{Name: "http"}, {Name: "admin"}},
			Health: &fleet.HealthCheck{Type: fleet.HealthHTTP, Port: "http", Path: "/health"}, StopSeconds: 5,
		},
	}.WithDefaults()
	for _, edit := range edits {
		edit(&m.Spec)
	}
	require.NoError(t, m.Generate(definition.Embedded()))
	return m
}

func asProcess(*fleet.DeploymentSpec) {}

func asCanary(s *fleet.DeploymentSpec) { s.Strategy.Type = fleet.StrategyCanary }

func asContainer(s *fleet.DeploymentSpec) { s.Process.Image = "web:1" }

func asModel(s *fleet.DeploymentSpec) {
	s.Type, s.Model, s.Process = fleet.TypeVLLM, "one", fleet.Process{Image: "vllm:1"}
}

func asCustom(s *fleet.DeploymentSpec) {
	s.Type, s.Process = fleet.TypeCustom, fleet.Process{}
	s.ModelDefinition = &fleet.ModelDefinition{Name: "m", ModelPath: "/m", Service: fleet.ModelService{
		StartCommand: []string{"serve", "{model_path}"}, Port: 8000, HealthCheck: &fleet.ModelHealth{Path: "/health", Interval: 3, MaxWaitTime: 2},
	}}
}

func health(edit func(*fleet.HealthCheck)) specEdit {
	return func(s *fleet.DeploymentSpec) {
		h := *s.Process.Health
		edit(&h)
		s.Process.Health = &h
	}
}

func asReady(s *fleet.DeploymentSpec) {
	s.Process.Readiness = &fleet.HealthCheck{Type: fleet.HealthHTTP, Port: "http", Path: "/ready"}
}

func ready(edit func(*fleet.HealthCheck)) specEdit {
	return func(s *fleet.DeploymentSpec) { edit(s.Process.Readiness) }
}

func model(edit func(*fleet.ModelDefinition)) specEdit {
	return func(s *fleet.DeploymentSpec) { edit(s.ModelDefinition) }
}

func modelCheck(edit func(*fleet.ModelHealth)) specEdit {
	return model(func(m *fleet.ModelDefinition) { edit(m.Service.HealthCheck) })
}

// fieldEdits has an edit of every field of a spec.
var fieldEdits = map[string]fieldEdit{
	"/type":            {asModel, func(s *fleet.DeploymentSpec) { s.Type = fleet.TypeSGLang }},
	"/process/driver":  {asContainer, func(s *fleet.DeploymentSpec) { s.Process.Driver = fleet.DriverDocker }},
	"/process/image":   {asContainer, func(s *fleet.DeploymentSpec) { s.Process.Image = "web:2" }},
	"/process/command": {asProcess, func(s *fleet.DeploymentSpec) { s.Process.Command = []string{"other"} }},
	"/process/args":    {asProcess, func(s *fleet.DeploymentSpec) { s.Process.Args = []string{"x"} }},
	"/process/env/":    {asProcess, func(s *fleet.DeploymentSpec) { s.Process.Env = map[string]string{"A": "2"} }},
	"/process/files": {asProcess, func(s *fleet.DeploymentSpec) {
		s.Process.Files = []fleet.ProcessFile{{Path: "a", Body: &fleet.Content{Kind: fleet.ContentArtifact, Hash: "a", Size: 3}}}
	}},
	"/process/ports":                         {asProcess, func(s *fleet.DeploymentSpec) { s.Process.Ports = []fleet.ProcessPort{{Name: "http"}} }},
	"/process/health/type":                   {asProcess, health(func(h *fleet.HealthCheck) { h.Type, h.Path = fleet.HealthTCP, "" })},
	"/process/health/port":                   {asProcess, health(func(h *fleet.HealthCheck) { h.Port = "admin" })},
	"/process/health/path":                   {asProcess, health(func(h *fleet.HealthCheck) { h.Path = "/up" })},
	"/process/health/method":                 {asProcess, health(func(h *fleet.HealthCheck) { h.Method = "HEAD" })},
	"/process/health/expected_status":        {asProcess, health(func(h *fleet.HealthCheck) { h.ExpectedStatus = 204 })},
	"/process/health/interval":               {asProcess, health(func(h *fleet.HealthCheck) { h.Interval = 30 })},
	"/process/health/timeout":                {asProcess, health(func(h *fleet.HealthCheck) { h.Timeout = 1 })},
	"/process/health/unhealthy_threshold":    {asProcess, health(func(h *fleet.HealthCheck) { h.UnhealthyThreshold = 7 })},
	"/process/health/healthy_threshold":      {asProcess, health(func(h *fleet.HealthCheck) { h.HealthyThreshold = 7 })},
	"/process/readiness/type":                {asReady, ready(func(h *fleet.HealthCheck) { h.Type, h.Path = fleet.HealthTCP, "" })},
	"/process/readiness/port":                {asReady, ready(func(h *fleet.HealthCheck) { h.Port = "admin" })},
	"/process/readiness/path":                {asReady, ready(func(h *fleet.HealthCheck) { h.Path = "/up" })},
	"/process/readiness/method":              {asReady, ready(func(h *fleet.HealthCheck) { h.Method = "HEAD" })},
	"/process/readiness/expected_status":     {asReady, ready(func(h *fleet.HealthCheck) { h.ExpectedStatus = 204 })},
	"/process/readiness/interval":            {asReady, ready(func(h *fleet.HealthCheck) { h.Interval = 30 })},
	"/process/readiness/timeout":             {asReady, ready(func(h *fleet.HealthCheck) { h.Timeout = 1 })},
	"/process/readiness/unhealthy_threshold": {asReady, ready(func(h *fleet.HealthCheck) { h.UnhealthyThreshold = 7 })},
	"/process/readiness/healthy_threshold":   {asReady, ready(func(h *fleet.HealthCheck) { h.HealthyThreshold = 7 })},
	"/process/startup/deadline":              {asProcess, func(s *fleet.DeploymentSpec) { s.Process.Startup = &fleet.Startup{Deadline: 99} }},
	"/process/stopSeconds":                   {asProcess, func(s *fleet.DeploymentSpec) { s.Process.StopSeconds = 9 }},
	"/process/preStart":                      {asProcess, func(s *fleet.DeploymentSpec) { s.Process.PreStart = [][]string{{"true"}} }},
	"/process/sharedMemory":                  {asContainer, func(s *fleet.DeploymentSpec) { s.Process.SharedMemory = 1 << 20 }},
	"/model":                                 {asModel, func(s *fleet.DeploymentSpec) { s.Model = "two" }},
	"/modelDefinition/name":                  {asCustom, model(func(m *fleet.ModelDefinition) { m.Name = "n" })},
	"/modelDefinition/model_path":            {asCustom, model(func(m *fleet.ModelDefinition) { m.ModelPath = "/n" })},
	"/modelDefinition/service/pre_start_actions": {asCustom, model(func(m *fleet.ModelDefinition) {
		m.Service.PreStartActions = []fleet.ModelAction{{Action: "run_command", Args: map[string]any{"command": []any{"true"}}}}
	})},
	"/modelDefinition/service/start_command":                     {asCustom, model(func(m *fleet.ModelDefinition) { m.Service.StartCommand = []string{"other"} })},
	"/modelDefinition/service/port":                              {asCustom, model(func(m *fleet.ModelDefinition) { m.Service.Port = 8001 })},
	"/modelDefinition/service/health_check/path":                 {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.Path = "/up" })},
	"/modelDefinition/service/health_check/interval":             {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.Interval = 9 })},
	"/modelDefinition/service/health_check/max_retries":          {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.MaxRetries = 9 })},
	"/modelDefinition/service/health_check/max_wait_time":        {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.MaxWaitTime = 1 })},
	"/modelDefinition/service/health_check/expected_status_code": {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.ExpectedStatusCode = 204 })},
	"/modelDefinition/service/health_check/initial_delay":        {asCustom, modelCheck(func(h *fleet.ModelHealth) { h.InitialDelay = 9 })},
	"/resources/cpu":              {asProcess, func(s *fleet.DeploymentSpec) { s.Resources.CPU = 2 }},
	"/resources/memory":           {asProcess, func(s *fleet.DeploymentSpec) { s.Resources.Memory = 2 << 20 }},
	"/resources/gpus":             {asProcess, func(s *fleet.DeploymentSpec) { s.Resources.GPUs = 1 }},
	"/replicas/min":               {asProcess, func(s *fleet.DeploymentSpec) { s.Replicas.Min = 2 }},
	"/replicas/max":               {asProcess, func(s *fleet.DeploymentSpec) { s.Replicas.Max = 9 }},
	"/replicas/initial":           {asProcess, func(s *fleet.DeploymentSpec) { s.Replicas.Initial = 3 }},
	"/placement/sites":            {asProcess, func(s *fleet.DeploymentSpec) { s.Placement.Sites = []fleet.SiteName{"a"} }},
	"/placement/pools":            {asProcess, func(s *fleet.DeploymentSpec) { s.Placement.Pools = []fleet.PoolName{"a"} }},
	"/placement/labels/":          {asProcess, func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"A": "b"} }},
	"/placement/modules":          {asProcess, func(s *fleet.DeploymentSpec) { s.Placement.Modules = []string{"a"} }},
	"/placement/spread":           {asProcess, func(s *fleet.DeploymentSpec) { s.Placement.Spread = fleet.SpreadNone }},
	"/state":                      {func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }, func(s *fleet.DeploymentSpec) { s.State = fleet.StateStarted }},
	"/recovery/restarts":          {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.Restarts = 9 }},
	"/recovery/resetSeconds":      {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.ResetSeconds = 9 }},
	"/recovery/attempts":          {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.Attempts = 9 }},
	"/recovery/attemptSeconds":    {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.AttemptSeconds = 9 }},
	"/recovery/crashes":           {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.Crashes = 9 }},
	"/recovery/crashSeconds":      {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.CrashSeconds = 9 }},
	"/recovery/crashMaxSeconds":   {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.CrashMaxSeconds = 9999 }},
	"/recovery/giveUp":            {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.GiveUp = 9 }},
	"/recovery/lostSeconds":       {asProcess, func(s *fleet.DeploymentSpec) { s.Recovery.LostSeconds = 99 }},
	"/strategy/type":              {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.Type = fleet.StrategyRecreate }},
	"/strategy/steps":             {asCanary, func(s *fleet.DeploymentSpec) { s.Strategy.Steps = []fleet.CanaryStep{{Weight: 10}} }},
	"/strategy/pause_deadline":    {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.PauseDeadline = 900 }},
	"/strategy/max_surge":         {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.MaxSurge = &fleet.Share{Count: 1} }},
	"/strategy/max_unavailable":   {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.MaxUnavailable = &fleet.Share{Count: 1} }},
	"/strategy/max_in_flight":     {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.MaxInFlight = 1 }},
	"/strategy/min_healthy_time":  {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.MinHealthyTime = new(1.0) }},
	"/strategy/progress_deadline": {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.ProgressDeadline = 900 }},
	"/strategy/when_full":         {asProcess, func(s *fleet.DeploymentSpec) { s.Strategy.WhenFull = fleet.FullWait }},
	"/update":                     {asProcess, func(s *fleet.DeploymentSpec) { s.Update = fleet.UpdateVersioned }},
	"/memoryKeepsVersion":         {asProcess, func(s *fleet.DeploymentSpec) { s.MemoryKeepsVersion, s.Update = true, fleet.UpdateVersioned }},
	"/secretEnv":                  {asProcess, func(s *fleet.DeploymentSpec) { s.SecretEnv = []string{"A"} }},
}

// stays are the fields whose change no running replica is replaced for, as docs/runtime.md lists them: literals, so that
// a wrong line of the table is noticed. All others take a new process.
var stays = []string{
	"/process/health/interval", "/process/health/timeout", "/process/health/unhealthy_threshold", "/process/health/healthy_threshold",
	"/process/readiness/interval", "/process/readiness/timeout", "/process/readiness/unhealthy_threshold",
	"/process/readiness/healthy_threshold", "/process/stopSeconds", "/modelDefinition/service/health_check/max_wait_time",
	"/replicas/min", "/replicas/max", "/replicas/initial",
	"/placement/sites", "/placement/pools", "/placement/labels/", "/placement/modules", "/placement/spread",
	"/state", "/update", "/memoryKeepsVersion", "/secretEnv",
	"/recovery/restarts", "/recovery/resetSeconds", "/recovery/attempts", "/recovery/attemptSeconds", "/recovery/crashes",
	"/recovery/crashSeconds", "/recovery/crashMaxSeconds", "/recovery/giveUp", "/recovery/lostSeconds",
	"/strategy/type", "/strategy/steps", "/strategy/max_surge", "/strategy/max_unavailable", "/strategy/max_in_flight",
	"/strategy/min_healthy_time", "/strategy/progress_deadline", "/strategy/pause_deadline", "/strategy/when_full",
}

// renews are the fields of F5 and F41. These two types have different ports.
var renews = []string{
	"/type", "/process/ports", "/process/health/type", "/process/health/port", "/process/health/path", "/resources/memory",
	"/process/readiness/type", "/process/readiness/port", "/process/readiness/path",
	"/modelDefinition/service/port", "/modelDefinition/service/health_check/path",
}

// F2, F5, F7, F14, F15, F41, F51: the path of every field in both modes, and of what may keep the version.
func TestEveryFieldInBothModes(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, fields.Of[fleet.DeploymentSpec](), slices.Collect(maps.Keys(fieldEdits)), "give a new field an edit")
	require.Subset(t, fields.Of[fleet.DeploymentSpec](), slices.Concat(stays, renews))
	versioned := func(s *fleet.DeploymentSpec) { s.Update = fleet.UpdateVersioned }
	keeping := func(s *fleet.DeploymentSpec) { s.Update, s.MemoryKeepsVersion = fleet.UpdateVersioned, true }
	for field, f := range fieldEdits {
		byDefault := fleet.PathNewRuntimeObject
		if slices.Contains(stays, field) {
			byDefault = fleet.PathInPlace
		}
		if strings.HasSuffix(field, "/") {
			field += "A"
		}
		require.Equal(t, byDefault, fleet.SpecChangeAt(field).Path, field)
		if field == "/process/driver" { // the image says so already
			byDefault = fleet.PathInPlace
		}
		inVersioned, kept := byDefault, byDefault
		if byDefault == fleet.PathNewRuntimeObject {
			kept = fleet.PathNeedsRestart
			if !slices.Contains(renews, field) {
				inVersioned = fleet.PathNeedsRestart
			}
		}
		for _, c := range []struct {
			mode specEdit
			want fleet.ChangePath
		}{{asProcess, byDefault}, {versioned, inVersioned}, {keeping, kept}} {
			runs, m := generated(t, f.of, c.mode).runs(t, 2), generated(t, f.of, c.mode, f.edit)
			got, err := m.Changes(runs, true)
			require.NoError(t, err)
			if len(got) > 0 || field != "/update" && field != "/memoryKeepsVersion" { // a mode in which it is so already
				require.Contains(t, got, fleet.SpecChange{Field: field, Path: c.want})
			}
			got, err = m.Changes(runs, false)
			require.NoError(t, err)
			require.NotContains(t, lines(got), field+" needs_restart", "nothing is released")
		}
	}
}

// F51, F52: what is compared with what runs while another revision is rolled out, and what a restart would apply.
func TestChangesBesideARollout(t *testing.T) {
	t.Parallel()
	versioned := func(s *fleet.DeploymentSpec) { s.Update = fleet.UpdateVersioned }
	memory := func(s *fleet.DeploymentSpec) { s.Resources.Memory = 2 << 20 }
	greeting := func(s *fleet.DeploymentSpec) { s.Process.Env = map[string]string{"A": "2"} }
	runs, rolls := generated(t, versioned).runs(t, 2), generated(t, versioned, memory).runs(t, 2)
	runs.Applied = fleet.AppliedSpec{Spec: rolls.Spec, Definition: rolls.Definition, Body: rolls.Body}
	got, err := generated(t, versioned, memory, greeting).Changes(runs, true)
	require.NoError(t, err)
	require.Equal(t, []string{"/process/env/A needs_restart", "/resources/memory new_runtime_object"}, lines(got))
	got, err = generated(t, versioned, memory).Changes(runs, true)
	require.NoError(t, err)
	require.Equal(t, []string{"/resources/memory new_runtime_object"}, lines(got), "it joins")
	got, err = generated(t, memory, greeting).Changes(runs, true)
	require.NoError(t, err)
	require.Equal(t, []string{"/process/env/A new_runtime_object", "/resources/memory new_runtime_object", "/update in_place"}, lines(got))

	halt := func(s *fleet.DeploymentSpec) { s.State = fleet.StateStopped }
	got, err = generated(t, versioned, greeting).Changes(generated(t, versioned, halt).runs(t, 2), true)
	require.NoError(t, err)
	require.Equal(t, []string{"/process/env/A new_runtime_object", "/state in_place"}, lines(got), "what starts begins with it")
	got, err = generated(t, versioned, greeting).Changes(generated(t, versioned).runs(t, 0), true)
	require.NoError(t, err)
	require.Equal(t, []string{"/process/env/A new_runtime_object"}, lines(got), "as do replicas after none")

	got, err = Pending(runs.Spec, rolls.Spec)
	require.NoError(t, err)
	require.Equal(t, []string{"/resources/memory needs_restart"}, lines(got))
	got, err = Pending(runs.Spec, runs.Spec)
	require.NoError(t, err)
	require.Equal(t, []string{" needs_restart"}, lines(got), "what its type generates may differ alone")
}
