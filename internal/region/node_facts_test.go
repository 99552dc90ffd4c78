package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// S94: what nobody says of a machine is found out; what somebody says stays.
func TestMachineFacts(t *testing.T) {
	t.Parallel()
	m := NodeMachine{GPUs: -1}.detect("http://127.0.0.1:7460")
	require.GreaterOrEqual(t, m.CPU, 1.0)
	require.Greater(t, m.Memory, int64(64<<20))
	require.GreaterOrEqual(t, m.GPUs, 0)
	require.Equal(t, "127.0.0.1", m.Address)
	require.Equal(t, "127.0.0.1", NodeMachine{}.detect("not a url").Address)

	said := NodeMachine{Labels: map[string]string{"disk": "ssd"}, CPU: 0.5, Memory: 7, GPUs: 2, Address: "10.0.0.7"}
	require.Equal(t, said, said.detect("http://127.0.0.1:7460"))
	f := said.facts([]fleet.Driver{fleet.DriverProcess, fleet.DriverDocker})
	require.Equal(t, []string{"docker", "process"}, f.GetDrivers())
	require.Equal(t, []any{0.5, int64(7), int32(2), "10.0.0.7", "ssd"},
		[]any{f.GetCpu(), f.GetMemory(), f.GetGpus(), f.GetAddress(), f.GetLabels()["disk"]})
}
