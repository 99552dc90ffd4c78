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

// N72: a command that uses the database says what the database said.
func TestAdminCause(t *testing.T) {
	t.Parallel()
	s := newShell(t, nil)
	got := s.run("admin", "raise-era", "--database-url", "postgres://holdfast:not-shown@127.0.0.1:1/holdfast")
	require.Equal(t, exitUnreachable, got.code)
	require.Contains(t, got.stderr, "\n  cause: failed to connect to `user=holdfast database=holdfast`: 127.0.0.1:1")
	require.NotContains(t, got.stderr, "not-shown")

	url := testkit.DatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	_, err = conn.Exec(t.Context(), "DELETE FROM schema_migrations WHERE name = (SELECT max(name) FROM schema_migrations)")
	require.NoError(t, err)
	got = s.run("admin", "migrate", "--database-url", url, "-o", "json")
	require.Equal(t, exitError, got.code)
	require.Regexp(t, `"cause": ".* already exists \(SQLSTATE 42701\)"`, got.stderr)
}
