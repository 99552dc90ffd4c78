package fleet_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S75 to S87, S108, S109, S111, X9, X19: each refusal names the place in the spec.
func TestValidateDeployment(t *testing.T) {
	t.Parallel()
	spec := func(change func(*fleet.DeploymentSpec)) fleet.DeploymentSpec {
		s := fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"web"}, Ports: []fleet.ProcessPort{{Name: "http"}}}}
		change(&s)
		return s.WithDefaults()
	}
	process := func(change func(*fleet.Process)) fleet.DeploymentSpec {
		return spec(func(s *fleet.DeploymentSpec) { change(&s.Process) })
	}
	health := func(h fleet.HealthCheck) fleet.DeploymentSpec {
		return process(func(p *fleet.Process) { p.Health = &h })
	}
	bounds := func(least, most, first int) fleet.DeploymentSpec {
		return spec(func(s *fleet.DeploymentSpec) { s.Replicas = fleet.ReplicaBounds{Min: least, Max: most, Initial: first} })
	}
	file := func(paths ...string) fleet.DeploymentSpec {
		return process(func(p *fleet.Process) {
			for _, path := range paths {
				p.Files = append(p.Files, fleet.ProcessFile{Path: path})
			}
		})
	}
	ports := func(all ...fleet.ProcessPort) fleet.DeploymentSpec {
		return process(func(p *fleet.Process) { p.Ports = all })
	}
	for _, c := range []struct {
		name, field string
		spec        fleet.DeploymentSpec
	}{
		{"an unknown type", "/type", spec(func(s *fleet.DeploymentSpec) { s.Type = "x" })},
		{"an unknown state", "/state", spec(func(s *fleet.DeploymentSpec) { s.State = "paused" })},
		{"an unknown update", "/update", spec(func(s *fleet.DeploymentSpec) { s.Update = "sometimes" })},
		{"memory that keeps a version without versions", "/memoryKeepsVersion", spec(func(s *fleet.DeploymentSpec) { s.MemoryKeepsVersion = true })},
		{"a model with a NUL", "/model", spec(func(s *fleet.DeploymentSpec) { s.Model = "a\x00" })},
		{"more at least than at most", "/replicas/min", bounds(3, 2, 2)},
		{"fewer than none", "/replicas/min", bounds(-1, 2, 2)},
		{"too many", "/replicas/max", bounds(1, 1001, 1)},
		{"more at first than at most", "/replicas/initial", bounds(1, 2, 3)},
		{"fewer at first than at least", "/replicas/initial", bounds(2, 5, 1)},
		{"cores that are no number", "/resources/cpu", spec(func(s *fleet.DeploymentSpec) { s.Resources.CPU = math.NaN() })},
		{"negative memory", "/resources/memory", spec(func(s *fleet.DeploymentSpec) { s.Resources.Memory = -1 })},
		{"too many GPUs", "/resources/gpus", spec(func(s *fleet.DeploymentSpec) { s.Resources.GPUs = 65 })},
		{"an unknown spread", "/placement/spread", spec(func(s *fleet.DeploymentSpec) { s.Placement.Spread = "racks" })},
		{"a site that is no name", "/placement/sites/1", spec(func(s *fleet.DeploymentSpec) { s.Placement.Sites = []fleet.SiteName{"a", "A"} })},
		{"a pool twice", "/placement/pools/1", spec(func(s *fleet.DeploymentSpec) { s.Placement.Pools = []fleet.PoolName{"a", "a"} })},
		{"more sites than a sentence could say", "/placement/sites", spec(func(s *fleet.DeploymentSpec) { s.Placement.Sites = make([]fleet.SiteName, 257) })},
		{"more pools than that", "/placement/pools", spec(func(s *fleet.DeploymentSpec) { s.Placement.Pools = make([]fleet.PoolName, 257) })},
		{"more modules than that", "/placement/modules", spec(func(s *fleet.DeploymentSpec) { s.Placement.Modules = make([]string, 257) })},
		{"a label without a name", "/placement/labels", spec(func(s *fleet.DeploymentSpec) { s.Placement.Labels = map[string]string{"": "x"} })},
		{"negative tries", "/recovery/restarts", spec(func(s *fleet.DeploymentSpec) { s.Recovery.Restarts = -1 })},
		{"a first pause that the longest would cut", "/recovery/attemptSeconds", spec(func(s *fleet.DeploymentSpec) { s.Recovery = fleet.Recovery{AttemptSeconds: 1800, CrashMaxSeconds: 960} })},
		{"a pause after a crash that would be cut", "/recovery/crashSeconds", spec(func(s *fleet.DeploymentSpec) { s.Recovery = fleet.Recovery{CrashSeconds: 11, CrashMaxSeconds: 10} })},
		{"a mark without a name", "/secretEnv/0", spec(func(s *fleet.DeploymentSpec) { s.SecretEnv = []string{""} })},
		{"an unknown driver", "/process/driver", process(func(p *fleet.Process) { p.Driver = "vm" })},
		{"an image of a process", "/process/image", process(func(p *fleet.Process) { p.Driver, p.Image = fleet.DriverProcess, "x" })},
		{"an image with a space", "/process/image", process(func(p *fleet.Process) { p.Image = "a b" })},
		{"a negative stop time", "/process/stopSeconds", process(func(p *fleet.Process) { p.StopSeconds = -1 })},
		{"no time to start", "/process/startup/deadline", process(func(p *fleet.Process) { p.Startup = &fleet.Startup{} })},
		{"a command without a program", "/process/command/0", process(func(p *fleet.Process) { p.Command = []string{""} })},
		{"a NUL in a command", "/process/command/1", process(func(p *fleet.Process) { p.Command = []string{"a", "\x00"} })},
		{"an empty first command", "/process/preStart/0", process(func(p *fleet.Process) { p.PreStart = [][]string{{}} })},
		{"a reserved name", "/process/env", process(func(p *fleet.Process) { p.Env = map[string]string{"HOLDFAST_NODE": "x"} })},
		{"the name of a port", "/process/env", process(func(p *fleet.Process) { p.Env = map[string]string{"PORT_HTTP": "1"} })},
		{"a name with =", "/process/env", process(func(p *fleet.Process) { p.Env = map[string]string{"A=B": "1"} })},
		{"a file outside", "/process/files/0/path", file("../x")},
		{"a file at the root", "/process/files/0/path", file("/etc/passwd")},
		{"a path that is not clean", "/process/files/0/path", file("a//b")},
		{"a file twice", "/process/files/1/path", file("a", "a")},
		{"a file as a directory", "/process/files/1/path", file("a", "a/b")},
		{"files over 1 MiB", "/process/files", process(func(p *fleet.Process) {
			p.Files = []fleet.ProcessFile{{Path: "a", Body: &fleet.Content{Size: 1 << 20}}, {Path: "b", Content: "x"}}
		})},
		{"a port without a name", "/process/ports/0/name", ports(fleet.ProcessPort{Port: 80})},
		{"a port's name twice", "/process/ports/1/name", ports(fleet.ProcessPort{Name: "a"}, fleet.ProcessPort{Name: "a"})},
		{"a port twice", "/process/ports/1/port", ports(fleet.ProcessPort{Name: "a", Port: 80}, fleet.ProcessPort{Name: "b", Port: 80})},
		{"a port that is none", "/process/ports/0/port", ports(fleet.ProcessPort{Name: "a", Port: 65536})},
		{"an unknown check", "/process/health/type", health(fleet.HealthCheck{Type: "exec"})},
		{"a check of no port", "/process/health/port", health(fleet.HealthCheck{Port: "admin"})},
		{"a path without /", "/process/health/path", health(fleet.HealthCheck{Path: "health"})},
		{"a path with a bad escape", "/process/health/path", health(fleet.HealthCheck{Path: "/a%zz"})},
		{"a path with a tab", "/process/health/path", health(fleet.HealthCheck{Path: "/a\tb"})},
		{"a path with a space", "/process/health/path", health(fleet.HealthCheck{Path: "/a b"})},
		{"an unknown method", "/process/health/method", health(fleet.HealthCheck{Method: "PUT"})},
		{"a status that is none", "/process/health/expected_status", health(fleet.HealthCheck{ExpectedStatus: 99})},
		{"a status that only announces an answer", "/process/health/expected_status", health(fleet.HealthCheck{ExpectedStatus: 199})},
		{"a timeout of the interval", "/process/health/timeout", health(fleet.HealthCheck{Interval: 5, Timeout: 5})},
		{"an interval too short", "/process/health/interval", health(fleet.HealthCheck{Interval: 0.05})},
		{"a threshold below none", "/process/health/unhealthy_threshold", health(fleet.HealthCheck{UnhealthyThreshold: -1})},
		{"an unknown readiness check", "/process/readiness/type", process(func(p *fleet.Process) { p.Readiness = &fleet.HealthCheck{Type: "exec"} })},
		{"a readiness check of no port", "/process/readiness/port", process(func(p *fleet.Process) { p.Readiness = &fleet.HealthCheck{Port: "admin"} })},
		{"a readiness timeout of the interval", "/process/readiness/timeout", process(func(p *fleet.Process) { p.Readiness = &fleet.HealthCheck{Interval: 5, Timeout: 5} })},
		{"a threshold too high", "/process/health/healthy_threshold", health(fleet.HealthCheck{HealthyThreshold: 1001})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var e *fleet.Error
			require.ErrorAs(t, c.spec.Validate(), &e)
			require.Equal(t, fleet.Invalid, e.Kind)
			require.Equal(t, c.field, e.Field, e.Error())
		})
	}
	for name, good := range map[string]fleet.DeploymentSpec{
		"the least":   spec(func(*fleet.DeploymentSpec) {}),
		"scaled to 0": bounds(0, 5, 0),
		"the most":    bounds(1000, 1000, 1000),
		"as many sites as may be": spec(func(s *fleet.DeploymentSpec) {
			for i := range 256 {
				s.Placement.Sites = append(s.Placement.Sites, fleet.SiteName("s"+strconv.Itoa(i)))
			}
		}),
		"all of it": process(func(p *fleet.Process) {
			p.Files = []fleet.ProcessFile{{Path: "conf/a.conf"}, {Path: "conf/b.conf"}, {Path: "..a"}}
			p.Env, p.StopSeconds, p.Startup = map[string]string{"A": "b", "PORT_ADMIN": "1"}, 3600, &fleet.Startup{Deadline: 86400}
			p.Health = &fleet.HealthCheck{Path: "/", Interval: 0.1, ExpectedStatus: 204, Method: "HEAD", Port: "http"}
			p.PreStart = [][]string{{"true"}}
		}),
		"a path with a query": health(fleet.HealthCheck{Path: "//a%20b/ä?c=%41&d=[e]", ExpectedStatus: 599}),
	} {
		require.NoError(t, good.Validate(), name)
	}
}

// S21, S75, S85, S107, S108
func TestDeploymentDefaults(t *testing.T) {
	t.Parallel()
	s := fleet.DeploymentSpec{}.WithDefaults()
	require.Equal(t, fleet.ReplicaBounds{Min: 1, Max: 10, Initial: 1}, s.Replicas)
	require.Equal(t, fleet.TypeProcess, s.Type)
	require.Equal(t, fleet.StateStarted, s.State)
	require.Equal(t, fleet.SpreadSites, s.Placement.Spread)
	require.Zero(t, s.Process.StopSeconds, "a type speaks before the defaults do")
	require.Equal(t, fleet.ReplicaBounds{Min: 20, Max: 20, Initial: 20}, fleet.DeploymentSpec{Replicas: fleet.ReplicaBounds{Min: 20}}.WithDefaults().Replicas)
	require.Equal(t, fleet.HealthCheck{
		Type: fleet.HealthHTTP, Path: "/health", Method: "GET", Interval: 10, Timeout: 5, UnhealthyThreshold: 3, HealthyThreshold: 2,
	}, fleet.HealthCheck{}.WithDefaults())
	require.Equal(t, fleet.HealthCheck{Type: fleet.HealthNone}, fleet.HealthCheck{Type: fleet.HealthNone, Path: "/x"}.WithDefaults())
	short := fleet.HealthCheck{Interval: 1}.WithDefaults()
	require.Less(t, short.Timeout, short.Interval)
	b := fleet.ReplicaBounds{Min: 2, Max: 4}
	require.Equal(t, []int{2, 3, 4}, []int{b.Clamp(0), b.Clamp(3), b.Clamp(9)})
	require.Equal(t, "PORT_ADMIN_UI", fleet.PortEnv("admin-ui"))
	require.Equal(t, []int{80}, fleet.Process{Ports: []fleet.ProcessPort{{Name: "a"}, {Name: "b", Port: 80}}}.FixedPorts())
	r := fleet.Recovery{Attempts: 7}.WithDefaults()
	require.Equal(t, 7, r.Attempts)
	require.Equal(t, []int{3, 30, 960, 200}, []int{r.Crashes, r.CrashSeconds, r.CrashMaxSeconds, r.GiveUp}, "S107")
	require.Equal(t, 1800, fleet.Recovery{AttemptSeconds: 1800}.WithDefaults().CrashMaxSeconds, "what is declared is not cut")
	require.Equal(t, 3600, fleet.Recovery{AttemptSeconds: 1800, CrashSeconds: 3600}.WithDefaults().CrashMaxSeconds)
}

// X19
func TestValidatePool(t *testing.T) {
	t.Parallel()
	require.NoError(t, fleet.PoolSpec{Labels: map[string]string{"gpu": ""}}.Validate())
	require.ErrorContains(t, fleet.PoolSpec{Labels: map[string]string{"": "x"}}.Validate(), "invalid label: want a name of 1 to 256 bytes and a value of up to 256")
	require.NoError(t, fleet.PoolSpec{Sites: []fleet.SiteName{"plant-1"}, Nodes: []fleet.NodeName{"a"}, MaxReplicas: 4}.Validate())
	for field, s := range map[string]fleet.PoolSpec{
		"/sites/0":     {Sites: []fleet.SiteName{"A"}},
		"/nodes/1":     {Nodes: []fleet.NodeName{"a", "a"}},
		"/maxReplicas": {MaxReplicas: -1},
		"/labels":      {Labels: map[string]string{"a": strings.Repeat("x", 257)}},
	} {
		var e *fleet.Error
		require.ErrorAs(t, s.Validate(), &e)
		require.Equal(t, field, e.Field)
	}
}

// X18
func TestConditionsSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := now.Add(-time.Hour)
	is := func(status fleet.ConditionStatus, reason string, since time.Time) []fleet.Condition {
		return []fleet.Condition{{Type: "available", Status: status, Reason: reason, Since: since}}
	}
	for _, c := range []struct {
		name    string
		was     []fleet.Condition
		since   time.Time
		changed bool
	}{
		{"one that stays keeps its time", is("true", "enough", before), before, false},
		{"so does one of another reason", is("true", "scaled", before), before, true},
		{"another status is of now", is("false", "enough", before), now, true},
		{"the first is of now", nil, now, true},
	} {
		dated, changed := fleet.ConditionsSince(c.was, is("true", "enough", time.Time{}), now)
		require.Equal(t, is("true", "enough", c.since), dated, c.name)
		require.Equal(t, c.changed, changed, c.name)
	}
}
