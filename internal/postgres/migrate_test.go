package postgres_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// virgin gives an empty database, and a connection to it.
func virgin(t *testing.T) (url string, conn *pgx.Conn) {
	t.Helper()
	b := bare(t)
	base := stores.Scan[string](b, "SELECT current_database()")
	name := "virgin_" + base
	b.Exec("CREATE DATABASE " + name + " TEMPLATE template0")
	url = strings.Replace(b.URL, base, name, 1)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = conn.Close(ctx) // the database goes
		_, err := b.Raw.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
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

	files, err := postgres.Migrations()
	require.NoError(t, err)
	require.NotEmpty(t, files)
	next, err := postgres.LaterMigrations()
	require.NoError(t, err)

	t.Run("run once, however often and by however many at once", func(t *testing.T) {
		t.Parallel()
		url, conn := virgin(t)
		open := func(int) error {
			s, err := store.Open(t.Context(), url, testkit.Region)
			if err == nil {
				s.Close()
			}
			return err
		}
		require.NoError(t, stores.AtOnce(8, open))
		require.NoError(t, open(0))
		require.Equal(t, files, recorded(t, conn))
	})

	t.Run("of the next version are added, and the one before serves on (X26)", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		s, err := postgres.OpenLater(t.Context(), b.URL, testkit.Region)
		require.NoError(t, err)
		s.Close()
		require.Equal(t, 7, stores.Scan[int](b, "SELECT DISTINCT made FROM nodes"), "what was there is kept")
		require.Equal(t, next, stores.Scan[[]string](b, "SELECT array_agg(name ORDER BY name) FROM schema_migrations"))
		require.NoError(t, b.reopen(testkit.Region))
		b.Put(`{"a":1}`)
	})

	t.Run("that fail leave nothing", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.Exec("ALTER TABLE nodes ADD COLUMN made text")
		_, err := postgres.OpenLater(t.Context(), b.URL, testkit.Region)
		stores.Refused(t, fleet.Internal, err)
		require.Equal(t, files, stores.Scan[[]string](b, "SELECT array_agg(name ORDER BY name) FROM schema_migrations"))
	})
}

// N72: a database that no release has made is refused, whatever its migrations are called.
func TestForeignSchema(t *testing.T) {
	t.Parallel()
	files, err := postgres.Migrations()
	require.NoError(t, err)
	for what, make := range map[string]string{
		"recorded without a checksum": "CREATE TABLE schema_migrations (name text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now()); INSERT INTO schema_migrations (name) VALUES ('" + files[0] + "')",
		"recorded with another one": "CREATE TABLE schema_migrations (name text PRIMARY KEY, sha256 text NOT NULL, at timestamptz NOT NULL DEFAULT now()); " +
			"INSERT INTO schema_migrations (name, sha256) VALUES ('" + files[0] + "', '" + strings.Repeat("0", 64) + "')",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url, conn := virgin(t)
			_, err := conn.Exec(t.Context(), make)
			require.NoError(t, err)
			for _, open := range []func(context.Context, string, string) (*store.Store, error){store.Open, store.OpenMigrated} {
				_, err := open(t.Context(), url, testkit.Region)
				stores.Refused(t, fleet.Precondition, err)
				require.ErrorContains(t, err, "an unreleased build")
			}
			_, err = postgres.MigrationScript(t.Context(), url)
			stores.Refused(t, fleet.Precondition, err)
			_, err = postgres.RaiseEra(t.Context(), url, testkit.Region)
			stores.Refused(t, fleet.Precondition, err)
			var tables int
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables))
			require.Equal(t, 1, tables, "nothing was changed")
			require.Equal(t, files[:1], recorded(t, conn))
		})
	}
}

type openStore = func(ctx context.Context, url, region string) (interface{ Close() }, error)

// opens opens the kernel alone or the whole store.
func opens[S interface{ Close() }](open func(ctx context.Context, url, region string) (S, error)) openStore {
	return func(ctx context.Context, url, region string) (interface{ Close() }, error) {
		return open(ctx, url, region)
	}
}

// N72: what is printed brings a database from where it is to this version, and records it.
func TestMigrationScript(t *testing.T) {
	t.Parallel()

	files, err := postgres.Migrations()
	require.NoError(t, err)
	next, err := postgres.LaterMigrations()
	require.NoError(t, err)

	for what, c := range map[string]struct {
		before  bool // it has the schema of this version
		script  func(ctx context.Context, url string) (string, error)
		open    []openStore // the first does not migrate
		becomes []string
	}{
		"an empty database":                      {false, postgres.MigrationScript, []openStore{opens(store.OpenMigrated), opens(store.Open)}, files},
		"an empty database, of the next version": {false, postgres.LaterScript, []openStore{opens(postgres.OpenLaterMigrated), opens(store.OpenMigrated), opens(postgres.OpenLater)}, next},
		"the version before":                     {true, postgres.LaterScript, []openStore{opens(postgres.OpenLaterMigrated), opens(store.OpenMigrated), opens(postgres.OpenLater)}, next},
	} {
		t.Run("of "+what, func(t *testing.T) {
			t.Parallel()
			url, conn := virgin(t)
			ctx := t.Context()
			if c.before {
				script, err := postgres.MigrationScript(ctx, url)
				require.NoError(t, err)
				_, err = conn.Exec(ctx, script)
				require.NoError(t, err)
			}
			_, err := c.open[0](ctx, url, testkit.Region)
			stores.Refused(t, fleet.Precondition, err)
			require.ErrorContains(t, err, "this version needs "+strings.TrimSuffix(strings.TrimPrefix(c.becomes[len(c.becomes)-1], "migrations/"), ".sql"))

			script, err := c.script(ctx, url)
			require.NoError(t, err)
			_, err = conn.Exec(ctx, script)
			require.NoError(t, err)
			require.Equal(t, c.becomes, recorded(t, conn))
			for _, open := range c.open {
				s, err := open(ctx, url, testkit.Region)
				require.NoError(t, err, "the version before serves it too (X26)")
				s.Close()
			}

			_, err = conn.Exec(ctx, script)
			require.ErrorContains(t, err, "this script is for a database that is")
			_, err = conn.Exec(ctx, "ROLLBACK") // as psql does with the script's COMMIT
			require.NoError(t, err)
			require.Equal(t, c.becomes, recorded(t, conn), "a second run changes nothing")
			again, err := c.script(ctx, url)
			require.NoError(t, err)
			require.Regexp(t, "^-- Nothing to do.*\n$", again)
		})
	}

	t.Run("without a database is that of an empty one", func(t *testing.T) {
		t.Parallel()
		url, conn := virgin(t)
		script, err := postgres.LaterScript(t.Context(), "")
		require.NoError(t, err)
		empty, err := postgres.LaterScript(t.Context(), url)
		require.NoError(t, err)
		require.Equal(t, empty, script)

		first, err := postgres.MigrationScript(t.Context(), "")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), first)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), script)
		require.ErrorContains(t, err, "this script is for a database that is empty")
		_, err = conn.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.Equal(t, files, recorded(t, conn))
	})
}
