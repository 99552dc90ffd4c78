package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// C52, C53, C54, C70: the environment names of the terms of the link; a flag goes before them.
func TestLinkEnvironment(t *testing.T) {
	t.Parallel()
	read := func(env map[string]string, args ...string) (fleet.LinkTiming, error) {
		s := newShell(t, nil)
		for name, value := range env {
			s.env[name] = value
		}
		c := &cli{process: s.process(os.Stdout, os.Stderr, nil)}
		timing := fleet.DefaultLinkTiming()
		cmd := c.newServerCommand()
		require.NoError(t, cmd.ParseFlags(args))
		return timing, c.linkEnv(cmd, &timing)
	}
	got, err := read(nil)
	require.NoError(t, err)
	require.Equal(t, fleet.DefaultLinkTiming(), got)
	got, err = read(map[string]string{
		"HOLDFAST_PROVIDER_HEARTBEAT_TIMEOUT": "21s", "HOLDFAST_PROVIDER_CONTROL_PLANE_TIMEOUT": "1m", "HOLDFAST_PROVIDER_REPORT": "1s",
	})
	require.NoError(t, err)
	want := fleet.DefaultLinkTiming()
	want.HeartbeatTimeout, want.StreamRequired = 21*time.Second, time.Minute
	require.Equal(t, want, got)
	got, err = read(map[string]string{"HOLDFAST_PROVIDER_HEARTBEAT_TIMEOUT": "21s"}, "--link-heartbeat-timeout", "20s")
	require.NoError(t, err)
	require.Equal(t, fleet.DefaultLinkTiming().HeartbeatTimeout, got.HeartbeatTimeout, "the flag has its own place")
	got, err = read(map[string]string{"HOLDFAST_PROVIDER_HEARTBEAT_TIMEOUT": "9s"})
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, got.HeartbeatEvery, "three heartbeats fit into it")
	require.NoError(t, got.Validate())
	got, err = read(map[string]string{"HOLDFAST_PROVIDER_HEARTBEAT_TIMEOUT": "9s"}, "--link-heartbeat", "4s")
	require.NoError(t, err)
	require.Equal(t, fleet.DefaultLinkTiming().HeartbeatEvery, got.HeartbeatEvery, "what a person says is not changed")
	_, err = read(map[string]string{"HOLDFAST_PROVIDER_CONTROL_PLANE_TIMEOUT": "soon"})
	require.Equal(t, fleet.Invalid, fleet.KindOf(err))
}

// C72, C84: the defaults of the link's port and of a drain, which scripts and firewalls rely on.
func TestDefaultsOfFlags(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	c := &cli{process: s.process(os.Stdout, os.Stderr, nil)}
	for _, row := range []struct {
		cmd        *cobra.Command
		flag, want string
	}{
		{c.newServerCommand(), "link", "127.0.0.1:9090"},
		{c.newNodeCommand(), "link", "127.0.0.1:9090"},
		{c.newDrainNodeCommand(), "deadline", "30s"},
		{c.newDrainProviderCommand(), "deadline", "30s"},
	} {
		require.Equal(t, row.want, row.cmd.Flag(row.flag).DefValue, "%s --%s", row.cmd.CommandPath(), row.flag)
	}
}

// C87: what Temporal is spoken to with comes from flags, and what they leave out from the
// environment; what does not go together is refused before anything else is done.
func TestTemporalSettings(t *testing.T) {
	t.Parallel()
	ca := testkit.NewAuthority(t)
	cert, _ := ca.Issue(filepath.Join(t.TempDir(), "server"))
	key := write(t, "key", "s3cret")
	for name, row := range map[string]struct {
		env   map[string]string
		args  []string
		wrong string
	}{
		"an authority without TLS":           {nil, []string{"--temporal-tls-ca", ca.File}, "give --temporal-tls as well, or omit --temporal-tls-ca"},
		"the same from the environment":      {map[string]string{"HOLDFAST_TEMPORAL_TLS_CA": ca.File}, nil, "give --temporal-tls as well, or omit --temporal-tls-ca"},
		"a name without TLS":                 {map[string]string{"HOLDFAST_TEMPORAL_TLS_SERVER_NAME": "temporal"}, nil, "omit --temporal-tls-server-name"},
		"a key without TLS":                  {map[string]string{"HOLDFAST_TEMPORAL_API_KEY_FILE": key}, nil, "a key is sent only over TLS"},
		"TLS that is taken back":             {map[string]string{"HOLDFAST_TEMPORAL_TLS": "true", "HOLDFAST_TEMPORAL_API_KEY_FILE": key}, []string{"--temporal-tls=false"}, "a key is sent only over TLS"},
		"a certificate without its key":      {map[string]string{"HOLDFAST_TEMPORAL_TLS": "1", "HOLDFAST_TEMPORAL_TLS_CERT": cert}, nil, "--temporal-tls-cert and --temporal-tls-key must be given together"},
		"a key without its certificate":      {map[string]string{"HOLDFAST_TEMPORAL_TLS": "1", "HOLDFAST_TEMPORAL_TLS_KEY": key}, nil, "give both, or neither"},
		"TLS that is neither on nor off":     {map[string]string{"HOLDFAST_TEMPORAL_TLS": "yes"}, nil, "set it to true or false, or omit it"},
		"a file that is missing":             {nil, []string{"--temporal-tls", "--temporal-api-key-file", "missing"}, "give a file that contains only the key"},
		"a flag goes before the environment": {map[string]string{"HOLDFAST_TEMPORAL_TLS": "yes"}, []string{"--temporal-tls", "--temporal-tls-ca", "missing"}, "read --temporal-tls-ca"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShell(t, nil)
			for name, value := range row.env {
				s.env[name] = value
			}
			got := s.run(append([]string{"server"}, row.args...)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, row.wrong)
			require.NotContains(t, got.stderr, "s3cret")
		})
	}
}
