package postgres

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// pinCompositions pins each composition of a template to the generation that it has now.
func pinCompositions(ctx context.Context, q *db.Queries, _ Write, spec fleet.TemplateSpec) (fleet.TemplateSpec, error) {
	for i, r := range spec.References() {
		o, err := find(ctx, q, r.Key)
		if err != nil || o == nil {
			return spec, orNotFound(err, "template", r.Key.Name, "")
		}
		spec.Compositions[i].Generation = o.Generation
	}
	return spec, hold(ctx, q, spec.Bodies()...)
}

// templateWritten keeps a template's generation for the specs that pin it.
func templateWritten(ctx context.Context, q *db.Queries, w Write, _ fleet.TemplateSpec, out Written) error {
	return failed("keep the template's generation", q.InsertTemplateGeneration(ctx, db.InsertTemplateGenerationParams{
		Name: w.Key.Name, Generation: out.After.Generation, Spec: out.After.Spec,
	}))
}

// TemplateSpec reads one generation of a template; 0 is the current one, whose number is
// given back.
func (s *Store) TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error) {
	var spec fleet.TemplateSpec
	if generation == 0 {
		o, err := find(ctx, s.q, fleet.ObjectKey{Kind: fleet.KindTemplate, Name: string(name)})
		if err != nil || o == nil {
			return spec, 0, orNotFound(err, "template", string(name), "holdfast get templates")
		}
		generation = o.Generation
	}
	p := db.GetTemplateGenerationParams{Name: string(name), Generation: generation}
	raw, err := s.q.GetTemplateGeneration(ctx, p)
	if err != nil {
		return spec, 0, missingTemplate(err, name, "/templateGeneration")
	}
	return spec, generation, failed("read the template", json.Unmarshal(raw, &spec))
}

func unusedTemplate(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	n, err := q.InstancesOfTemplate(ctx, key.Name)
	return usedBy(n, err, key)
}
