package fleet

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// F13, F14, F51: of a released spec the applied one gets what is changed in place, and nothing else.
func TestAmendedSpec(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ applied, released, want string }{
		"another value": {`{"state":"started","model":"a"}`, `{"state":"stopped","model":"b"}`, `{"state":"stopped","model":"a"}`},
		"below":         {`{"process":{"stopSeconds":5,"image":"a"}}`, `{"process":{"stopSeconds":7,"image":"b"}}`, `{"process":{"stopSeconds":7,"image":"a"}}`},
		"added":         {`{"process":{"image":"a"}}`, `{"process":{"image":"b"},"strategy":{"max_in_flight":2}}`, `{"process":{"image":"a"},"strategy":{"max_in_flight":2}}`},
		"removed":       {`{"update":"versioned","secretEnv":["A"]}`, `{"update":"versioned"}`, `{"update":"versioned"}`},
		"another check": {`{"process":{"image":"a"}}`, `{"process":{"image":"a","readiness":{"type":"tcp","interval":3}}}`, `{"process":{"image":"a"}}`},
		"a map":         {`{"placement":{"labels":{"a":"1"}}}`, `{"placement":{"labels":{"b":"1"}}}`, `{"placement":{"labels":{"b":"1"}}}`},
		"large numbers": {`{"resources":{"memory":1125899906842623}}`, `{"replicas":{"min":1}}`, `{"resources":{"memory":1125899906842623},"replicas":{"min":1}}`},
		"a later build": {`{"shape":{"round":true}}`, `{"shape":{"round":false}}`, `{"shape":{"round":true}}`},
	} {
		got, changed, err := AmendedSpec(json.RawMessage(c.applied), json.RawMessage(c.released))
		require.NoError(t, err, name)
		require.Equal(t, c.applied != c.want, changed, name)
		require.JSONEq(t, c.want, string(got), name)
	}
	_, _, err := AmendedSpec(json.RawMessage(`[]`), json.RawMessage(`{}`))
	require.Equal(t, Internal, KindOf(err))
	_, _, err = AmendedSpec(json.RawMessage(`{}`), nil)
	require.Equal(t, Internal, KindOf(err))
}

// F5, F41: a readiness check counts like the first one; what this build does not know waits.
func TestNeedsRestart(t *testing.T) {
	t.Parallel()
	s := DeploymentSpec{Update: UpdateVersioned}
	for name, c := range map[string]struct {
		applied, released string
		want              bool
	}{
		"the same":              {`{"env":{"A":"1"}}`, `{"env":{"A":"1"}}`, false},
		"terms":                 {`{"stopSeconds":1}`, `{"stopSeconds":2}`, false},
		"an environment":        {`{"env":{"A":"1"}}`, `{"env":{"A":"2"}}`, true},
		"a port beside it":      {`{"env":{"A":"1"}}`, `{"env":{"A":"2"},"ports":[{"name":"http"}]}`, false},
		"readiness":             {`{"readiness":{"path":"/a"}}`, `{"readiness":{"path":"/b"}}`, false},
		"another of readiness":  {`{"readiness":{"method":"GET"}}`, `{"readiness":{"method":"HEAD"}}`, true},
		"of a build after this": {`{}`, `{"shape":"round"}`, true},
	} {
		got, err := s.NeedsRestart([]byte(c.applied), []byte(c.released))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
		got, err = DeploymentSpec{}.NeedsRestart([]byte(c.applied), []byte(c.released))
		require.NoError(t, err)
		require.False(t, got, "by default nothing waits")
	}
	_, err := s.NeedsRestart([]byte(`{}`), []byte(`[]`))
	require.Error(t, err)
}

// F13: a definition under the terms of another one keeps its process, and the numbers of a check that the other lacks.
func TestAmendedDefinition(t *testing.T) {
	t.Parallel()
	checked := func(interval float64) *HealthCheck {
		h := HealthCheck{Type: HealthHTTP, Interval: interval}.WithDefaults()
		return &h
	}
	of := func(image string, stop int, h *HealthCheck, restarts int) Definition {
		return Definition{Process: Process{Image: image, StopSeconds: stop, Health: h}, Recovery: Recovery{Restarts: restarts}.WithDefaults()}
	}
	was := of("a", 5, checked(10), 3)
	require.Equal(t, of("a", 7, checked(4), 9), was.Amended(of("b", 7, checked(4), 9)))
	require.Equal(t, of("a", 7, checked(10), 9), was.Amended(of("b", 7, &HealthCheck{Type: HealthNone}, 9)))
	require.Equal(t, 10.0, was.Health.Interval, "the first is as it was")
}
