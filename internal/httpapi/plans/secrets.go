package plans

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/plans"
)

// secretsFor collects what is marked in the config of an instance by any of the specs that
// a difference shows: those that nodes hold, the one of now and the new one, and by their
// templates, also as they will be.
func (p *planner) secretsFor(ctx context.Context, o *planned, held []plans.HeldRevision) ([]string, error) {
	specs := []fleet.InstanceSpec{o.instance.Spec}
	if o.now != nil {
		var now fleet.InstanceSpec
		if err := json.Unmarshal(o.now.Spec, &now); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "read the spec of %s: %w", o.key, err)
		}
		specs = append(specs, now)
	}
	for _, h := range held {
		if h.Known {
			specs = append(specs, h.Spec)
		}
	}
	marks, templates, err := p.maker.Secrets(ctx, specs...)
	for _, name := range templates {
		if in := p.declared[p.templateKey(name)]; in != nil {
			marks = append(marks, in.template.Spec.Secrets...)
		}
	}
	return marks, err
}
