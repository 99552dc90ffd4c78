package declaration

import (
	"context"
	"fmt"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Layer is one document of a config: as it was sent, or as it is stored.
type Layer struct {
	Name string // for errors: where it comes from
	Hash fleet.Hash
	Size int64
	Doc  []byte // nil when it is stored
}

// WeightOf is what layers take together.
func WeightOf(layers []Layer) (total int64) {
	for _, l := range layers {
		total += l.Size
	}
	return total
}

// Chain is the documents of a template: its base, then those of its compositions in order, each of which is a template with its own base
// and compositions.
type Chain struct {
	Layers []Layer
	// What the documents' templates mark as secret, and which these are.
	Secrets   []string
	Templates []fleet.TemplateName
	path      map[fleet.TemplatePin]bool // on the way from the root to here
}

// Add adds the documents of one generation of a template, 0 for the current one, and gives the number of that.
func (c *Chain) Add(ctx context.Context, from Reads, pin fleet.TemplatePin) (int64, error) {
	spec, generation, err := from.TemplateSpec(ctx, pin.Name, pin.Generation)
	if err != nil {
		return 0, err
	}
	pin.Generation = generation
	switch {
	case c.path[pin]:
		return 0, fleet.Errorf(fleet.Invalid, "template %s refers to itself", pin.Name).At("/template")
	case len(c.Layers) >= compose.MaxLayers:
		return 0, compose.TooManyLayers()
	}
	if c.path == nil {
		c.path = map[fleet.TemplatePin]bool{}
	}
	c.path[pin] = true
	defer delete(c.path, pin)
	name := "template " + string(pin.Name) + "@" + strconv.FormatInt(generation, 10)
	c.Layers = append(c.Layers, Layer{Name: name, Hash: spec.Base.Hash, Size: spec.Base.Size})
	c.Secrets, c.Templates = append(c.Secrets, spec.Secrets...), append(c.Templates, pin.Name)
	for _, next := range spec.Compositions {
		if _, err := c.Add(ctx, from, next); err != nil {
			return 0, err
		}
	}
	return generation, nil
}

// Load reads a stored body; what names it in an error.
func (m *Maker) Load(ctx context.Context, what string, hash fleet.Hash) ([]byte, error) {
	text, err := m.ReadBody(ctx, hash)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return text, nil
}

// Canonical stores the canonical form of one document.
func (m *Maker) Canonical(ctx context.Context, project fleet.ProjectName, doc compose.Layer) (fleet.Content, error) {
	return m.merged(ctx, project, []Layer{{Name: doc.Name, Size: int64(len(doc.JSON)), Doc: doc.JSON}})
}

// merged stores what layers give when they are merged in order.
func (m *Maker) merged(ctx context.Context, project fleet.ProjectName, layers []Layer) (out fleet.Content, err error) {
	err = m.Budget.Do(ctx, WeightOf(layers), func() error {
		text, err := m.Flatten(ctx, layers)
		if err != nil {
			return err
		}
		hash, err := m.PutBody(ctx, project, text)
		out = fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(text))}
		return err
	})
	return out, err
}

// Flatten merges layers in order, within what the caller took of the budget.
func (m *Maker) Flatten(ctx context.Context, layers []Layer) ([]byte, error) {
	docs := make([]compose.Layer, len(layers))
	for i, l := range layers {
		docs[i] = compose.Layer{Name: l.Name, JSON: l.Doc}
		if l.Doc != nil {
			continue
		}
		text, err := m.Load(ctx, l.Name, l.Hash)
		if err != nil {
			return nil, err
		}
		docs[i].JSON = text
	}
	return compose.Flatten(docs, m.Limits)
}
