package declare_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// X19: the names of ports are checked with the ports of the type, which only the region may know.
func TestPortNamesOfDeployments(t *testing.T) {
	t.Parallel()
	ports := []fleet.ProcessPort{{Name: "http"}}
	none := &fleet.HealthCheck{Type: fleet.HealthNone}
	for name, row := range map[string]struct {
		put           api.DeploymentPut
		field, before string // the field that the region names, and the command line before it asks
	}{
		"a declared port":     {put: api.DeploymentPut{Command: []string{"s", "${PORT_HTTP}"}, Ports: ports}},
		"a misspelt one":      {api.DeploymentPut{Command: []string{"s", "${PORT_HTP}"}, Ports: ports}, "/command/1", "/command/1"},
		"in a file":           {api.DeploymentPut{Command: []string{"s"}, Ports: ports, Files: []api.DeploymentFile{{Path: "a", Content: "${PORT_HTP}"}}}, "/files/0/content", "/files/0/content"},
		"the port of a type":  {put: api.DeploymentPut{Type: fleet.TypeCmd, Command: []string{"s", "${PORT}"}}},
		"none of a type":      {api.DeploymentPut{Type: fleet.TypeCmd, Command: []string{"s", "${PORT_HTP}"}}, "/command/1", ""},
		"a process without":   {api.DeploymentPut{Command: []string{"s", "${PORT}"}, Health: none}, "/command/1", ""},
		"a variable of it":    {put: api.DeploymentPut{Command: []string{"s", "${PORT_X}"}, Env: map[string]string{"PORT_X": "1"}, Health: none}},
		"too long a variable": {api.DeploymentPut{Command: []string{"s"}, Env: map[string]string{"A": strings.Repeat("x", fleet.MaxArgument)}, Health: none}, "/env/A", "/env/A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := declare.Deployment(definition.Embedded(), row.put)
			requireField(t, row.field, err)
			requireField(t, row.before, declare.CheckDeployment(row.put))
		})
	}
}

func requireField(t *testing.T, field string, err error) {
	t.Helper()
	if field == "" {
		require.NoError(t, err)
		return
	}
	var e *fleet.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, field, e.Field)
	require.NotEmpty(t, e.Hint)
}
