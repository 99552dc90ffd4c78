package declare

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S21, S85, S108, S109
func TestReplicaCounts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fleet.ReplicaBounds{
		`{}`:                            {Min: 1, Max: 10, Initial: 1},
		`3`:                             {Min: 3, Max: 3, Initial: 3},
		`0`:                             {}, // for the spec to refuse
		`{"min":2}`:                     {Min: 2, Max: 10, Initial: 2},
		`{"min":0}`:                     {Min: 0, Max: 10, Initial: 1},
		`{"min":12}`:                    {Min: 12, Max: 12, Initial: 12},
		`{"initial":20}`:                {Min: 1, Max: 20, Initial: 20},
		`{"min":0,"max":4,"initial":0}`: {Max: 4},
		`{"min":3,"max":2}`:             {Min: 3, Max: 2, Initial: 2}, // for the spec to refuse
		`{"min":2,"initial":0}`:         {Min: 2, Max: 10},            // likewise
	} {
		var c api.ReplicaCounts
		require.NoError(t, json.Unmarshal([]byte(text), &c), text)
		require.Equal(t, want, c.Bounds(), text)
	}
	for text, field := range map[string]string{
		`{"min":2,"initial":0}`: "/replicas/initial", `{"initial":0}`: "/replicas/initial", `{"min":3,"max":2}`: "/replicas/min", `0`: "/replicas/max",
		`{"min":0,"initial":0}`: "", `{"min":0,"max":4,"initial":0}`: "", `{"min":0}`: "",
	} {
		put := api.DeploymentPut{Command: []string{"x"}, Health: &fleet.HealthCheck{Type: fleet.HealthNone}}
		require.NoError(t, json.Unmarshal([]byte(text), &put.Replicas), text)
		err := CheckDeployment(put)
		if field == "" {
			require.NoError(t, err, text)
			continue
		}
		var e *fleet.Error
		require.True(t, errors.As(err, &e), text)
		require.Equal(t, field, e.Field, text)
		require.NotEmpty(t, e.Hint, text)
	}
	for _, text := range []string{`"3"`, `1.5`, `[]`, `{"most":1}`, `{"min":"1"}`} {
		var c api.ReplicaCounts
		require.Error(t, json.Unmarshal([]byte(text), &c), text)
	}
}
