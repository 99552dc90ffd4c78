package replicas

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S119: no GPU is given twice; what was had stays where it is free, and what ended has none.
func TestGPUs(t *testing.T) {
	t.Parallel()
	g := newGPUs(4)
	chosen := func(id fleet.ReplicaID, count int, had ...int) []int {
		t.Helper()
		at, err := g.choose(id, count, had)
		require.NoError(t, err)
		return at
	}
	require.Empty(t, chosen(first, 0))
	require.Equal(t, []int{0}, chosen(first, 1))
	require.Equal(t, []int{1, 2}, chosen(second, 2))
	require.Equal(t, []int{1, 2}, chosen(second, 2, 1, 2), "started again")
	_, err := g.choose(third, 2, nil)
	require.Equal(t, fleet.ReasonGPUTaken, failure(err))
	require.Equal(t, []int{3}, chosen(third, 1, 1), "the one that it had has another now")
	g.drop(second)
	require.Equal(t, []int{0, 2}, chosen(first, 2, 2))
	_, err = newGPUs(-1).choose(first, 1, nil)
	require.Equal(t, fleet.ReasonGPUTaken, failure(err))

	g = newGPUs(2)
	g.keep(first, []int{0, 7})
	require.Equal(t, []int{1}, chosen(second, 1))
}

// computesOn is what a program finds of its GPUs in its environment.
func computesOn(t *testing.T, pid uint32) []string {
	t.Helper()
	env, err := os.ReadFile("/proc/" + itoa(pid) + "/environ")
	require.NoError(t, err)
	var found []string
	for _, v := range strings.Split(string(env), "\x00") {
		if strings.HasPrefix(v, "CUDA_") {
			found = append(found, v)
		}
	}
	return found
}

// S119: a replica that ended by itself has no GPU any more, also while the region has not taken it off the list.
func TestGPUsOfWhatEnded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *Options) { o.GPUs = 1 })
	ends := b.defined(web(func(d *fleet.Definition) {
		d.Resources.GPUs, d.Command, d.Health = 1, []string{"sh", "-c", "exit 3"}, &fleet.HealthCheck{Type: fleet.HealthNone}
	}))
	runs := b.defined(web(func(d *fleet.Definition) { d.Resources.GPUs = 1 }))
	b.ask(line(first, ends))
	b.is(first, fleet.PhaseExited, fleet.HealthNotChecked)
	b.ask(line(first, ends), line(second, runs))
	require.Contains(t, computesOn(t, b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()), "CUDA_VISIBLE_DEVICES=0")
}

// S119: replicas of one node compute on GPUs of their own, also after its agent was started again.
func TestOwnGPUs(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *Options) { o.GPUs = 2 })
	hash := b.defined(web(func(d *fleet.Definition) { d.Resources.GPUs = 1 }))
	none := b.defined(web())
	b.ask(line(first, hash))
	st := b.is(first, fleet.PhaseRunning, fleet.HealthHealthy)
	require.Equal(t, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0"}, computesOn(t, st.GetPid()))
	b.stop()
	b.open(true)
	b.ask(line(first, hash), line(second, hash), line(third, none))
	require.Contains(t, computesOn(t, b.is(second, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()), "CUDA_VISIBLE_DEVICES=1")
	require.Empty(t, computesOn(t, b.is(third, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()))
	fourth, fifth := fleet.ReplicaID("dddddddddddd"), fleet.ReplicaID("eeeeeeeeeeee")
	b.ask(line(first, hash), line(second, hash), line(fourth, hash))
	require.Equal(t, fleet.ReasonGPUTaken, b.is(fourth, fleet.PhaseFailed, fleet.HealthNotChecked).GetReason())
	b.ask(line(second, hash))
	b.gone(first)
	b.ask(line(second, hash), line(fifth, hash))
	require.Contains(t, computesOn(t, b.is(fifth, fleet.PhaseRunning, fleet.HealthHealthy).GetPid()), "CUDA_VISIBLE_DEVICES=0")
}
