package deliveries

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PinCompositions pins each composition of a template to the generation that it has now.
func PinCompositions(ctx context.Context, q *db.Queries, _ postgres.Write, spec fleet.TemplateSpec) (fleet.TemplateSpec, error) {
	for i, r := range spec.References() {
		o, err := postgres.Find(ctx, q, r.Key)
		if err != nil || o == nil {
			return spec, postgres.OrNotFound(err, "template", r.Key.Name, "")
		}
		spec.Compositions[i].Generation = o.Generation
	}
	return spec, postgres.Hold(ctx, q, spec.Bodies()...)
}

// TemplateWritten keeps a template's generation for the specs that pin it.
func TemplateWritten(ctx context.Context, q *db.Queries, w postgres.Write, _ fleet.TemplateSpec, out postgres.Written) error {
	return postgres.Failed("keep the template's generation", q.InsertTemplateGeneration(ctx, db.InsertTemplateGenerationParams{
		Name: w.Key.Name, Generation: out.After.Generation, Spec: out.After.Spec,
	}))
}

// TemplateSpec reads one generation of a template; 0 is the current one, whose number is
// given back.
func (s *Store) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	var spec fleet.TemplateSpec
	if generation == 0 {
		o, err := postgres.Find(ctx, s.Q, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(name)})
		if err != nil || o == nil {
			return spec, 0, postgres.OrNotFound(err, "template", string(name), "holdfast get templates")
		}
		generation = o.Generation
	}
	p := db.GetTemplateGenerationParams{Name: string(name), Generation: generation}
	raw, err := s.Q.GetTemplateGeneration(ctx, p)
	if err != nil {
		return spec, 0, postgres.MissingTemplate(err, name, "/templateGeneration")
	}
	return spec, generation, postgres.Failed("read the template", json.Unmarshal(raw, &spec))
}

// UnusedTemplate refuses to delete a template that instances use.
func UnusedTemplate(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	n, err := q.InstancesOfTemplate(ctx, key.Name)
	return postgres.UsedBy(n, err, key)
}
