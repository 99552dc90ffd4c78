package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
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
