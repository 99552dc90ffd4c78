package deliveries

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PinCompositions pins each composition of a template to the generation that it has now.
func PinCompositions(ctx context.Context, q *db.Queries, _ postgres.Write, spec fleet.TemplateSpec) (fleet.TemplateSpec, error) {
	for i, r := range spec.References() {
		o, err := postgres.FindReferred(ctx, q, r.Key)
		if err != nil || o == nil {
			return spec, postgres.OrNotFound(err, "template", r.Key.Name, "")
		}
		spec.Compositions[i].Generation = o.Generation
		if err := postgres.HoldGeneration(ctx, q, spec.Compositions[i], r.Field); err != nil {
			return spec, err
		}
	}
	return spec, postgres.Hold(ctx, q, spec.Bodies()...)
}

// TemplateWritten keeps a template's generation for the specs that pin it.
func TemplateWritten(ctx context.Context, q *db.Queries, _ postgres.Write, _ fleet.TemplateSpec, out postgres.Written) error {
	return q.InsertTemplateGeneration(ctx, db.InsertTemplateGenerationParams{
		Name: string(fleet.TemplateNameOf(*out.After)), Generation: out.After.Generation, Spec: out.After.Spec,
	})
}

// TemplateSpec reads one generation of a template; 0 is the current one, whose number is
// given back. Its pins are by their names here.
func (s *Store) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	if generation == 0 {
		o, err := postgres.FindReferred(ctx, s.Q, fleet.TemplateKey(string(name)))
		if err != nil || o == nil {
			return fleet.TemplateSpec{}, 0, postgres.OrNotFound(err, "template", string(name), "holdfast get templates")
		}
		generation = o.Generation
	}
	spec, err := postgres.TemplateGeneration(ctx, s.Q, fleet.TemplatePin{Name: name, Generation: generation})
	if err != nil {
		return fleet.TemplateSpec{}, 0, err
	}
	return spec, generation, nil
}

// UnusedTemplate refuses to delete a template that instances use.
func UnusedTemplate(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	n, err := q.InstancesOfTemplate(ctx, key.Name)
	return postgres.UsedBy(n, err, key)
}
