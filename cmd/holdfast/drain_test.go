package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// C86: providers, refusals and provider tokens from the command line, against the region's own
// handlers.
func TestProviderCommands(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	require.NoError(t, store.LinkServerSeen(t.Context(), "server-1"))
	made, err := store.RegisterConnection(t.Context(), fleet.Registration{
		Identity: "token:x", Provider: "vision-1", Namespace: "acme", Executor: "10.0.0.7:9091", Protocol: 1,
	}, "server-1")
	require.NoError(t, err)
	id := string(made.ID)
	require.Contains(t, s.ok("get", "providers").stdout, "Registered")
	require.Equal(t, exitConflict, s.run("drain", "provider", id).code, "it has no stream")
	_, err = store.OpenConnection(t.Context(), made.ID, "token:x", "server-1")
	require.NoError(t, err)
	got := s.ok("drain", "provider", id, "--reason", "new version", "--deadline", "2m").stdout
	require.Contains(t, got, "(ack)")
	require.Contains(t, s.ok("get", "provider", id, "-o", "yaml").stdout, "reason: new version")
	require.NotZero(t, s.run("drain", "provider", "nonsense").code)

	require.NoError(t, store.AddRefusals(t.Context(), []postgres.Refusal{{Door: "link", Identity: "node:a", Reason: "role", What: "x", Times: 3}}))
	require.Contains(t, s.ok("get", "refusals").stdout, "node:a")
	require.Equal(t, exitUsage, s.run("get", "refusal", "1").code)
	require.Contains(t, s.ok("token", "create", "--role", "provider", "--module-namespace", "acme.vision", "-o", "json").stdout, `"acme.vision"`)
}
