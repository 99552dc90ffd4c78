package declare

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

func made(t *testing.T, edits ...func(*api.DeploymentPut)) Made {
	t.Helper()
	put := api.DeploymentPut{
		Type: fleet.TypeProcess, Command: []string{"serve", "a", "b"}, Env: map[string]string{"A": "1"}, Ports: []fleet.ProcessPort{{Name: "http"}},
		Health: &fleet.HealthCheck{Path: "/health"},
	}
	for _, edit := range edits {
		edit(&put)
	}
	m, err := Deployment(definition.Embedded(), put)
	require.NoError(t, err)
	return m
}

func (m Made) runs(t *testing.T, target int) *fleet.RunningSpec {
	t.Helper()
	spec, err := json.Marshal(m.Spec)
	require.NoError(t, err)
	return &fleet.RunningSpec{
		Spec: spec, Target: target, Definition: m.Content().Hash, Body: m.Definition,
		Applied: fleet.AppliedSpec{Spec: spec, Definition: m.Content().Hash},
	}
}

func lines(changes []fleet.SpecChange) (all []string) {
	for _, c := range changes {
		all = append(all, c.Field+" "+string(c.Path))
	}
	return all
}

// F1, F13, F14, F15, F51: each field that differs from what runs has its path.
func TestChanges(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		edit   func(*api.DeploymentPut)
		target int
		staged bool
		want   []string
	}{
		"nothing":                 {func(*api.DeploymentPut) {}, 1, false, nil},
		"a member":                {func(p *api.DeploymentPut) { p.Env = map[string]string{"A": "1", "B": "2"} }, 1, false, []string{"/process/env/B new_runtime_object"}},
		"the last member":         {func(p *api.DeploymentPut) { p.Env = nil }, 1, false, []string{"/process/env/A new_runtime_object"}},
		"an array, once":          {func(p *api.DeploymentPut) { p.Command = []string{"serve", "x", "y", "z"} }, 1, false, []string{"/process/command new_runtime_object"}},
		"terms of the check":      {func(p *api.DeploymentPut) { p.Health.Interval, p.Health.Timeout = 7, 3 }, 1, false, []string{"/process/health/interval in_place", "/process/health/timeout in_place"}},
		"stop and recovery":       {func(p *api.DeploymentPut) { p.StopSeconds, p.Recovery.Restarts = 7, 9 }, 1, false, []string{"/process/stopSeconds in_place", "/recovery/restarts in_place"}},
		"placement":               {func(p *api.DeploymentPut) { p.Placement.Labels = map[string]string{"rack": "a"} }, 1, false, []string{"/placement/labels/rack in_place"}},
		"of both kinds":           {func(p *api.DeploymentPut) { p.StopSeconds, p.Resources.CPU = 7, 2 }, 1, false, []string{"/process/stopSeconds in_place", "/resources/cpu new_runtime_object"}},
		"what generates the same": {func(p *api.DeploymentPut) { p.Driver = fleet.DriverProcess }, 1, false, []string{"/process/driver in_place"}},
		"not released":            {func(p *api.DeploymentPut) { p.StopSeconds, p.Env["A"] = 7, "2" }, 1, true, []string{"/process/env/A deferred", "/process/stopSeconds deferred"}},
		"stopped":                 {func(p *api.DeploymentPut) { p.State, p.StopSeconds = fleet.StateStopped, 7 }, 1, false, []string{"/process/stopSeconds deferred", "/state deferred"}},
		"scaled to 0":             {func(p *api.DeploymentPut) { p.Env["A"], p.Replicas.Min = "2", new(int) }, 0, false, []string{"/process/env/A deferred"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			least := func(p *api.DeploymentPut) { p.Replicas.Min = new(int) }
			got, err := made(t, least, row.edit).Changes(made(t, least).runs(t, row.target), !row.staged)
			require.NoError(t, err)
			require.Equal(t, row.want, lines(got))
		})
	}

	m := made(t)
	runs := m.runs(t, 1)
	m.Definition = []byte(`{"command":["another"]}`)
	got, err := m.Changes(runs, true)
	require.NoError(t, err)
	require.Equal(t, []string{" new_runtime_object"}, lines(got), "what its type generates may differ alone")
	got, err = m.Changes(nil, true)
	require.NoError(t, err)
	require.Empty(t, got)
}
