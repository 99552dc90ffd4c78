package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const plant = `# instances first: apply knows the order
kind: Instance
name: press-7
site: plant-1
project: line-a
labels: {line: a}
spec:
  config:
    speed: 40
    on: yes
    big: 12345678901234567890123
    z: 1
    a: 0x10
  run: {command: [/usr/bin/press]}
---
kind: Template
name: oven
spec: {base: {}, compositions: [furnace]}
---
kind: Template
name: furnace
spec:
  base: {temp: 900}
---
kind: Site
name: plant-1
spec:
  nodes:
    - {name: plant-1-a, role: active}
    - {name: plant-1-b, role: standby}
---
kind: Project
name: line-a
`

func TestApply(t *testing.T) {
	t.Parallel()

	t.Run("declares projects, sites, templates and instances in this order", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		got := newShell(t, r).ok("apply", "-f", write(t, "plant.yaml", plant), "--reason", "first")
		require.Equal(t, []string{
			"PUT projects/line-a", "PUT sites/plant-1", "PUT templates/furnace", "PUT templates/oven",
			"PUT sites/plant-1/instances/press-7",
		}, r.changes())
		require.Contains(t, got.stdout, "site/plant-1 applied, generation 1\n")
		require.Equal(t, 5, strings.Count(got.stdout, "\n"))
	})

	t.Run("keeps order of fields, digits and words of a config", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := newShell(t, r)
		s.stdin = plant
		s.ok("apply", "-f", "-")
		require.Equal(t, `{"project":"line-a","labels":{"line":"a"},`+
			`"config":{"speed":40,"on":"yes","big":12345678901234567890123,"z":1,"a":16},`+
			`"run":{"command":["/usr/bin/press"]}}`, r.last().body)
	})

	t.Run("sends nothing that is empty", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := newShell(t, r)
		for name, of := range map[string]string{
			"instances":   "kind: Instance\nsite: plant-1\nname: a\nspec: {config: {a: 1}, configFile: '', artifactFile: '', reason: ''}",
			"deployments": "kind: Deployment\nname: a\nspec: {command: [x], health: {type: none}, files: [{path: f, content: c, contentFile: ''}], reason: ''}",
			"fleets":      "kind: Fleet\nname: a\nspec: {change: {patch: {a: 1}}, selector: {sites: [plant-1]}, waves: [{percent: 100}], reason: ''}",
		} {
			s.ok("apply", "-f", write(t, name+".yaml", of), "--deploy=false", "--reason", "ticket 1")
			require.Contains(t, r.last().body, `"reason":"ticket 1"`, name)
			require.Equal(t, 1, strings.Count(r.last().body, `"reason"`), name)
			require.NotContains(t, r.last().body, "File\"", name)
		}
	})

	t.Run("leaves JSON to the region as it is, doubled keys too", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := newShell(t, r)
		s.stdin = `{"kind":"instance","name":"press-7","site":"plant-1","spec":{"config":{"a":1.0,"a":2e5}}}`
		s.ok("apply", "-f", "-", "--deploy=false")
		require.Equal(t, `{"config":{"a":1.0,"a":2e5}}`, r.last().body)
		require.Equal(t, "deploy=false", r.last().query)
	})

	t.Run("uploads an artifact file first and reads a config file, beside the manifest", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.yaml":     "kind: Instance\nname: press-7\nsite: plant-1\nspec: {artifactFile: press.bin}",
			"b.yml":      "kind: Instance\nname: press-8\nsite: plant-1\nspec: {configFile: press.conf}",
			"press.bin":  "program",
			"press.conf": `{"speed": 1}`,
			"README.md":  "kind: none of our business",
		} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		newShell(t, r).ok("apply", "-f", dir)
		require.Equal(t, "program", r.uploaded("u1"))
		require.JSONEq(t, `{"artifact":"`+sha256Of("program")+`"}`, r.arrived()[0].body)
		require.JSONEq(t, `{"config":{"speed":1}}`, r.arrived()[1].body)
	})

	t.Run("waits for the end of each delivery and ends with the worst", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.story(ended(fleet.OperationUnknown, "communication")...)
		got := newShell(t, r).run("apply", "-f", write(t, "plant.yaml", plant), "-o", "json")
		require.Equal(t, exitUnknown, got.code)
		var list struct{ Items []outcome }
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &list))
		require.Len(t, list.Items, 5)
		require.Equal(t, fleet.OperationUnknown, list.Items[4].Operation.State)
	})

	t.Run("goes on behind a refusal, and says where it was declared", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		r.hook = func(w http.ResponseWriter, req *http.Request) bool {
			if strings.HasSuffix(req.URL.Path, "/sites/plant-1") {
				refuse(w, 403, fleet.Denied, "not your project", "")
				return true
			}
			return false
		}
		path := write(t, "plant.yaml", plant)
		got := newShell(t, r).run("apply", "-f", path)
		require.Equal(t, exitDenied, got.code)
		require.Contains(t, got.stdout, "site/plant-1 refused: denied\n")
		require.Contains(t, got.stdout, "instance/plant-1/press-7 applied")
		require.Contains(t, got.stderr, "error: denied: "+path+":25: site/plant-1: not your project")
	})

	t.Run("stops when the region does not know who asks", func(t *testing.T) {
		t.Parallel()
		r := newRegion(t)
		s := newShell(t, r)
		s.env[envToken] = "wrong"
		got := s.run("apply", "-f", write(t, "plant.yaml", plant))
		require.Equal(t, exitDenied, got.code)
		require.Contains(t, got.stderr, "skipped the 4 objects after project/line-a")
		require.Empty(t, r.changes())
	})
}

// X19: what is refused is refused as a whole, with the place and what is allowed.
func TestBadManifests(t *testing.T) {
	t.Parallel()
	good := "kind: Project\nname: line-a\n---\n"
	for name, row := range map[string]struct{ text, says string }{
		"unknown kind":     {"kind: Gadget\nname: a", ":4: gadget/a: unknown kind \"Gadget\"; use Organization, Project, Service, Site, Pool, Template, Instance, Deployment, Region or Fleet"},
		"no kind":          {"name: a", ":4: /a: kind is required"},
		"bad name":         {"kind: Site\nname: Plant", `:4: site/Plant: name: "Plant" is not a name`},
		"unknown field":    {"kind: Site\nname: a\nsepc: {}", `:4: sepc: unknown field; use kind, name, site, project, region, service, labels or spec`},
		"unknown in spec":  {"kind: Site\nname: a\nspec: {nodez: []}", `:4: site/a: spec/nodez: unknown field; use `},
		"wrong type":       {"kind: Site\nname: a\nspec: {nodes: 3}", ":4: site/a: spec/nodes: invalid value: must be an array"},
		"Kubernetes":       {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}", ":4: apiVersion: unknown field; use kind, name, site, project, region, service, labels or spec (this looks like a Kubernetes manifest; write for example {"},
		"probed port":      {"kind: Deployment\nname: a\nspec: {health: {port: 18125}}", `:4: deployment/a: spec/health/port: invalid value: must be the name of one of ports (write "port": "http" here, and "ports": [{"name": "http", "port": 18125}] beside health)`},
		"duration":         {"kind: Deployment\nname: a\nspec: {health: {interval: 10s}}", ":4: deployment/a: spec/health/interval: invalid value: must be a number of seconds (write 10)"},
		"millicores":       {"kind: Deployment\nname: a\nspec: {resources: {cpu: 100m}}", ":4: deployment/a: spec/resources/cpu: invalid value: must be a number of cores (write 0.1)"},
		"bad role":         {"kind: Site\nname: a\nspec: {nodes: [{name: n, role: actve}]}", `:4: site/a: spec/nodes/0/role: unknown role "actve"; use active, standby or worker`},
		"no config":        {"kind: Instance\nname: a\nsite: p\nspec: {config: null}", "spec: config is required"},
		"no template":      {"kind: Instance\nname: a\nsite: p\nspec: {config: {}, templateGeneration: 2}", "spec/templateGeneration: templateGeneration 2 needs a template"},
		"bad hash":         {"kind: Instance\nname: a\nsite: p\nspec: {artifact: A1}", "spec/artifact: invalid SHA-256"},
		"long reason":      {"kind: Deployment\nname: a\nspec: {reason: " + strings.Repeat("x", 1025) + "}", "spec/reason: the reason has 1025 bytes; the limit is 1024"},
		"no base":          {"kind: Template\nname: a\nspec: {base: null}", "spec/base: base is required"},
		"no source":        {"kind: Instance\nname: a\nsite: p\nspec: {}", ":4: instance/p/a: spec: config is required: give one of config, template, artifact"},
		"two sources":      {"kind: Instance\nname: a\nsite: p\nspec: {config: {}, template: t}", "spec: config, template are given together: give one of config, template, artifact"},
		"no site":          {"kind: Instance\nname: a\nspec: {config: {}}", `site: "" is not a name`},
		"bad run":          {"kind: Instance\nname: a\nsite: p\nspec: {config: {}, run: {command: []}}", "spec/run/command: command is empty"},
		"missing file":     {"kind: Instance\nname: a\nsite: p\nspec: {artifactFile: no.bin}", "spec: artifactFile: open"},
		"labels in spec":   {"kind: Site\nname: a\nspec: {labels: {a: b}}", "spec: move project, service and labels out of spec, to the top level"},
		"doubled key":      {"kind: Site\nname: a\nname: b", `:6: key "name" stands here twice`},
		"not YAML":         {"kind: [", "not YAML: line"},
		"declared twice":   {"kind: Project\nname: line-a", ":4: project/line-a is already declared in "},
		"circle":           {"kind: Template\nname: a\nspec: {base: {}, compositions: [b]}\n---\nkind: Template\nname: b\nspec: {base: {}, compositions: [a]}", "includes itself through other templates"},
		"multiplied alias": {"kind: Template\nname: a\nspec: {base: &a {x: *a}}", "nested deeper than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			got := newShell(t, r).run("apply", "-f", write(t, "m.yaml", good+row.text))
			require.Equal(t, exitUsage, got.code)
			require.Contains(t, got.stderr, "nothing was applied, because of:")
			require.Contains(t, got.stderr, row.says)
			require.Empty(t, r.changes())
		})
	}

	t.Run("all faults are listed at once, those of JSON with line and column", func(t *testing.T) {
		t.Parallel()
		s := newShell(t, newRegion(t))
		got := s.run("apply", "-f", write(t, "a.json", "{\"kind\":\"Site\",\n\"name\":}"), "-f", write(t, "b.json", "\n\n{\"kind\":\"Site\"}"))
		require.Contains(t, got.stderr, "a.json:2:8: not JSON")
		require.Contains(t, got.stderr, "b.json:3: site/: name")
	})
}
