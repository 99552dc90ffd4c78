package definition_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, d fleet.Definition) {
	t.Helper()
	text, err := json.MarshalIndent(d, "", "  ")
	require.NoError(t, err)
	file := filepath.Join("testdata", name+".golden.json")
	if *update {
		require.NoError(t, os.WriteFile(file, append(text, '\n'), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(bytes.TrimSpace(want)), string(text), "go test ./internal/definition -update")
}

func serving(of fleet.DeploymentType, model string, change ...func(*fleet.DeploymentSpec)) fleet.DeploymentSpec {
	s := fleet.DeploymentSpec{Type: of, Model: model}
	for _, c := range change {
		c(&s)
	}
	return s
}

func gpus(n int) func(*fleet.DeploymentSpec) {
	return func(s *fleet.DeploymentSpec) { s.Resources.GPUs = n }
}

func image(s string) func(*fleet.DeploymentSpec) {
	return func(d *fleet.DeploymentSpec) { d.Process.Image = s }
}

func command(c ...string) func(*fleet.DeploymentSpec) {
	return func(d *fleet.DeploymentSpec) { d.Process.Command = c }
}

func args(a ...string) func(*fleet.DeploymentSpec) {
	return func(d *fleet.DeploymentSpec) { d.Process.Args = a }
}

func modelDefinition(m fleet.ModelDefinition) func(*fleet.DeploymentSpec) {
	return func(d *fleet.DeploymentSpec) { d.ModelDefinition = &m }
}

var whole = fleet.ModelDefinition{Name: "press", ModelPath: "/models/press", Service: fleet.ModelService{
	PreStartActions: []fleet.ModelAction{{Action: "run_command", Args: map[string]any{"command": []any{"mkdir", "-p", "/tmp/cache"}}}},
	StartCommand:    []string{"python3", "serve.py", "--port", "${PORT}"}, Port: 9000,
	HealthCheck: &fleet.ModelHealth{Path: "/ping", Interval: 20, MaxRetries: 5, MaxWaitTime: 15, ExpectedStatusCode: 204, InitialDelay: 300},
}}

// S111, S121: the wait of a model definition is as it was written, or 15, whatever the interval is: it is never
// shortened unseen. A timeout that is declared counts more, and has to be below the interval.
func TestWaitOfModelDefinition(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		model             fleet.ModelHealth
		over              *fleet.HealthCheck
		interval, timeout float64
	}{
		{"the defaults", fleet.ModelHealth{}, nil, 10, 15},
		{"the defaults, written out", fleet.ModelHealth{Interval: 10, MaxWaitTime: 15}, nil, 10, 15},
		{"a wait beyond the interval", fleet.ModelHealth{Interval: 5, MaxWaitTime: 30}, nil, 5, 30},
		{"a wait within it", fleet.ModelHealth{Interval: 5, MaxWaitTime: 4}, nil, 5, 4},
		{"another interval beside it", fleet.ModelHealth{MaxWaitTime: 12}, &fleet.HealthCheck{Interval: 8}, 8, 12},
		{"another timeout beside it", fleet.ModelHealth{MaxWaitTime: 12}, &fleet.HealthCheck{Timeout: 3}, 10, 3},
		{"no check beside it", fleet.ModelHealth{}, &fleet.HealthCheck{Type: fleet.HealthNone}, 0, 0},
		{"a timeout of the interval beside it", fleet.ModelHealth{}, &fleet.HealthCheck{Timeout: 10}, 0, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.model.Path = "/ping"
			m := whole
			m.Service.HealthCheck = &c.model
			d, _, err := definition.Generate(serving(fleet.TypeCustom, "", modelDefinition(m), func(s *fleet.DeploymentSpec) { s.Process.Health = c.over }), nil)
			if c.timeout < 0 {
				var e *fleet.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, "/process/health/timeout", e.Field)
				require.NotEmpty(t, e.Hint)
				return
			}
			require.NoError(t, err)
			require.InDelta(t, c.interval, d.Health.Interval, 1e-9)
			require.InDelta(t, c.timeout, d.Health.Timeout, 1e-9)
		})
	}
}

// S9, S10, S11, S12, S119, S121: the flags, ports and health paths that the servers document.
func TestGenerate(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]fleet.DeploymentSpec{
		"vllm":           serving(fleet.TypeVLLM, "meta-llama/Llama-3.1-8B-Instruct"),
		"vllm_gpus":      serving(fleet.TypeVLLM, "/models/llama", gpus(4), image("vllm/vllm-openai:v0.9.0"), args("--max-model-len", "8192")),
		"tgi":            serving(fleet.TypeTGI, "bigscience/bloom-560m"),
		"tgi_gpus":       serving(fleet.TypeTGI, "bigscience/bloom", gpus(2)),
		"tgi_image":      serving(fleet.TypeTGI, "bigscience/bloom-560m", image("ghcr.io/huggingface/text-generation-inference:3.3.4"), gpus(2)),
		"sglang_image":   serving(fleet.TypeSGLang, "qwen/qwen2.5-0.5b-instruct", image("lmsysorg/sglang:v0.5.3"), gpus(1)),
		"max_image":      serving(fleet.TypeMAX, "google/gemma-3-12b-it", image("modular/max-nvidia-full:25.7"), gpus(1)),
		"own_entrypoint": serving(fleet.TypeTGI, "m", image("registry.example/tgi:1"), command("/opt/serve.sh"), args("${PORT}")),
		"sglang":         serving(fleet.TypeSGLang, "qwen/qwen2.5-0.5b-instruct"),
		"sglang_gpus":    serving(fleet.TypeSGLang, "qwen/qwen2.5-72b-instruct", gpus(8)),
		"nim":            serving(fleet.TypeNIM, "", image("nvcr.io/nim/meta/llama-3.1-8b-instruct:2.0.4"), gpus(1)),
		"nim_model":      serving(fleet.TypeNIM, "hf://meta-llama/Llama-3.1-8B-Instruct", image("nvcr.io/nim/nvidia/model-free-nim:2.0.4")),
		"max":            serving(fleet.TypeMAX, "google/gemma-3-12b-it"),
		"max_gpus":       serving(fleet.TypeMAX, "google/gemma-3-27b-it", gpus(2)),
		"custom":         serving(fleet.TypeCustom, "", modelDefinition(whole)),
		"custom_least":   serving(fleet.TypeCustom, "", modelDefinition(fleet.ModelDefinition{Service: fleet.ModelService{StartCommand: []string{"serve"}, HealthCheck: &fleet.ModelHealth{Path: "/"}}})),
		"process":        serving(fleet.TypeProcess, "", command("redis-server", "--port", "${PORT}"), func(s *fleet.DeploymentSpec) { s.Process.Ports = []fleet.ProcessPort{{Name: "redis"}} }),
		"cmd":            serving(fleet.TypeCmd, "", command("python3", "serve.py", "${PORT}")),
		"cmd_ports":      serving(fleet.TypeCmd, "", image("registry.example/serve:2"), func(s *fleet.DeploymentSpec) { s.Process.Ports = []fleet.ProcessPort{{Name: "api"}} }),
		"cmd_readiness":  serving(fleet.TypeCmd, "", image("registry.example/serve:2"), func(s *fleet.DeploymentSpec) { s.Process.Readiness = &fleet.HealthCheck{Path: "/ready", Interval: 2} }),
		"cmd_check":      serving(fleet.TypeCmd, "", image("registry.example/serve:2"), func(s *fleet.DeploymentSpec) { s.Process.Health = &fleet.HealthCheck{Path: "/up"} }),
		"process_image":  serving("", "", image("registry.example/web:1.4")),
		"whole_command":  serving(fleet.TypeVLLM, "", command("/opt/serve.sh", "${PORT}")),
		"a_dollar_stays": serving(fleet.TypeVLLM, "/models/$HOME/${PORT}"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, text, err := definition.Generate(spec, nil)
			require.NoError(t, err)
			require.NoError(t, definition.Validate(spec))
			golden(t, name, d)
			again, err := compose.Canonical(text, compose.Limits{})
			require.NoError(t, err)
			require.Equal(t, string(again), string(text))
			var read fleet.Definition
			require.NoError(t, json.Unmarshal(text, &read))
			require.Equal(t, d, read, "a node reads what was generated")
		})
	}
}

// S119: the profiles' ports and checks, as they are written there.
func TestProfiles(t *testing.T) {
	t.Parallel()
	for of, want := range map[fleet.DeploymentType]struct {
		port int
		path string
	}{
		fleet.TypeVLLM: {8000, "/health"}, fleet.TypeNIM: {8000, "/v1/health/ready"}, fleet.TypeTGI: {3000, "/info"},
		fleet.TypeSGLang: {9001, "/health"}, fleet.TypeMAX: {8000, "/health"}, fleet.TypeCmd: {8000, ""},
	} {
		spec := serving(of, "m", image("registry.example/server:1"))
		if want.path == "" {
			spec.Model = ""
		}
		d, _, err := definition.Generate(spec, nil)
		require.NoError(t, err, of)
		require.Equal(t, []fleet.ProcessPort{{Name: "http", Port: want.port}}, d.Ports, of)
		require.Equal(t, want.path, d.Health.Path, of)
		require.Equal(t, want.path == "", d.Health.Type == fleet.HealthNone, of)
	}
}

// S120: root, then the section of the type, then what is declared, each field by field.
func TestMerge(t *testing.T) {
	t.Parallel()
	r, err := definition.NewRegistry(fstest.MapFS{
		"root.json": {Data: []byte(`{"env":{"HTTPS_PROXY":"http://proxy:3128","A":"root"},"stopSeconds":20}`)},
		"vllm.json": {Data: []byte(`{"image":"registry.example/vllm:1","env":{"A":"type"},"health":{"path":"/healthz"},"args":["--max-model-len","4096"]}`)},
	})
	require.NoError(t, err)
	spec := serving(fleet.TypeVLLM, "m", args("--seed", "7"), func(s *fleet.DeploymentSpec) {
		s.Process.Env = map[string]string{"B": "declared"}
		s.Process.Health = &fleet.HealthCheck{Interval: 4, UnhealthyThreshold: 2}
		s.Process.Startup = &fleet.Startup{Deadline: 600}
		s.Process.Ports = []fleet.ProcessPort{{Name: "api"}}
	})
	d, _, err := r.Generate(spec, nil)
	require.NoError(t, err)
	golden(t, "merged", d)
	require.Equal(t, map[string]string{"HTTPS_PROXY": "http://proxy:3128", "A": "type", "B": "declared"}, d.Env)
	require.Equal(t, []string{"vllm", "serve"}, d.Command)
	require.Equal(t, []string{"m", "--host", "0.0.0.0", "--port", "${PORT}", "--max-model-len", "4096", "--seed", "7"}, d.Args)
	require.Equal(t, "/healthz", d.Health.Path)
	require.Less(t, d.Health.Timeout, d.Health.Interval)
	plain, _, err := definition.Generate(spec, nil)
	require.NoError(t, err)
	require.Empty(t, plain.Image, "the embedded settings are untouched")
}

func TestOverridesAreRefused(t *testing.T) {
	t.Parallel()
	for text, field := range map[string]string{
		`{"comand":["x"]}`: "/comand", `{`: "", `{"stopSeconds":"x"}`: "/stopSeconds", `{"stopSeconds":-1}`: "/stopSeconds",
		`{"health":{"timeout":30}}`: "/health/timeout", `{"health":{"interval":"x"}}`: "/health/interval", `{} {}`: "",
		`{"command":["--x"]}`: "/command/0", `{"portEnv":"A=B"}`: "/portEnv", `{"ports":[{"name":"a"},{"name":"a"}]}`: "/ports/1/name",
		`{"image":"a b"}`: "/image", `{"sharedMemory":-1}`: "/sharedMemory",
	} {
		_, err := definition.NewRegistry(fstest.MapFS{"tgi.json": {Data: []byte(text)}})
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), text)
		require.ErrorContains(t, err, "settings tgi.json, "+cmp.Or(field, "/"), text)
		var e *fleet.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "tgi.json"+field, e.Field)
	}
	_, err := definition.NewRegistry(fstest.MapFS{"vlm.json": {Data: []byte("{}")}})
	require.ErrorContains(t, err, "settings vlm.json are of no type")
	_, err = definition.NewRegistry(fstest.MapFS{"README.md": {Data: []byte("x")}})
	require.NoError(t, err)
}

// S120: what a region's own settings bring is not missed where they are not known.
func TestCheckNeedsNoSettings(t *testing.T) {
	t.Parallel()
	spec := serving(fleet.TypeNIM, "")
	require.Error(t, definition.Validate(spec), "no image")
	require.NoError(t, definition.Check(spec))
	r, err := definition.NewRegistry(fstest.MapFS{"nim.json": {Data: []byte(`{"image":"registry.example/nim:2"}`)}})
	require.NoError(t, err)
	require.NoError(t, r.Validate(spec))
	require.Error(t, definition.Check(serving(fleet.TypeVLLM, "")))
	require.Error(t, definition.Check(serving("triton", "m")))
}

func TestFilesAreInline(t *testing.T) {
	t.Parallel()
	body := fleet.Content{Kind: fleet.ContentArtifact, Hash: compose.HashOf([]byte("x")), Size: 1}
	spec := serving(fleet.TypeProcess, "", command("nginx"), func(s *fleet.DeploymentSpec) {
		s.Process.Files = []fleet.ProcessFile{{Path: "conf/nginx.conf", Body: &body}}
	})
	d, _, err := definition.Generate(spec, map[fleet.Hash]string{body.Hash: "x"})
	require.NoError(t, err)
	require.Equal(t, []fleet.ProcessFile{{Path: "conf/nginx.conf", Content: "x"}}, d.Files)
	require.NotNil(t, spec.Process.Files[0].Body, "what was declared stays as it is")
	_, _, err = definition.Generate(spec, nil)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
}

// S95, X19: what cannot be generated names its field.
func TestGenerateRefuses(t *testing.T) {
	t.Parallel()
	model := func(change func(*fleet.ModelDefinition)) fleet.DeploymentSpec {
		m := whole
		health := *whole.Service.HealthCheck
		m.Service.HealthCheck = &health
		change(&m)
		return serving(fleet.TypeCustom, "", modelDefinition(m))
	}
	for _, c := range []struct {
		name, field string
		spec        fleet.DeploymentSpec
	}{
		{"an unknown type", "/type", serving("triton", "m")},
		{"no model", "/model", serving(fleet.TypeVLLM, "")},
		{"no model for TGI", "/model", serving(fleet.TypeTGI, "", args("--quantize", "awq"))},
		{"a model of a process", "/model", serving(fleet.TypeProcess, "m", command("x"))},
		{"a model of a cmd", "/model", serving(fleet.TypeCmd, "m", command("x"))},
		{"a cmd without a command", "/process/command", serving(fleet.TypeCmd, "")},
		{"options for a command", "/process/command/0", serving(fleet.TypeTGI, "m", command("--quantize", "awq"))},
		{"nothing to run", "/process/command", serving(fleet.TypeProcess, "")},
		{"NIM without an image", "/process/image", serving(fleet.TypeNIM, "")},
		{"NIM as a process", "/process/driver", serving(fleet.TypeNIM, "", func(s *fleet.DeploymentSpec) { s.Process.Driver = fleet.DriverProcess })},
		{"no model definition", "/modelDefinition", serving(fleet.TypeCustom, "m")},
		{"a model definition of vLLM", "/modelDefinition", serving(fleet.TypeVLLM, "m", modelDefinition(whole))},
		{"no start command", "/modelDefinition/service/start_command", model(func(m *fleet.ModelDefinition) { m.Service.StartCommand = nil })},
		{"no port", "/modelDefinition/service/port", model(func(m *fleet.ModelDefinition) { m.Service.Port = 70000 })},
		{"an unknown action", "/modelDefinition/service/pre_start_actions/0/action", model(func(m *fleet.ModelDefinition) {
			m.Service.PreStartActions = []fleet.ModelAction{{Action: "write_file"}}
		})},
		{"a command that is no list", "/modelDefinition/service/pre_start_actions/0/args/command", model(func(m *fleet.ModelDefinition) {
			m.Service.PreStartActions = []fleet.ModelAction{{Action: "run_command", Args: map[string]any{"command": "ls"}}}
		})},
		{"a path without /", "/modelDefinition/service/health_check/path", model(func(m *fleet.ModelDefinition) { m.Service.HealthCheck.Path = "x" })},
		{"a path with a space", "/modelDefinition/service/health_check/path", model(func(m *fleet.ModelDefinition) { m.Service.HealthCheck.Path = "/a b" })},
		{"a status that only announces an answer", "/modelDefinition/service/health_check/expected_status_code", model(func(m *fleet.ModelDefinition) {
			m.Service.HealthCheck.ExpectedStatusCode = 100
		})},
		{"a check without a port", "/process/ports", serving(fleet.TypeProcess, "", command("x"), func(s *fleet.DeploymentSpec) { s.Process.Health = &fleet.HealthCheck{} })},
		{"a readiness check without a port", "/process/ports", serving(fleet.TypeProcess, "", command("x"), func(s *fleet.DeploymentSpec) { s.Process.Readiness = &fleet.HealthCheck{} })},
		{"readiness probes that overlap", "/process/readiness/timeout", serving(fleet.TypeCmd, "", command("x"), func(s *fleet.DeploymentSpec) { s.Process.Readiness = &fleet.HealthCheck{Timeout: 10} })},
		{"probes that overlap with the type's interval", "/process/health/timeout", serving(fleet.TypeVLLM, "m", func(s *fleet.DeploymentSpec) {
			s.Process.Health = &fleet.HealthCheck{Timeout: 10}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := definition.Validate(c.spec)
			var e *fleet.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, fleet.Invalid, e.Kind)
			require.Equal(t, c.field, e.Field, e.Error())
			_, _, err = definition.Generate(c.spec, nil)
			require.Error(t, err)
		})
	}
}

func TestDefinitionIsBounded(t *testing.T) {
	t.Parallel()
	spec := serving(fleet.TypeProcess, "", command("x"), func(s *fleet.DeploymentSpec) {
		s.Process.Env = map[string]string{"A": strings.Repeat("x", definition.MaxBytes)}
	})
	_, _, err := definition.Generate(spec, nil)
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	spec.Process.Env = nil
	spec.Process.Files = []fleet.ProcessFile{{Path: "a", Content: strings.Repeat("\x01", definition.MaxBytes/2)}} // JSON escapes it
	_, _, err = definition.Generate(spec, nil)
	require.ErrorContains(t, err, "the definition has 3")
}
