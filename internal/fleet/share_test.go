package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S123: a count or a part of the target; a surge is rounded up, what may be missing is rounded down.
func TestShare(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fleet.Share{`2`: {Count: 2}, `"2"`: {Count: 2}, `"25%"`: {Percent: 25}, `0`: {}, `"0%"`: {}} {
		var s fleet.Share
		require.NoError(t, json.Unmarshal([]byte(text), &s), text)
		require.Equal(t, want, s, text)
		back, err := json.Marshal(s)
		require.NoError(t, err)
		var again fleet.Share
		require.NoError(t, json.Unmarshal(back, &again))
		require.Equal(t, s, again)
	}
	for _, text := range []string{`-1`, `"101%"`, `"many"`, `"%"`, `1.5`, `{}`, `""`, `99999999999`, `"1e3"`} {
		var s fleet.Share
		err := json.Unmarshal([]byte(text), &s)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), text)
		require.ErrorContains(t, err, "25%", "it says what is allowed")
	}
	share := func(text string) *fleet.Share {
		s, err := fleet.ParseShare(text)
		require.NoError(t, err)
		return &s
	}
	for _, c := range []struct {
		surge, unavailable     *fleet.Share
		target, above, missing int
	}{
		{nil, nil, 1, 1, 0},
		{nil, nil, 5, 3, 0},
		{share("25%"), share("25%"), 5, 2, 1},
		{share("0"), share("25%"), 2, 1, 0}, // nothing could be replaced otherwise
		{share("0"), share("1"), 2, 0, 1},
		{share("3"), share("0"), 2, 3, 0},
	} {
		s := fleet.Strategy{MaxSurge: c.surge, MaxUnavailable: c.unavailable}
		require.Equal(t, []int{c.above, c.missing}, []int{s.Surge(c.target), s.Unavailable(c.target)}, "%v %v of %d", c.surge, c.unavailable, c.target)
	}
}

// canary has a spec roll out by steps.
func canary(steps ...fleet.CanaryStep) func(*fleet.DeploymentSpec) {
	return func(s *fleet.DeploymentSpec) { s.Strategy.Type, s.Strategy.Steps = fleet.StrategyCanary, steps }
}

// S125: without declared steps there are those of 20 %, and the last that brings all.
func TestCanaryHasSteps(t *testing.T) {
	t.Parallel()
	require.Equal(t, []fleet.CanaryStep{{Weight: 20}, {Weight: 40}, {Weight: 60}, {Weight: 80}}, fleet.Strategy{Type: fleet.StrategyCanary}.Plan())
	require.Empty(t, fleet.Strategy{}.Plan())
	require.Equal(t, 90*time.Second, fleet.Strategy{Steps: []fleet.CanaryStep{{Interval: 60}, {Interval: 30}}}.Intervals())
	require.Equal(t, 72*time.Hour, fleet.Strategy{}.LongestPause())
}

// S123: how long a replica must be routable to be proven: as declared, also 0, or as its checks need; and the two are told apart.
func TestMinHealthyTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec string
		want time.Duration
	}{
		"without checks":                       {`{}`, 10 * time.Second},
		"with quick ones":                      {`{"health":{"type":"tcp","interval":1,"timeout":0.5,"unhealthy_threshold":2}}`, 10 * time.Second},
		"with a slow one":                      {`{"health":{"type":"http"}}`, 30 * time.Second},
		"with a slower second one":             {`{"health":{"type":"http"},"readiness":{"type":"tcp","interval":20}}`, time.Minute},
		"beside a progress_deadline":           {`{"health":{"type":"http"},"strategy":{"progress_deadline":16}}`, 8 * time.Second},
		"beside a longer one":                  {`{"strategy":{"progress_deadline":600}}`, 10 * time.Second},
		"declared":                             {`{"health":{"type":"http"},"strategy":{"min_healthy_time":2.5,"progress_deadline":4}}`, 2500 * time.Millisecond},
		"declared as 0, and one is an instant": {`{"health":{"type":"http"},"strategy":{"min_healthy_time":0}}`, 0},
	} {
		var in struct {
			fleet.Definition
			Strategy fleet.Strategy `json:"strategy,omitzero"`
		}
		require.NoError(t, json.Unmarshal([]byte(c.spec), &in), name)
		require.Equal(t, c.want, in.Strategy.MinHealthy(in.Terms().Shows()), name)
		again, err := json.Marshal(in.Strategy)
		require.NoError(t, err)
		require.Equal(t, strings.Contains(c.spec, "min_healthy_time"), strings.Contains(string(again), "min_healthy_time"), name)
	}
	spec := fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"serve"}, Startup: &fleet.Startup{Deadline: 1}}}.WithDefaults()
	spec.Strategy.ProgressDeadline = 1
	require.NoError(t, spec.Validate(), "no declaration is invalid by a default")
}

// S123, X11: a strategy by which nothing could move, or that gives up before a replica can have started, is rejected.
func TestStrategyIsRejected(t *testing.T) {
	t.Parallel()
	none := &fleet.Share{}
	for field, change := range map[string]func(*fleet.DeploymentSpec){
		"/strategy/max_surge":         func(s *fleet.DeploymentSpec) { s.Strategy.MaxSurge = none },
		"/strategy/type":              func(s *fleet.DeploymentSpec) { s.Strategy.Type = "blue-green" },
		"/strategy/steps":             func(s *fleet.DeploymentSpec) { s.Strategy.Steps = []fleet.CanaryStep{{Weight: 20}} },
		"/strategy/steps/1/weight":    canary(fleet.CanaryStep{Weight: 20}, fleet.CanaryStep{Weight: 20}),
		"/strategy/steps/0/weight":    canary(fleet.CanaryStep{Weight: 101}),
		"/strategy/steps/0":           canary(fleet.CanaryStep{Weight: 1, Interval: 1, Pause: true}),
		"/strategy/steps/0/interval":  canary(fleet.CanaryStep{Weight: 1, Interval: -1}),
		"/strategy/pause_deadline":    func(s *fleet.DeploymentSpec) { s.Strategy.PauseDeadline = -1 },
		"/strategy/max_in_flight":     func(s *fleet.DeploymentSpec) { s.Strategy.MaxInFlight = -1 },
		"/strategy/min_healthy_time":  func(s *fleet.DeploymentSpec) { s.Strategy.MinHealthyTime = new(-1.0) },
		"/strategy/progress_deadline": func(s *fleet.DeploymentSpec) { s.Strategy.ProgressDeadline = 59 },
		"/strategy/when_full":         func(s *fleet.DeploymentSpec) { s.Strategy.WhenFull = "never" },
	} {
		spec := fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"serve"}, Startup: &fleet.Startup{Deadline: 60}}}.WithDefaults()
		require.NoError(t, spec.Validate())
		change(&spec)
		var e *fleet.Error
		require.ErrorAs(t, spec.Validate(), &e, field)
		require.Equal(t, []string{string(fleet.Invalid), field}, []string{string(e.Kind), e.Field})
	}
	spec := fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"serve"}}}.WithDefaults()
	spec.Strategy = fleet.Strategy{MaxSurge: none, MaxUnavailable: &fleet.Share{Count: 1}, ProgressDeadline: 1}
	require.NoError(t, spec.Validate())
}
