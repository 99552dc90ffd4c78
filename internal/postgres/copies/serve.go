package copies

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// maxGenerations bounds how many generations are read to find out whether a template is composed of one.
const maxGenerations = 1024

// noPart does not say whether what was asked for exists.
func noPart() error {
	return fleet.Errorf(fleet.NotFound, "no template that is shared with this region, as it is now, is composed of this")
}

// SharedGeneration is a template generation for a peer: only one that a template shared with the peer is composed of.
func (s *Store) SharedGeneration(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, pin fleet.TemplatePin) (json.RawMessage, error) {
	var found json.RawMessage
	err := s.walk(ctx, peer, of, func(p fleet.TemplatePin, raw json.RawMessage, _ fleet.TemplateSpec) bool {
		if p == pin {
			found = raw
		}
		return p == pin
	})
	return found, err
}

// SharedBody is a body for a peer: only one of a template that is shared with the peer, or that such a template merges.
func (s *Store) SharedBody(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, h fleet.Hash) (*postgres.Body, error) {
	err := s.walk(ctx, peer, of, func(_ fleet.TemplatePin, _ json.RawMessage, spec fleet.TemplateSpec) bool {
		return slices.Contains(spec.Bodies(), h)
	})
	if err != nil {
		return nil, err
	}
	b, err := s.OpenBody(ctx, h)
	if fleet.KindOf(err) == fleet.NotFound {
		return nil, fleet.Errorf(fleet.Internal, "body %s of template %s is lost", h, of.Name)
	}
	return b, err
}

// walk goes over a template that a peer has and all that it merges, until want is satisfied.
func (s *Store) walk(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey, want func(fleet.TemplatePin, json.RawMessage, fleet.TemplateSpec) bool) error {
	root, err := s.shared(ctx, peer, of)
	if err != nil {
		return err
	}
	next := []fleet.TemplatePin{{Name: fleet.TemplateNameOf(*root), Generation: root.Generation}}
	for seen := map[fleet.TemplatePin]bool{}; len(next) > 0 && len(seen) <= maxGenerations; {
		level, err := s.generations(ctx, next)
		if err != nil {
			return err
		}
		next = nil
		for _, g := range level {
			if want(g.pin, g.raw, g.spec) {
				return nil
			}
			seen[g.pin] = true
			for _, sub := range g.pin.Name.Pins(g.spec) {
				if !seen[sub] {
					next = append(next, sub)
				}
			}
		}
	}
	return noPart()
}

// generation is one of a template, as it is stored and as it reads.
type generation struct {
	pin  fleet.TemplatePin
	raw  json.RawMessage
	spec fleet.TemplateSpec
}

// generations reads those that pins name, each once.
func (s *Store) generations(ctx context.Context, pins []fleet.TemplatePin) ([]generation, error) {
	p := db.GenerationsParams{}
	for _, pin := range pins {
		p.Names, p.Generations = append(p.Names, string(pin.Name)), append(p.Generations, pin.Generation)
	}
	rows, err := s.Q.Generations(ctx, p)
	if err != nil {
		return nil, err
	}
	out := make([]generation, len(rows))
	for i, r := range rows {
		out[i] = generation{pin: fleet.TemplatePin{Name: fleet.TemplateName(r.Name), Generation: r.Generation}, raw: r.Spec}
		if err := json.Unmarshal(r.Spec, &out[i].spec); err != nil {
			return nil, postgres.Unreadable("the template", err)
		}
	}
	return out, nil
}

// shared finds the template, if this region owns it and the peer has it.
func (s *Store) shared(ctx context.Context, peer fleet.RegionName, of fleet.CopyKey) (*fleet.Object, error) {
	if of.Kind != fleet.KindTemplate || string(peer) == s.Region {
		return nil, noPart()
	}
	o, err := s.born(ctx, of)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, noPart()
	}
	share := o.SyncingNow()
	if share.OwningRegion != s.Region || !slices.Contains(share.Regions, string(peer)) {
		return nil, noPart()
	}
	return o, nil
}

// born finds an object by the region that created it.
func (s *Store) born(ctx context.Context, of fleet.CopyKey) (*fleet.Object, error) {
	if string(of.Region) == s.Region {
		return postgres.Find(ctx, s.Q, of.ObjectKey)
	}
	copied, err := s.CopiesNow(ctx, []fleet.CopyKey{of})
	if err != nil || len(copied) == 0 {
		return nil, err
	}
	return &copied[0], nil
}
