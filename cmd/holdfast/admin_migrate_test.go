package main

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/testkit"
)

// N72
func TestAdminMigrate(t *testing.T) {
	t.Parallel()
	url := testkit.DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
	require.NoError(t, err)
	s := newShell(t, nil)

	got := s.run("server", "--database-url", url, "--migrate", "never")
	require.NotEqual(t, exitOK, got.code)
	require.Contains(t, got.stderr, "the database is empty, this version needs ")
	require.Contains(t, got.stderr, "holdfast admin migrate --print")
	got = s.run("server", "--database-url", url, "--migrate", "maybe")
	require.Contains(t, got.stderr, `unknown --migrate "maybe"; use auto or never`)

	script := s.ok("admin", "migrate", "--print").stdout
	require.Equal(t, script, s.ok("admin", "migrate", "--print", "--database-url", url).stdout, "an empty database")
	_, err = conn.Exec(t.Context(), script)
	require.NoError(t, err)
	require.Contains(t, s.ok("admin", "migrate", "--database-url", url).stdout, "the schema matches this version")
	require.Contains(t, s.ok("admin", "migrate", "--print", "--database-url", url).stdout, "Nothing to do")
}
