package region

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
)

// Migrate is who migrates the database to this version's schema (N72).
type Migrate string

const (
	// MigrateAuto has each server do it when it starts.
	MigrateAuto Migrate = "auto"
	// MigrateNever leaves it to an operator; servers only check.
	MigrateNever Migrate = "never"
)

// ParseMigrate parses the flag.
func ParseMigrate(text string) (Migrate, error) {
	switch m := Migrate(text); m {
	case MigrateAuto, MigrateNever:
		return m, nil
	}
	return "", fleet.Errorf(fleet.Invalid, "unknown --migrate %.40q; use auto or never", text)
}

// openStore retries while the database is unavailable.
func (s *server) openStore(ctx context.Context) error {
	open := store.Open
	if s.cfg.Migrate == MigrateNever {
		open = store.OpenMigrated
	}
	return insist(ctx, s.log, "postgres", func(ctx context.Context) (err error) {
		s.store, err = open(ctx, s.cfg.DatabaseURL, s.cfg.Region)
		return err
	})
}
