package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// scriptHead has the script refuse a database of another version than it was made for: what it
// would do is done already, or lacks what comes before.
const scriptHead = `-- Migrates a Holdfast database that is %[1]s to %[2]s.
-- One transaction: all of it, or nothing. A second run is refused and changes nothing.
BEGIN;
DO $migrate$
DECLARE
    last text;
BEGIN
    PERFORM pg_advisory_xact_lock(%[3]d);
    %[4]s;
    SELECT coalesce(max(name COLLATE "C"), '') INTO last FROM schema_migrations;
    IF last <> '%[5]s' THEN
        RAISE EXCEPTION 'this script is for a database that is %[1]s, the last migration of this one is "%%"', last
            USING HINT = 'print the script again: holdfast admin migrate --print --database-url URL';
    END IF;
END $migrate$;
`

// MigrationScript is the SQL that brings a database to this version and records it, for operators
// who apply it by hand (N72): what the database lacks, or all where the URL is "".
func MigrationScript(ctx context.Context, url string) (string, error) {
	return current.script(ctx, url)
}

func (s schema) script(ctx context.Context, url string) (string, error) {
	all, err := s.all()
	v := version{missing: all}
	if err == nil && url != "" {
		v, err = s.versionAt(ctx, url)
	}
	if err != nil {
		return "", err
	}
	if len(v.missing) == 0 {
		return "-- Nothing to do: the database is " + v.String() + ".\n", nil
	}
	var out strings.Builder
	to := label(v.missing[len(v.missing)-1].name)
	fmt.Fprintf(&out, scriptHead, v, to, migrateLock, createTable, v.last)
	for _, m := range v.missing {
		fmt.Fprintf(&out, "\n-- %s\nINSERT INTO schema_migrations (name, sha256) VALUES ('%s', '%s');\n%s", label(m.name), m.name, m.sum, m.sql)
	}
	out.WriteString("\nCOMMIT;\n")
	return out.String(), nil
}

func (s schema) versionAt(ctx context.Context, url string) (version, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return version{}, badURL()
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return version{}, failed("connect to postgres", err)
	}
	defer func() { _ = conn.Close(ctx) }() // only read
	return s.version(ctx, conn)
}
