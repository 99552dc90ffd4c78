package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// N106, N107: from a manifest through the region and back, numbers keep their digits, also in what -o yaml writes of a plan.
func TestDigitsAreKept(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	s := shellOn(t, store, nil)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	const instance = `kind: Instance
name: press-7
site: plant-1
spec:
  config: {big: 12345678901234567890, negative: -0, one: 1.0, thousand: 1e3, place: -73.983947999999998}
`
	s.ok("apply", "-f", file("all.yaml", `kind: Site
name: plant-1
spec: {nodes: [{name: plant-1-a, role: active}]}
---
`+instance), "--wait=false")
	kept := compose.HashOf([]byte(`{"big":12345678901234567890,"negative":0,"one":1,"place":-73.983948,"thousand":1000}`))
	require.Contains(t, s.ok("get", "instance", "plant-1/press-7", "-o", "yaml").stdout, "hash: "+string(kept)+"\n")
	raw, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	_, err = raw.Exec(t.Context(), `INSERT INTO node_held (site, name, node, era, revision, hash,
		enabled, deleted, running, high_era, high_revision)
		SELECT site, name, 'plant-1-a', era, revision, body_hash, true, false, true, era, revision FROM revisions`)
	require.NoError(t, err)
	plan := func(name, text string) result { return s.run("plan", "-f", file(name, text), "-o", "yaml") }
	require.Contains(t, plan("same.yaml", strings.Replace(instance, "1e3", "1000", 1)).stdout, "changes: false\n")
	changed := plan("changed.yaml", strings.Replace(instance, "12345678901234567890", "12345678901234567891", 1)).stdout
	require.Contains(t, changed, "from: 12345678901234567890\n")
	require.Contains(t, changed, "to: 12345678901234567891\n")
	for _, number := range []string{"1e400", "1e-400"} {
		got := s.run("apply", "-f", file("refused.yaml", strings.Replace(instance, "1e3", number, 1)))
		require.Equal(t, exitUsage, got.code, got.stdout+got.stderr)
	}
}
