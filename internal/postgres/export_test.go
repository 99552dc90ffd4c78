package postgres

import (
	"context"
	"testing/fstest"
)

// Migrations gives the paths of this version's, in their order.
func Migrations() ([]string, error) { return current.names() }

// LaterMigrations gives those of a next version, which has one more that is made for the tests.
func LaterMigrations() ([]string, error) { return later().names() }

func (s schema) names() ([]string, error) {
	all, err := s.all()
	var names []string
	for _, m := range all {
		names = append(names, m.name)
	}
	return names, err
}

func later() schema {
	files := fstest.MapFS{"migrations/9999_made.sql": {Data: []byte("ALTER TABLE nodes ADD COLUMN made integer NOT NULL DEFAULT 7;\n")}}
	all, err := current.all()
	if err != nil {
		return schema{fstest.MapFS{}}
	}
	for _, m := range all {
		files[m.name] = &fstest.MapFile{Data: []byte(m.sql)}
	}
	return schema{files}
}

// OpenLater opens a database as the next version does.
func OpenLater(ctx context.Context, url, region string) (*Store, error) {
	return open(ctx, url, region, Parts{}, later().migrate)
}

// OpenLaterMigrated does so where an operator migrates.
func OpenLaterMigrated(ctx context.Context, url, region string) (*Store, error) {
	return open(ctx, url, region, Parts{}, later().checkMigrated)
}

// LaterScript is what the next version's admin migrate --print prints.
func LaterScript(ctx context.Context, url string) (string, error) { return later().script(ctx, url) }
