package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// edge is a bound by both of its sides.
type edge struct {
	name string
	last error // of the last value that is allowed
	next error // of the one beyond it
}

func edges(t *testing.T, all []edge) {
	t.Helper()
	for _, e := range all {
		require.NoError(t, e.last, e.name)
		require.Contains(t, []fleet.Kind{fleet.Invalid, fleet.TooLarge}, fleet.KindOf(e.next), e.name)
		require.Error(t, e.next, e.name)
	}
}

func named[T ~string](n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = T(fmt.Sprintf("n%d", i))
	}
	return out
}

// X19, S108: a bound takes the value that it names, and nothing beyond.
func TestEdgesOfDeployments(t *testing.T) {
	t.Parallel()
	spec := func(change func(*fleet.DeploymentSpec)) error {
		s := fleet.DeploymentSpec{Process: fleet.Process{Command: []string{"web"}, Ports: []fleet.ProcessPort{{Name: "http"}}}}
		change(&s)
		return s.WithDefaults().Validate()
	}
	process := func(change func(*fleet.Process)) error {
		return spec(func(s *fleet.DeploymentSpec) { change(&s.Process) })
	}
	health := func(h fleet.HealthCheck) error { return process(func(p *fleet.Process) { p.Health = &h }) }
	resources := func(r fleet.Resources) error { return spec(func(s *fleet.DeploymentSpec) { s.Resources = r }) }
	replicas := func(least, most int) error {
		return fleet.ReplicaBounds{Min: least, Max: most, Initial: least}.Validate()
	}
	recovery := func(r fleet.Recovery) error { return spec(func(s *fleet.DeploymentSpec) { s.Recovery = r }) }
	module := func(name string) error {
		return spec(func(s *fleet.DeploymentSpec) { s.Placement.Modules = []string{name} })
	}
	files := func(n int, path string, size int) error {
		return process(func(p *fleet.Process) {
			for i := range n {
				p.Files = append(p.Files, fleet.ProcessFile{Path: fmt.Sprintf("%s%d", path, i), Content: strings.Repeat("x", size)})
			}
		})
	}
	ports := func(all ...int) error {
		return process(func(p *fleet.Process) {
			p.Ports = nil
			for i, number := range all {
				p.Ports = append(p.Ports, fleet.ProcessPort{Name: fmt.Sprintf("p%d", i), Port: number})
			}
		})
	}
	passed := func(args int) error { // with 56 KiB of others
		return process(func(p *fleet.Process) {
			const half = 100 << 10 // an argument has a limit of its own
			p.Args = []string{strings.Repeat("x", half), strings.Repeat("x", args-half)}
			p.Command, p.Env = []string{strings.Repeat("x", 8<<10)}, map[string]string{"A": strings.Repeat("x", 16<<10-2)}
			p.PreStart = [][]string{{strings.Repeat("x", 16<<10), strings.Repeat("x", 16<<10)}}
		})
	}
	edges(t, []edge{
		{"commands and environment", passed(200 << 10), passed(200<<10 + 1)},
		{"model", spec(func(s *fleet.DeploymentSpec) { s.Model = strings.Repeat("x", 4096) }), spec(func(s *fleet.DeploymentSpec) { s.Model = strings.Repeat("x", 4097) })},
		{"most replicas", replicas(1, 1000), replicas(1, 1001)},
		{"one replica at most", replicas(1, 1), replicas(0, 0)},
		{"no replica at least", replicas(0, 1), replicas(-1, 1)},
		{"cores", resources(fleet.Resources{CPU: 4096}), resources(fleet.Resources{CPU: 4096.5})},
		{"no cores", resources(fleet.Resources{}), resources(fleet.Resources{CPU: -0.5})},
		{"memory", resources(fleet.Resources{Memory: 1 << 50}), resources(fleet.Resources{Memory: 1<<50 + 1})},
		{"GPUs", resources(fleet.Resources{GPUs: 64}), resources(fleet.Resources{GPUs: 65})},
		{"module", module(strings.Repeat("x", 256)), module(strings.Repeat("x", 257))},
		{"tries", recovery(fleet.Recovery{Restarts: 10_000}), recovery(fleet.Recovery{Restarts: 10_001})},
		{"term", recovery(fleet.Recovery{LostSeconds: 7 * 24 * 3600}), recovery(fleet.Recovery{LostSeconds: 7*24*3600 + 1})},
		{"first pause", recovery(fleet.Recovery{CrashSeconds: 10, CrashMaxSeconds: 10}), recovery(fleet.Recovery{CrashSeconds: 11, CrashMaxSeconds: 10})},
		{"pool", fleet.PoolSpec{MaxReplicas: 1000}.Validate(), fleet.PoolSpec{MaxReplicas: 1001}.Validate()},
		{"unbounded pool", fleet.PoolSpec{}.Validate(), fleet.PoolSpec{MaxReplicas: -1}.Validate()},
		{"image", process(func(p *fleet.Process) { p.Image = strings.Repeat("x", 512) }), process(func(p *fleet.Process) { p.Image = strings.Repeat("x", 513) })},
		{"shared memory", process(func(p *fleet.Process) { p.SharedMemory = 1 << 50 }), process(func(p *fleet.Process) { p.SharedMemory = 1<<50 + 1 })},
		{"stop", process(func(p *fleet.Process) { p.StopSeconds = 3600 }), process(func(p *fleet.Process) { p.StopSeconds = 3601 })},
		{"startup", process(func(p *fleet.Process) { p.Startup = &fleet.Startup{Deadline: 86400} }), process(func(p *fleet.Process) { p.Startup = &fleet.Startup{Deadline: 86401} })},
		{"an option for a program", process(func(p *fleet.Process) { p.Command = nil }), process(func(p *fleet.Process) { p.Command = []string{"-v"} })},
		{"commands before the start", process(func(p *fleet.Process) { p.PreStart = make16("true") }), process(func(p *fleet.Process) { p.PreStart = append(make16("true"), []string{"true"}) })},
		{"NUL before the start", process(func(p *fleet.Process) { p.PreStart = [][]string{{"a", "b"}} }), process(func(p *fleet.Process) { p.PreStart = [][]string{{"a", "\x00"}} })},
		{"PORT without ports", process(func(p *fleet.Process) { p.Ports, p.Env = nil, map[string]string{"PORT": "1"} }), process(func(p *fleet.Process) { p.Env = map[string]string{"PORT": "1"} })},
		{"files", files(64, "f", 0), files(65, "f", 0)},
		{"path of a file", files(1, strings.Repeat("x", 199), 0), files(1, strings.Repeat("x", 200), 0)},
		{"bytes of files", files(1, "f", fleet.MaxFilesBytes), files(1, "f", fleet.MaxFilesBytes+1)},
		{"ports", ports(make([]int, 16)...), ports(make([]int, 17)...)},
		{"port", ports(65535), ports(65536)},
		{"free ports", ports(0, 0), ports(1, 1)},
		{"port of a check", health(fleet.HealthCheck{Port: "http"}), health(fleet.HealthCheck{Port: "admin"})},
		{"path of a check", health(fleet.HealthCheck{Path: "/" + strings.Repeat("x", 1023)}), health(fleet.HealthCheck{Path: "/" + strings.Repeat("x", 1024)})},
		{"interval", health(fleet.HealthCheck{Interval: 3600}), health(fleet.HealthCheck{Interval: 3600.5})},
		{"short interval", health(fleet.HealthCheck{Interval: 0.1}), health(fleet.HealthCheck{Interval: 0.09})},
		{"timeout", health(fleet.HealthCheck{Interval: 2, Timeout: 1.5}), health(fleet.HealthCheck{Interval: 2, Timeout: 2})},
		{"timeout where the type has the interval", health(fleet.HealthCheck{Timeout: 20}), health(fleet.HealthCheck{Interval: 20, Timeout: 20})},
		{"losses", health(fleet.HealthCheck{UnhealthyThreshold: 1000}), health(fleet.HealthCheck{UnhealthyThreshold: 1001})},
		{"successes", health(fleet.HealthCheck{HealthyThreshold: 1000}), health(fleet.HealthCheck{HealthyThreshold: 1001})},
		{"probe", fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 2, Timeout: 1}.CheckProbe(fleet.HealthField), fleet.HealthCheck{Type: fleet.HealthTCP, Interval: 2, Timeout: 2}.CheckProbe(fleet.HealthField)},
		{"probe of none", fleet.HealthCheck{Type: fleet.HealthNone, Timeout: 2}.CheckProbe(fleet.HealthField), fleet.HealthCheck{Type: fleet.HealthHTTP, Timeout: 2}.CheckProbe(fleet.HealthField)},
	})
	require.NoError(t, process(func(p *fleet.Process) { p.Ports, p.Health = nil, &fleet.HealthCheck{Port: "of the type"} }), "the type gives the ports")
	require.Equal(t, fleet.Invalid, fleet.KindOf(module("")))
	for status, valid := range map[int]bool{0: true, 199: false, 200: true, 599: true, 600: false, 1: false} {
		require.Equal(t, valid, fleet.ValidHealthStatus(status), status)
	}
	settle := fleet.HealthCheck{Interval: 4, Timeout: 1, HealthyThreshold: 2, UnhealthyThreshold: 3}
	require.Equal(t, 40*time.Second, settle.SettleTime())
}

func make16(command string) [][]string {
	out := make([][]string, 16)
	for i := range out {
		out[i] = []string{command}
	}
	return out
}

// X19: the same of what else people and nodes declare.
func TestEdgesOfObjects(t *testing.T) {
	t.Parallel()
	run := func(change func(*fleet.Run)) error {
		r := fleet.Run{Command: []string{"web"}}
		change(&r)
		return r.Validate("/run")
	}
	labels := func(n, name, value int) error {
		all := map[string]string{strings.Repeat("k", name): strings.Repeat("v", value)}
		for i := range n - 1 {
			all[fmt.Sprintf("l%d", i)] = ""
		}
		return fleet.ValidateLabels("/labels", all)
	}
	pins := func(n int) error {
		spec := fleet.TemplateSpec{}
		for i := range n {
			spec.Compositions = append(spec.Compositions, fleet.TemplatePin{Name: fleet.TemplateName(fmt.Sprintf("t%d", i))})
		}
		return spec.Validate("self")
	}
	facts := func(change func(*fleet.NodeFacts)) error {
		var f fleet.NodeFacts
		change(&f)
		return f.Validate()
	}
	retention := func(change func(*fleet.Retention)) error {
		r := fleet.DefaultRetention()
		change(&r)
		return r.Validate()
	}
	timing := func(idle time.Duration) error {
		l := fleet.DefaultLinkTiming()
		l.Idle = idle
		return l.Validate()
	}
	registration := func(change func(*fleet.Registration)) error {
		r := fleet.Registration{Provider: "vision-1", Namespace: "acme", Executor: "10.0.0.7:9091"}
		change(&r)
		return r.Validate()
	}
	serverName := func(name string) error {
		return registration(func(r *fleet.Registration) { r.ExecutorTLS.ServerName = name })
	}
	plain := func(change func(*fleet.Registration)) error {
		return registration(func(r *fleet.Registration) { r.Namespace, r.Executor = "", ""; change(r) })
	}
	config := &fleet.Content{Hash: "h"}
	instance := func(s fleet.InstanceSpec) error {
		s.Durability = fleet.DurabilitySync
		return s.Validate()
	}
	active := func(name string) fleet.SiteNode {
		return fleet.SiteNode{Name: fleet.NodeName(name), Role: fleet.RoleActive}
	}
	edges(t, []edge{
		{"seconds to start", run(func(r *fleet.Run) { r.StartSeconds = 3600 }), run(func(r *fleet.Run) { r.StartSeconds = 3601 })},
		{"seconds to stop", run(func(r *fleet.Run) { r.StopSeconds = 3600 }), run(func(r *fleet.Run) { r.StopSeconds = 3601 })},
		{"environment", run(func(r *fleet.Run) { r.Env = map[string]string{"A": ""} }), run(func(r *fleet.Run) { r.Env = map[string]string{"": "a"} })},
		{"labels", labels(64, 1, 1), labels(65, 1, 1)},
		{"name of a label", labels(1, 256, 0), labels(1, 257, 0)},
		{"value of a label", labels(1, 1, 256), labels(1, 1, 257)},
		{"compositions", pins(fleet.MaxCompositions), pins(fleet.MaxCompositions + 1)},
		{"address", facts(func(f *fleet.NodeFacts) { f.Address = strings.Repeat("x", 253) }), facts(func(f *fleet.NodeFacts) { f.Address = strings.Repeat("x", 254) })},
		{"drivers", facts(func(f *fleet.NodeFacts) { f.Drivers = named[fleet.Driver](8) }), facts(func(f *fleet.NodeFacts) { f.Drivers = named[fleet.Driver](9) })},
		{"cores", facts(func(f *fleet.NodeFacts) { f.Resources.CPU = 1 << 16 }), facts(func(f *fleet.NodeFacts) { f.Resources.CPU = 1<<16 + 1 })},
		{"memory", facts(func(f *fleet.NodeFacts) { f.Resources.Memory = 1 << 50 }), facts(func(f *fleet.NodeFacts) { f.Resources.Memory = 1<<50 + 1 })},
		{"GPUs", facts(func(f *fleet.NodeFacts) { f.Resources.GPUs = 1 << 10 }), facts(func(f *fleet.NodeFacts) { f.Resources.GPUs = 1<<10 + 1 })},
		{"revisions kept", retention(func(r *fleet.Retention) { r.Newest = 1 }), retention(func(r *fleet.Retention) { r.Newest = 0 })},
		{"operations kept", retention(func(r *fleet.Retention) { r.Operations = 24 * time.Hour }), retention(func(r *fleet.Retention) { r.Operations = 24*time.Hour - 1 })},
		{"idle", timing(time.Second), timing(time.Second - 1)},
		{"server name", serverName(strings.Repeat("x", 253)), serverName(strings.Repeat("x", 254))},
		{"server address", serverName("::1"), serverName("host:1")},
		{"peer", registration(func(r *fleet.Registration) { r.PeerAddress = "10.0.0.2:1" }), registration(func(r *fleet.Registration) { r.PeerAddress = "10.0.0.2" })},
		{"group", plain(func(*fleet.Registration) {}), plain(func(r *fleet.Registration) { r.Group = "g" })},
		{"modules", plain(func(*fleet.Registration) {}), plain(func(r *fleet.Registration) { r.Modules = make([]fleet.ModuleOffer, 1) })},
		{"template", instance(fleet.InstanceSpec{Template: "t"}), instance(fleet.InstanceSpec{Template: "T"})},
		{"secrets of an artifact", instance(fleet.InstanceSpec{Artifact: config}), instance(fleet.InstanceSpec{Artifact: config, Secrets: []string{"/a"}})},
		{"secrets", fleet.ValidateSecrets("/secrets", pointers(fleet.MaxSecrets)), fleet.ValidateSecrets("/secrets", pointers(fleet.MaxSecrets+1))},
		{"active nodes", fleet.SiteSpec{Nodes: []fleet.SiteNode{active("a")}}.Validate(), fleet.SiteSpec{Nodes: []fleet.SiteNode{active("a"), active("b")}}.Validate()},
		{"a site without nodes", fleet.SiteSpec{}.Validate(), fleet.SiteSpec{Nodes: []fleet.SiteNode{{Name: "a", Role: fleet.RoleStandby}}}.Validate()},
		{
			"a durable execution", fleet.ValidExecution("acme.Detect", make([]byte, fleet.MaxDurableInput), 3600),
			fleet.ValidExecution("acme.Detect", nil, 3601),
		},
		{"its input", fleet.ValidExecution("acme.Detect", nil, 0), fleet.ValidExecution("acme.Detect", make([]byte, fleet.MaxDurableInput+1), 0)},
		{"its time", fleet.ValidExecution("acme.Detect", nil, 1), fleet.ValidExecution("acme.Detect", nil, -1)},
		{"its module", fleet.ValidExecution("a.b.Detect", nil, 1), fleet.ValidExecution("Detect", nil, 1)},
	})
}

func pointers(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("/p%d", i)
	}
	return out
}

// X4, X19: a line of a report, to the last byte.
func TestEdgesOfReports(t *testing.T) {
	t.Parallel()
	line := func(change func(*fleet.ReplicaStatus)) error {
		s := fleet.ReplicaStatus{ID: "0123456789ab", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy}
		change(&s)
		return s.Validate()
	}
	port := func(name string, number int) error {
		return line(func(s *fleet.ReplicaStatus) { s.Ports = map[string]int{name: number} })
	}
	many := func(n int) error {
		return line(func(s *fleet.ReplicaStatus) {
			s.Ports = map[string]int{}
			for i := range n {
				s.Ports[fmt.Sprintf("p%d", i)] = 1
			}
		})
	}
	const oldest = 10 * 365 * 24 * time.Hour
	edges(t, []edge{
		{"age", line(func(s *fleet.ReplicaStatus) { s.Age = oldest }), line(func(s *fleet.ReplicaStatus) { s.Age = oldest + 1 })},
		{"reason", line(func(s *fleet.ReplicaStatus) { s.Reason = strings.Repeat("x", 64) }), line(func(s *fleet.ReplicaStatus) { s.Reason = strings.Repeat("x", 65) })},
		{"message", line(func(s *fleet.ReplicaStatus) { s.Message = strings.Repeat("x", 1000) }), line(func(s *fleet.ReplicaStatus) { s.Message = strings.Repeat("x", 1001) })},
		{"endpoint", line(func(s *fleet.ReplicaStatus) { s.Endpoint = strings.Repeat("x", 300) }), line(func(s *fleet.ReplicaStatus) { s.Endpoint = strings.Repeat("x", 301) })},
		{"ports", many(32), many(33)},
		{"name of a port", port(strings.Repeat("x", 64), 1), port(strings.Repeat("x", 65), 1)},
		{"port", port("http", 65535), port("http", 65536)},
		{"port that is none", port("http", 1), port("http", 0)},
	})
}
