package declaration

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/fleets"
)

// fleetGroup bounds the bytes of instances that are composed at once, and of bodies that are
// stored at once.
const fleetGroup = fleet.MaxBatchBytes

// FleetChanges composes what a fleet change makes of instances (N98, N106): of each the new
// spec and its flattened content, exactly as a PUT of that spec would give. One that cannot
// be changed has the reason in Refused; an error is about the region, and of none of them. All
// bodies are stored when it returns.
func (m *Maker) FleetChanges(ctx context.Context, spec fleet.FleetSpec, targets []fleets.FleetTarget) ([]deliveries.BatchChange, error) {
	c := &fleetComposer{
		m: m, change: spec.Change, chains: map[fleet.TemplatePin]fleetChain{}, bases: map[fleet.TemplatePin]fleetBase{},
		runs: map[string]fleetRunSection{}, kept: keptBodies{m: m, seen: map[keptBody]bool{}},
	}
	out := make([]deliveries.BatchChange, len(targets))
	var group []*fleetComposing
	var weight int64
	for i, t := range targets {
		out[i] = deliveries.BatchChange{Instance: t.Instance, Generation: t.Generation, Revision: t.Revision, Spec: t.Spec, Refused: t.Refused}
		next, err := c.prepare(ctx, t, &out[i])
		if err != nil {
			return nil, err
		}
		if next == nil {
			continue
		}
		if len(group) > 0 && weight+next.weight > fleetGroup {
			if err := c.composeAll(ctx, group, weight); err != nil {
				return nil, err
			}
			group, weight = nil, 0
		}
		group, weight = append(group, next), weight+next.weight
	}
	return out, c.composeAll(ctx, group, weight)
}

// fleetComposer keeps what many instances of one call have in common.
type fleetComposer struct {
	m      *Maker
	change fleet.FleetChange
	chains map[fleet.TemplatePin]fleetChain
	bases  map[fleet.TemplatePin]fleetBase
	based  int64 // bytes of bases
	runs   map[string]fleetRunSection
	kept   keptBodies
}

// fleetChain is where the documents of a template lie, or why there are none.
type fleetChain struct {
	layers     []Layer
	generation int64
	size       int64
	err        error
}

// fleetBase is what they come to.
type fleetBase struct {
	*compose.Base
	err error
}

type fleetRunSection struct {
	text json.RawMessage
	hash fleet.Hash
}

// fleetComposing is one instance whose change is to be composed.
type fleetComposing struct {
	change  *deliveries.BatchChange
	project fleet.ProjectName
	pin     fleet.TemplatePin // zero without a template
	weight  int64
}

// prepare fills in all of a change that takes no document; nil when nothing is left to do.
func (c *fleetComposer) prepare(ctx context.Context, t fleets.FleetTarget, change *deliveries.BatchChange) (*fleetComposing, error) {
	switch {
	case t.Refused != nil:
		return nil, nil
	case t.Restore != nil:
		change.Spec, change.Content = t.Restore.Spec, t.Restore.Content
		change.RunJSON, change.RunHash = t.Restore.RunJSON, t.Restore.RunHash
		return nil, nil
	case t.Revision != 0:
		return nil, nil // it was written before
	}
	next := &fleetComposing{change: change, project: t.Project}
	err := c.prepareSpec(ctx, next)
	if fleet.OfRegion(err) || ctx.Err() != nil {
		return nil, orEnded(ctx, err)
	}
	if err != nil {
		change.Refused = err
		return nil, nil
	}
	return next, nil
}

// orEnded is the error of a call whose context ended, whatever that made fail.
func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fleet.Errorf(fleet.Unavailable, "compose the changes: %w", context.Cause(ctx))
	}
	return err
}

func (c *fleetComposer) prepareSpec(ctx context.Context, next *fleetComposing) error {
	spec := &next.change.Spec
	switch {
	case c.change.Template != "" && spec.Template != c.change.Template:
		return fleet.Errorf(fleet.Invalid, "instance %s does not use template %s", next.change.Instance, c.change.Template).At("/template")
	case spec.Artifact != nil:
		return fleet.Errorf(fleet.Invalid, "instance %s has an artifact, which no patch can change", next.change.Instance).At("/artifact")
	case c.change.Template != "":
		spec.TemplateGeneration = c.change.TemplateGeneration
	}
	if err := c.prepareRun(next); err != nil {
		return err
	}
	for _, doc := range []*fleet.Content{spec.Config, spec.Overrides, c.change.Patch} {
		if doc != nil {
			next.weight += doc.Size
		}
	}
	if spec.Template == "" {
		return nil
	}
	next.pin = fleet.TemplatePin{Name: spec.Template, Generation: spec.TemplateGeneration}
	chain, known := c.chains[next.pin]
	if !known {
		var of Chain
		chain.generation, chain.err = of.Add(ctx, c.m, next.pin)
		chain.layers, chain.size = of.Layers, WeightOf(of.Layers)
		c.chains[next.pin] = chain
	}
	spec.TemplateGeneration = chain.generation
	next.weight += chain.size
	return chain.err
}

// prepareRun makes equal run sections once.
func (c *fleetComposer) prepareRun(next *fleetComposing) error {
	change := next.change
	if change.Spec.Run == nil {
		return nil
	}
	value, err := json.Marshal(change.Spec.Run)
	if err != nil {
		return fleet.Errorf(fleet.Invalid, "the run section cannot be written: %w", err).At("/run")
	}
	key := string(next.project) + " " + string(value)
	made, known := c.runs[key]
	if !known {
		if made.text, made.hash, err = declare.RunSection(change.Spec.Run, next.project); err != nil {
			return err
		}
		c.runs[key] = made
	}
	change.RunJSON, change.RunHash = made.text, made.hash
	return nil
}

// composeAll composes a group within its share of the memory.
func (c *fleetComposer) composeAll(ctx context.Context, group []*fleetComposing, weight int64) error {
	if len(group) == 0 {
		return nil
	}
	defer func() {
		if c.based > fleetGroup { // memory kept between groups counts for no caller
			clear(c.bases)
			c.based = 0
		}
	}()
	return c.m.Budget.Do(ctx, weight+c.based, func() error {
		docs, err := c.read(ctx, group)
		if err != nil {
			return err
		}
		for _, next := range group {
			err := c.compose(ctx, docs, next)
			if fleet.OfRegion(err) || ctx.Err() != nil {
				return orEnded(ctx, err)
			}
			next.change.Refused = err
			if c.kept.size >= fleetGroup {
				if err := c.kept.flush(ctx); err != nil {
					return err
				}
			}
		}
		return c.kept.flush(ctx)
	})
}

// compose gives one change its content, and its spec the names of its documents.
func (c *fleetComposer) compose(ctx context.Context, docs fleetDocuments, next *fleetComposing) error {
	spec := &next.change.Spec
	if spec.Template == "" {
		text, err := c.patched(ctx, docs, Layer{Name: "/config", Hash: spec.Config.Hash, Size: spec.Config.Size})
		if err != nil {
			return err
		}
		content := c.kept.keep(next.project, text)
		spec.Config, next.change.Content = &content, content
		return nil
	}
	overrides, err := c.overrides(ctx, docs, next)
	if err != nil {
		return err
	}
	base, err := c.base(ctx, docs, next.pin)
	if err != nil {
		return err
	}
	var text []byte
	if overrides == nil {
		text, err = base.Flatten()
	} else {
		text, err = base.With(compose.Layer{Name: "/overrides", JSON: overrides})
	}
	if err != nil {
		return err
	}
	next.change.Content = c.kept.keep(next.project, text)
	return nil
}

// overrides are those of the new spec, nil when it has none.
func (c *fleetComposer) overrides(ctx context.Context, docs fleetDocuments, next *fleetComposing) ([]byte, error) {
	now := next.change.Spec.Overrides
	if c.change.Patch == nil && now == nil {
		return nil, nil
	}
	from := Layer{Name: "/overrides"}
	if now != nil {
		from.Hash, from.Size = now.Hash, now.Size
	}
	text, err := c.patched(ctx, docs, from)
	if err != nil || now == nil && string(text) == "{}" {
		return nil, err // a patch that only removes makes no overrides
	}
	content := c.kept.keep(next.project, text)
	next.change.Spec.Overrides = &content
	return text, nil
}

// patched is a document of an instance after the patch; without a hash it is empty before.
func (c *fleetComposer) patched(ctx context.Context, docs fleetDocuments, l Layer) ([]byte, error) {
	text := []byte("{}")
	var err error
	if l.Hash != "" {
		if text, err = docs.load(ctx, c.m, l); err != nil {
			return nil, err
		}
	}
	layers := []compose.Layer{{Name: l.Name, JSON: text}}
	if p := c.change.Patch; p != nil {
		const name = "/change/patch"
		patch, err := docs.load(ctx, c.m, Layer{Name: name, Hash: p.Hash, Size: p.Size})
		if err != nil {
			return nil, err
		}
		layers = append(layers, compose.Layer{Name: name, JSON: patch})
	}
	return compose.Flatten(layers, c.m.Limits)
}

// base merges the documents of a template once for all instances that pin it.
func (c *fleetComposer) base(ctx context.Context, docs fleetDocuments, pin fleet.TemplatePin) (*compose.Base, error) {
	made, known := c.bases[pin]
	if known {
		return made.Base, made.err
	}
	layers := make([]compose.Layer, 0, len(c.chains[pin].layers))
	for _, l := range c.chains[pin].layers {
		text, err := docs.load(ctx, c.m, l)
		if err != nil {
			return nil, err
		}
		layers = append(layers, compose.Layer{Name: l.Name, JSON: text})
	}
	if made.Base, made.err = compose.NewBase(layers, c.m.Limits); made.err == nil {
		c.based += made.Size()
	}
	c.bases[pin] = made
	return made.Base, made.err
}
