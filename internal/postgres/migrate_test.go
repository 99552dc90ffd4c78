package postgres_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// virgin gives an empty database, and a connection to it.
func virgin(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	b := bare(t)
	base := scan[string](b, "SELECT current_database()")
	name := "virgin_" + base
	b.exec("CREATE DATABASE " + name + " TEMPLATE template0")
	url = strings.Replace(b.url, base, name, 1)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = conn.Close(ctx) // the database goes
		_, err := b.raw.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(t, err)
	})
	return url, conn
}

func recorded(t *testing.T, conn *pgx.Conn) []string {
	t.Helper()
	var names []string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT array_agg(name ORDER BY name) FROM schema_migrations").Scan(&names))
	return names
}

// N72
func TestMigrations(t *testing.T) {
	t.Parallel()

	files, err := fs.Glob(postgres.Migrations(), "migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	t.Run("run once, however often and by however many at once", func(t *testing.T) {
		t.Parallel()
		url, conn := virgin(t)
		open := func(int) error {
			s, err := postgres.Open(t.Context(), url, testkit.Region)
			if err == nil {
				s.Close()
			}
			return err
		}
		require.NoError(t, atOnce(8, open))
		require.NoError(t, open(0))
		require.Equal(t, files, recorded(t, conn))
	})

	t.Run("are recorded by name", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		require.Equal(t, files, scan[[]string](b, "SELECT array_agg(name ORDER BY name) FROM schema_migrations"))
		b.exec("DELETE FROM schema_migrations WHERE name = $1", files[0])
		refused(t, fleet.Internal, b.reopen(testkit.Region))
		require.Equal(t, len(files)-1, scan[int](b, "SELECT count(*) FROM schema_migrations"), "a migration that fails leaves nothing")
	})
}

// N72: what is printed brings a database from where it is to this version, and records it.
func TestMigrationScript(t *testing.T) {
	t.Parallel()

	files, err := fs.Glob(postgres.Migrations(), "migrations/*.sql")
	require.NoError(t, err)

	for what, done := range map[string]int{"an empty database": 0, "an older version": len(files) / 2, "the version before": len(files) - 1} {
		t.Run("of "+what, func(t *testing.T) {
			t.Parallel()
			url, conn := virgin(t)
			ctx := t.Context()
			migrateTo(t, conn, files[:done])
			_, err := postgres.OpenMigrated(ctx, url, testkit.Region)
			refused(t, fleet.Precondition, err)
			require.ErrorContains(t, err, "this version needs "+strings.TrimSuffix(strings.TrimPrefix(files[len(files)-1], "migrations/"), ".sql"))

			script, err := postgres.MigrationScript(ctx, url)
			require.NoError(t, err)
			_, err = conn.Exec(ctx, script)
			require.NoError(t, err)
			require.Equal(t, files, recorded(t, conn))
			for _, open := range []func(context.Context, string, string) (*postgres.Store, error){postgres.OpenMigrated, postgres.Open} {
				s, err := open(ctx, url, testkit.Region)
				require.NoError(t, err)
				s.Close()
			}

			_, err = conn.Exec(ctx, script)
			require.ErrorContains(t, err, "this script is for a database that is")
			_, err = conn.Exec(ctx, "ROLLBACK") // as psql does with the script's COMMIT
			require.NoError(t, err)
			require.Equal(t, files, recorded(t, conn), "a second run changes nothing")
			again, err := postgres.MigrationScript(ctx, url)
			require.NoError(t, err)
			require.Regexp(t, "^-- Nothing to do.*\n$", again)

			_, err = conn.Exec(ctx, "INSERT INTO schema_migrations (name) VALUES ('migrations/9999_later.sql')")
			require.NoError(t, err)
			s, err := postgres.OpenMigrated(ctx, url, testkit.Region)
			require.NoError(t, err, "the next version migrated it (X26)")
			s.Close()
		})
	}

	t.Run("without a database is that of an empty one", func(t *testing.T) {
		t.Parallel()
		url, conn := virgin(t)
		script, err := postgres.MigrationScript(t.Context(), "")
		require.NoError(t, err)
		empty, err := postgres.MigrationScript(t.Context(), url)
		require.NoError(t, err)
		require.Equal(t, empty, script)

		migrateTo(t, conn, files[:1])
		_, err = conn.Exec(t.Context(), script)
		require.ErrorContains(t, err, "this script is for a database that is empty")
		_, err = conn.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.Equal(t, files[:1], recorded(t, conn))
	})
}

// migrateTo does what a release that had these files did.
func migrateTo(t *testing.T, conn *pgx.Conn, files []string) {
	t.Helper()
	if len(files) == 0 {
		return
	}
	_, err := conn.Exec(t.Context(), "CREATE TABLE schema_migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())")
	require.NoError(t, err)
	for _, name := range files {
		sql, err := fs.ReadFile(postgres.Migrations(), name)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), string(sql))
		require.NoError(t, err, name)
		_, err = conn.Exec(t.Context(), "INSERT INTO schema_migrations (name) VALUES ($1)", name)
		require.NoError(t, err)
	}
}
