package httpapi

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// storedLayer is one document of a composition that lies in the store.
type storedLayer struct {
	name string // for errors: where it comes from
	hash fleet.Hash
	size int64
}

// canonical stores the canonical form of one document.
func (s *server) canonical(ctx context.Context, project fleet.ProjectName, doc compose.Layer) (fleet.Content, error) {
	var out fleet.Content
	err := s.flatten.Do(ctx, int64(len(doc.JSON)), func() error {
		text, err := compose.Flatten([]compose.Layer{doc}, s.limits)
		if err != nil {
			return err
		}
		out, err = s.keep(ctx, project, text)
		return err
	})
	return out, err
}

func (s *server) keep(ctx context.Context, project fleet.ProjectName, text []byte) (fleet.Content, error) {
	hash, err := s.store.PutBody(ctx, project, text)
	return fleet.Content{Kind: fleet.ContentJSON, Hash: hash, Size: int64(len(text))}, err
}

// merged stores what layers give when they are merged in order.
func (s *server) merged(ctx context.Context, project fleet.ProjectName, layers []storedLayer) (fleet.Content, error) {
	var total int64
	for _, l := range layers {
		total += l.size
	}
	var out fleet.Content
	err := s.flatten.Do(ctx, total, func() error {
		docs := make([]compose.Layer, len(layers))
		for i, l := range layers {
			text, err := s.load(ctx, l)
			if err != nil {
				return err
			}
			docs[i] = compose.Layer{Name: l.name, JSON: text}
		}
		text, err := compose.Flatten(docs, s.limits)
		if err != nil {
			return err
		}
		out, err = s.keep(ctx, project, text)
		return err
	})
	return out, err
}

func (s *server) load(ctx context.Context, l storedLayer) ([]byte, error) {
	body, err := s.store.OpenBody(ctx, l.hash)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", l.name, err)
	}
	text := make([]byte, body.Size())
	if _, err := io.ReadFull(body, text); err != nil {
		return nil, fmt.Errorf("read %s: %w", l.name, err)
	}
	return text, nil
}

// chain collects the documents of a template: its base, then those of its compositions in
// order, each of which is a template with its own base and compositions.
type chain struct {
	s      *server
	layers []storedLayer
	path   map[fleet.TemplatePin]bool // on the way from the root to here
	// What the documents' templates mark as secret, and which these are.
	secrets   []string
	templates []fleet.TemplateName
}

// templateChain gives the layers of one generation of a template, 0 for the current one,
// and which generation that is.
func (s *server) templateChain(ctx context.Context, name fleet.TemplateName, generation int64) ([]storedLayer, int64, error) {
	c := &chain{s: s, path: map[fleet.TemplatePin]bool{}}
	generation, err := c.add(ctx, fleet.TemplatePin{Name: name, Generation: generation})
	return c.layers, generation, err
}

func (c *chain) add(ctx context.Context, pin fleet.TemplatePin) (int64, error) {
	spec, generation, err := c.s.store.TemplateSpec(ctx, pin.Name, pin.Generation)
	if err != nil {
		return 0, err
	}
	pin.Generation = generation
	switch {
	case c.path[pin]:
		return 0, fleet.Errorf(fleet.Invalid, "template %s refers to itself", pin.Name).At("/template")
	case len(c.layers) >= compose.MaxLayers:
		return 0, compose.TooManyLayers()
	}
	c.path[pin] = true
	defer delete(c.path, pin)
	name := "template " + string(pin.Name) + "@" + strconv.FormatInt(generation, 10)
	c.layers = append(c.layers, storedLayer{name: name, hash: spec.Base.Hash, size: spec.Base.Size})
	c.secrets, c.templates = append(c.secrets, spec.Secrets...), append(c.templates, pin.Name)
	for _, next := range spec.Compositions {
		if _, err := c.add(ctx, next); err != nil {
			return 0, err
		}
	}
	return generation, nil
}
