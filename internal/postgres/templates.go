package postgres

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// FindReferred finds what a spec refers to: an object of this region, or the copy of a template; nil if it is neither.
func FindReferred(ctx context.Context, q *db.Queries, k fleet.ObjectKey) (*fleet.Object, error) {
	region, name, copied := fleet.TemplateName(k.Name).Copy()
	if !copied || k.Kind != fleet.KindTemplate {
		return Find(ctx, q, k)
	}
	r, err := q.FindCopy(ctx, db.FindCopyParams{Kind: string(k.Kind), Name: name, Region: string(region)})
	if NoRows(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o := copiedTemplate(r)
	return &o, nil
}

// copiedTemplate is what the use of a template takes of its copy.
func copiedTemplate(r db.Copy) fleet.Object {
	return fleet.Object{
		ObjectKey: fleet.TemplateKey(r.Name), Region: fleet.RegionName(r.Region), UID: r.Uid, Project: fleet.ProjectName(r.Project),
		Generation: r.Generation, Spec: r.Spec, DeletingSince: r.DeletingSince,
	}
}

// Template finds the template that a name means, and its name in specs: one of this region, or a copy. A plain name also
// means the only copy, if this region has no such template. It is illegal_state for a copy that is gone but still in use: it
// takes no new pins.
func (s *Store) Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error) {
	region, plain, copied := name.Copy()
	if string(region) == s.Region {
		name, region, copied = fleet.TemplateName(plain), "", false
	}
	if !copied {
		o, err := Find(ctx, s.Q, fleet.TemplateKey(plain))
		if err != nil {
			return "", fleet.Object{}, err
		}
		if o != nil {
			return name, *o, nil
		}
	}
	rows, err := s.Q.FindCopies(ctx, db.FindCopiesParams{Kind: string(fleet.KindTemplate), Name: plain, Region: string(region)})
	switch {
	case err != nil:
		return "", fleet.Object{}, err
	case len(rows) == 0:
		return "", fleet.Object{}, s.noTemplate(ctx, name)
	case len(rows) > 1:
		return "", fleet.Object{}, fleet.Errorf(fleet.Conflict, "several regions have template %s", plain).
			WithHint("name one: " + rows[0].Region + "/" + plain + " or " + rows[1].Region + "/" + plain)
	}
	o := copiedTemplate(rows[0])
	return fleet.CopiedTemplate(o.Region, o.Name), o, nil
}

func (s *Store) noTemplate(ctx context.Context, name fleet.TemplateName) error {
	left, err := s.Q.LeftGenerations(ctx, string(name))
	if err != nil || len(left) == 0 {
		return cmp.Or(err, OrNotFound(nil, "template", string(name), "holdfast get templates"))
	}
	return fleet.Errorf(fleet.IllegalState, "the copy of template %s was removed: what uses it keeps its generation, and nothing new can use it", left[0].Name).
		WithHint("have its region share it again, or use another template")
}

// TemplateGeneration reads one generation of a template; its pins are by their names here.
func TemplateGeneration(ctx context.Context, q *db.Queries, pin fleet.TemplatePin) (fleet.TemplateSpec, error) {
	raw, err := q.GetTemplateGeneration(ctx, db.GetTemplateGenerationParams{Name: string(pin.Name), Generation: pin.Generation})
	if err != nil {
		return fleet.TemplateSpec{}, MissingTemplate(err, pin.Name, "/templateGeneration")
	}
	var spec fleet.TemplateSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return spec, Unreadable("the template", err)
	}
	if len(spec.Compositions) > 0 {
		spec.Compositions = pin.Name.Pins(spec)
	}
	return spec, nil
}

// HoldGeneration refuses a pin of a generation that is not here, and keeps a copied one from being collected until the
// transaction has committed the pin. Generations of this region stay for ever.
func HoldGeneration(ctx context.Context, q *db.Queries, pin fleet.TemplatePin, field string) error {
	if _, _, copied := pin.Name.Copy(); !copied {
		_, err := q.GetTemplateGeneration(ctx, db.GetTemplateGenerationParams{Name: string(pin.Name), Generation: pin.Generation})
		if err != nil {
			return MissingTemplate(err, pin.Name, field)
		}
		return nil
	}
	here, err := q.GenerationsHere(ctx, db.GenerationsHereParams{Names: []string{string(pin.Name)}, Generations: []int64{pin.Generation}})
	if err == nil && len(here) == 0 {
		return MissingTemplate(pgx.ErrNoRows, pin.Name, field)
	}
	return err
}
