package replicas

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	first  = fleet.ReplicaID("aaaaaaaaaaaa")
	second = fleet.ReplicaID("bbbbbbbbbbbb")
	third  = fleet.ReplicaID("cccccccccccc")
)

// S46, S47, S53, S76, S81, X5: a replica starts, is healthy, and goes away without a trace.
func TestLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hash := b.defined(web(func(d *fleet.Definition) {
		d.Files = []fleet.ProcessFile{{Path: "conf/web.conf", Content: "listen ${PORT} for ${HOLDFAST_DEPLOYMENT}, keep $host and ${OTHER}"}}
	}))
	b.ask(line(first, hash))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, []string{"running HEALTHY 0"}, b.told(first))
	require.Equal(t, 200, get(t, st.GetEndpoint()+"/health"))
	port := portOf(t, st.GetEndpoint())
	conf, err := os.ReadFile(b.in(first, "conf/web.conf"))
	require.NoError(t, err)
	require.Equal(t, "listen "+port+" for web, keep $host and ${OTHER}", string(conf))

	env, err := os.ReadFile("/proc/" + itoa(st.GetPid()) + "/environ")
	require.NoError(t, err)
	vars := strings.Split(string(env), "\x00")
	for _, want := range []string{
		"PORT=" + port, "PORT_HTTP=" + port, "HOLDFAST_DEPLOYMENT=web", "HOLDFAST_REPLICA=" + string(first), "HOLDFAST_NODE=plant-1-a",
		"HOLDFAST_SITE=plant-1", "HOLDFAST_EPOCH=7", "HOLDFAST_REVISION=3", "HOLDFAST_CONFIG=" + b.in(first, "conf/web.conf"), "ADDRESS=http://localhost:" + port + "/$",
	} {
		require.Contains(t, vars, want)
	}

	end := line(first, hash)
	end.Run = false
	b.ask(end)
	b.is(first, fleet.PhaseStopped, fleet.HealthNotChecked)
	require.False(t, alive(st.GetPid()))
	b.ask()
	b.gone(first)
	b.region.mu.Lock()
	defer b.region.mu.Unlock()
	require.Contains(t, b.region.logs[first], "up at "+port)
}

// S53, X27: what does not heed SIGTERM is killed after its time, whole group and descendants (supervisor 1101).
func TestStubborn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := line(first, b.defined(web(func(d *fleet.Definition) { d.Env["STUBBORN"] = "yes" })))
	l.StopSeconds = 1
	b.ask(l)
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	children := childrenOf(t, st.GetPid())
	b.ask()
	b.gone(first)
	require.False(t, alive(st.GetPid()))
	for _, child := range children {
		require.False(t, alive(child))
	}
}

// S17, X5: an exit is told at once, and the node leaves it to the region.
func TestExit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ask(line(first, b.defined(web())))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.NoError(t, syscall.Kill(int(st.GetPid()), syscall.SIGKILL))
	st = b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	require.Equal(t, fleet.ReasonExited, st.GetReason())
	require.Contains(t, st.GetMessage(), "SIGKILL")
	require.Zero(t, st.GetRestarts())
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// childrenOf are the processes that a program started, of which there is at least one.
func childrenOf(t *testing.T, pid uint32) []string {
	t.Helper()
	all, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var children []string
	for _, e := range all {
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == itoa(pid) {
			children = append(children, e.Name())
		}
	}
	require.NotEmpty(t, children)
	return children
}
