package copies

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// AskedFirst names the policy holders of a peer that this region has, those that the peer may have claimed, and what waits of the
// peer: a stream that began anew does not say how that ended.
func (s *Store) AskedFirst(ctx context.Context, peer fleet.RegionName) ([]fleet.CopyAsked, error) {
	rows, err := s.Q.AskedFirst(ctx, db.AskedFirstParams{Owner: string(peer), Self: s.Region})
	out := make([]fleet.CopyAsked, len(rows))
	for i, r := range rows {
		out[i] = askedOf(db.TemplatesInRow(r))
	}
	return out, err
}

// AskedNext names the templates that this region owns under holders that the peer has, or had when they went, or is to have: it may have
// deleted them.
func (s *Store) AskedNext(ctx context.Context, peer fleet.RegionName) ([]fleet.CopyAsked, error) {
	places, err := s.Q.TemplatePlaces(ctx, s.Region)
	if err != nil {
		return nil, err
	}
	objects := make([]*fleet.Object, len(places))
	for i, p := range places {
		objects[i] = &fleet.Object{
			ObjectKey: fleet.ObjectKey{Kind: fleet.KindTemplate}, Project: fleet.ProjectName(p.Project), Service: p.Service,
		}
		if p.Region != s.Region {
			objects[i].Region = fleet.RegionName(p.Region)
		}
	}
	over, err := s.PoliciesOver(ctx, s.Q, objects)
	if err != nil {
		return nil, err
	}
	in := db.TemplatesInParams{Self: s.Region}
	for i, p := range places {
		if over[objects[i]].Gives(peer) {
			in.Regions, in.Projects, in.Services = append(in.Regions, p.Region), append(in.Projects, p.Project), append(in.Services, p.Service)
		}
	}
	if len(in.Regions) == 0 {
		return nil, nil
	}
	rows, err := s.Q.TemplatesIn(ctx, in)
	out := make([]fleet.CopyAsked, len(rows))
	for i, r := range rows {
		out[i] = askedOf(r)
	}
	return out, err
}

func askedOf(r db.TemplatesInRow) fleet.CopyAsked {
	return fleet.CopyAsked{
		Key:     fleet.CopyKey{Region: fleet.RegionName(r.Region), ObjectKey: fleet.ObjectKey{Kind: fleet.ObjectKind(r.Kind), Scope: r.Scope, Name: r.Name}},
		Version: fleet.CopyVersion{OwnerEpoch: r.OwnerEpoch, Number: r.Number},
	}
}
