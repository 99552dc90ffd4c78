package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// copyStatuses says of copies whether they are what their owners declare. What an object is at lies with its owner.
func (s *server) copyStatuses(ctx context.Context, page []fleet.Object) ([]any, error) {
	keys := make([]fleet.CopyKey, len(page))
	for i, o := range page {
		keys[i] = fleet.CopyKey{Region: o.Region, ObjectKey: o.ObjectKey}
	}
	all, err := s.store.SeeCopies(ctx, keys)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(page))
	for i, key := range keys {
		seen := all[key]
		if seen.Owner == s.region { // what eu created and this region owns is declared here
			seen.Lag = 0
		}
		synced := decide.SyncedCopy(seen)
		out[i] = api.CopyStatus{Synced: &synced}
	}
	return out, nil
}
