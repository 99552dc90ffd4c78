package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// settingsOf are the KEY=VALUE of a file of systemd's, also of those that a comment only offers.
func settingsOf(t *testing.T, name, comment string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "systemd", name))
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, is := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), comment), "=")
		if is && !strings.Contains(key, " ") && !strings.HasPrefix(key, "#") {
			require.NotContains(t, all, key)
			all[key] = value
		}
	}
	return all
}

// X5, X8: under the unit that a user copies, what the node runs outlives its agent and gets its limits.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	unit := settingsOf(t, "holdfast-node.service", "")
	for key, want := range map[string]string{
		"KillMode": "process", "Delegate": "yes", "DelegateSubgroup": "agent", "TasksMax": "infinity",
		"Restart": "always", "StartLimitIntervalSec": "0", "WantedBy": "multi-user.target",
		"EnvironmentFile": "/etc/holdfast/node.env", "ExecStart": "/usr/bin/holdfast node",
	} {
		require.Equal(t, want, unit[key], key)
	}
	for _, ends := range []string{"PrivateTmp", "RuntimeDirectory", "DynamicUser", "ProtectControlGroups"} {
		require.NotContains(t, unit, ends, "it ends with the agent, or takes its cgroups from it")
	}
	require.Equal(t, "/var/lib/"+unit["StateDirectory"], (&cli{process: process{env: func(string) string { return "" }}}).newNodeCommand().Flag("data").DefValue)
}

// The agent starts with what the file beside the unit says, and knows every name in it.
func TestSystemdEnvironment(t *testing.T) {
	t.Parallel()
	file := settingsOf(t, "node.env", "#")
	var asked []string
	c := &cli{process: process{env: func(name string) string {
		asked = append(asked, name)
		return file[name]
	}}}
	cmd := c.newNodeCommand()
	require.NoError(t, cmd.ParseFlags(nil))
	require.NoError(t, cmd.ValidateRequiredFlags())
	c.certFiles()
	for name := range file {
		require.True(t, slices.Contains(asked, name), "nothing reads %s", name)
	}
	for flag, name := range map[string]string{
		"name": "HOLDFAST_NODE", "site": "HOLDFAST_SITE", "api": "HOLDFAST_ADDRESS", "link": "HOLDFAST_LINK",
		"peer": "HOLDFAST_PEER", "join-token": "HOLDFAST_JOIN_TOKEN",
	} {
		require.Contains(t, file, name)
		require.Equal(t, file[name], cmd.Flag(flag).Value.String(), flag)
	}
}
