package store

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// About is what this region tells its peers of itself: what its servers declared last, and which builds run.
func (s *Store) About(ctx context.Context) (fleet.RegionAbout, error) {
	about := fleet.RegionAbout{Builds: map[string]int{}}
	o, err := s.GetObject(ctx, fleet.RegionKey(fleet.RegionName(s.Region)))
	if err != nil && fleet.KindOf(err) != fleet.NotFound { // a server declares it when it starts
		return about, err
	}
	if err == nil {
		about.UID, about.Generation = o.UID, o.Generation
		if err := json.Unmarshal(o.Spec, &about.Spec); err != nil {
			return about, postgres.Unreadable("the region's spec", err)
		}
	}
	all, err := s.Servers(ctx)
	for _, server := range all {
		about.Builds[server.Build]++
	}
	return about, err
}
