package copies

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// SeeCopies reads what decides whether copies are what their owners declare. Those that are gone are missing.
func (s *Store) SeeCopies(ctx context.Context, keys []fleet.CopyKey) (map[fleet.CopyKey]decide.SyncedCopySeen, error) {
	c := columnsOf(keys)
	rows, err := s.Q.SeeCopies(ctx, db.SeeCopiesParams{Regions: c.regions, Kinds: c.kinds, Scopes: c.scopes, Names: c.names})
	if err != nil {
		return nil, err
	}
	lags, err := s.Lags(ctx)
	out := make(map[fleet.CopyKey]decide.SyncedCopySeen, len(rows))
	for _, r := range rows {
		seen := decide.SyncedCopySeen{Now: r.Now, Owner: fleet.RegionName(r.Owner), Written: r.UpdatedAt, Lag: -1}
		if lag, known := lags[seen.Owner]; known {
			seen.Lag = lag
		}
		if r.Aside != "" {
			seen.Aside, seen.AsideFor = r.AsideAt, r.Aside
		}
		if r.Waits {
			seen.Waits, seen.Problem = r.WaitsSince, r.Problem
		}
		out[fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}}] = seen
	}
	return out, err
}
