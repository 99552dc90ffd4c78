package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

func machineOf(args ...string) (region.NodeMachine, error) {
	var m region.NodeMachine
	cmd := &cobra.Command{}
	machineFlags(cmd, &m)
	err := cmd.ParseFlags(args)
	return m, err
}

// S94: what placement goes by is what an operator says of the machine.
func TestMachineFlags(t *testing.T) {
	t.Parallel()
	m, err := machineOf()
	require.NoError(t, err)
	require.Equal(t, region.NodeMachine{GPUs: -1}, m, "to be found out")
	m, err = machineOf("--label", "disk=ssd", "--label", "zone=a,b", "--cpu", "1.5", "--memory", "1.5Gi", "--gpus", "0", "--address", "10.0.0.7")
	require.NoError(t, err)
	require.Equal(t, region.NodeMachine{
		Labels: map[string]string{"disk": "ssd", "zone": "a,b"}, CPU: 1.5, Memory: 3 << 29, GPUs: 0, Address: "10.0.0.7",
	}, m)
	for _, bad := range [][]string{{"--label", "disk"}, {"--memory", "1GB"}, {"--memory", "-1"}, {"--memory", "much"}, {"--memory", "9e30Ti"}} {
		_, err := machineOf(bad...)
		require.Error(t, err, "%v", bad)
	}
	require.Equal(t, fleet.Invalid, fleet.KindOf((*bytesFlag)(&m.Memory).Set("x")))
}
