package fleet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func aDefinition() Definition {
	return Definition{
		Process: Process{
			Command: []string{"serve"}, Env: map[string]string{"A": "1"}, StopSeconds: 10,
			Health:    &HealthCheck{Type: HealthHTTP, Path: "/health", Interval: 10, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 2},
			Readiness: &HealthCheck{Type: HealthTCP, Interval: 10, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 2},
		},
		Resources: Resources{CPU: 1}, Recovery: DefaultRecovery(),
	}
}

// F13, F14, F15, F51: what a running replica can follow is no difference of what runs.
func TestSameRuntimeObject(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		edit func(*Definition)
		same bool
	}{
		"nothing":              {func(*Definition) {}, true},
		"the stop time":        {func(d *Definition) { d.StopSeconds = 11 }, true},
		"recovery":             {func(d *Definition) { d.Recovery.Restarts = 7 }, true},
		"interval and timeout": {func(d *Definition) { d.Health.Interval, d.Health.Timeout = 1, 0.5 }, true},
		"thresholds":           {func(d *Definition) { d.Health.UnhealthyThreshold, d.Health.HealthyThreshold = 9, 9 }, true},
		"a path of the check":  {func(d *Definition) { d.Health.Path = "/ready" }, false},
		"no check":             {func(d *Definition) { d.Health = &HealthCheck{Type: HealthNone} }, false},
		"terms of readiness":   {func(d *Definition) { d.Readiness.Interval, d.Readiness.UnhealthyThreshold = 20, 1 }, true},
		"a port of readiness":  {func(d *Definition) { d.Readiness.Port = "admin" }, false},
		"no readiness":         {func(d *Definition) { d.Readiness = nil }, false},
		"environment":          {func(d *Definition) { d.Env["A"] = "2" }, false},
		"memory":               {func(d *Definition) { d.Resources.Memory = 1 }, false},
		"startup":              {func(d *Definition) { d.Startup = &Startup{Deadline: 1} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := aDefinition()
			row.edit(&d)
			a, err := json.Marshal(aDefinition())
			require.NoError(t, err)
			b, err := json.Marshal(d)
			require.NoError(t, err)
			same, err := SameRuntimeObject(a, b)
			require.NoError(t, err)
			require.Equal(t, row.same, same)
			if same {
				under := aDefinition().Under(d.Terms())
				under.StopSeconds = d.StopSeconds
				require.Equal(t, d, under, "its terms make one of the other")
			}
		})
	}
	same, err := SameRuntimeObject([]byte(`{"liveness":{"path":"/a"}}`), []byte(`{}`))
	require.NoError(t, err)
	require.False(t, same, "a later build may define more")
	_, err = SameRuntimeObject([]byte(`{}`), []byte(`[`))
	require.Error(t, err)
	require.Equal(t, aDefinition(), aDefinition().Under(ReplicaTerms{}), "a set without terms leaves those of the definition")
	before := aDefinition().Terms()
	before.Readiness = CheckTerms{}
	require.Equal(t, aDefinition(), aDefinition().Under(before), "so do those of a server that knows no readiness")
}
