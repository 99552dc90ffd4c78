package declaration

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Reads is what declarations need to know of other objects.
type Reads interface {
	// Object reads an object as it stands: of this region, or the copy of one that key.Region created. Without a region, the name of
	// a shared kind also means the only copy. It is not_found for none.
	Object(ctx context.Context, key fleet.CopyKey) (fleet.Object, error)
	// Template finds what a name means, and its name in specs: illegal_state for a copy that is gone and takes no new pins.
	Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error)
	// TemplateSpec reads one generation, 0 for the current one, and returns its number.
	TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error)
}

// Bodies keeps and gives bodies.
type Bodies interface {
	PutBody(ctx context.Context, project fleet.ProjectName, body []byte) (fleet.Hash, error)
	// PutBodies is PutBody of many, with a few queries.
	PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error)
	// BodySize is not_found unless the project uploaded these bytes.
	BodySize(ctx context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error)
	ReadBody(ctx context.Context, h fleet.Hash) ([]byte, error)
	WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error)
}

// Maker makes declarations of one region.
type Maker struct {
	Reads
	Bodies
	Region      fleet.RegionName // this one
	Definitions *definition.Registry
	// Budget bounds the bytes of JSON that are worked on at once.
	Budget *compose.Budget
	Limits compose.Limits
}

// New makes what the store of a region has the objects and bodies for. The zero Limits are the default ones, and nil definitions the
// embedded ones.
func New(s Store, region fleet.RegionName, definitions *definition.Registry, budget *compose.Budget, limits compose.Limits) *Maker {
	if limits.MaxBytes <= 0 {
		limits = compose.DefaultLimits()
	}
	if definitions == nil {
		definitions = definition.Embedded()
	}
	of := stored{s, region}
	return &Maker{Reads: of, Bodies: of, Region: region, Definitions: definitions, Budget: budget, Limits: limits}
}

// With is the maker of those who see other objects, or other bodies.
func (m *Maker) With(reads Reads, bodies Bodies) *Maker {
	other := *m
	other.Reads, other.Bodies = reads, bodies
	return &other
}

// Of is the object that is declared, the project that it is declared in, and who declares it.
type Of struct {
	fleet.CopyKey
	Project fleet.ProjectName
	By      fleet.ProjectName // that the caller is bound to, "" for none
	// Now is the object as it stands; nil is to be read where it matters.
	Now *fleet.Object
}

func (of Of) sees(project fleet.ProjectName) bool { return of.By == "" || of.By == project }

// uses says whether the caller's objects may refer to one of a project: what is in the default project is shared.
func (of Of) uses(project fleet.ProjectName) bool { return of.By == "" || of.By.Uses(project) }

// now is what a write of the name would change, empty if there is nothing.
func (m *Maker) now(ctx context.Context, of Of) (fleet.Object, error) {
	var o fleet.Object
	var err error
	if of.Now != nil {
		o = *of.Now
	} else {
		o, err = m.Object(ctx, of.CopyKey)
	}
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !of.sees(o.Project) {
		return fleet.Object{ObjectKey: of.ObjectKey}, nil
	}
	return o, err
}

// here reads an object of this region that the one of a declaration refers to.
func (m *Maker) here(ctx context.Context, of Of, key fleet.ObjectKey, field string) (fleet.Object, error) {
	o, err := m.Object(ctx, fleet.CopyKey{Region: m.Region, ObjectKey: key})
	if fleet.KindOf(err) == fleet.NotFound || err == nil && !of.uses(o.Project) {
		return o, fleet.NoPlace(key, field)
	}
	return o, at(field, err)
}

// at gives an error its place.
func at(field string, err error) error {
	var e *fleet.Error
	if errors.As(err, &e) {
		return e.At(field)
	}
	return err
}

// CheckProject refuses a project that the caller may not write in, or that is not there. That of an object of another region is known
// there.
func (m *Maker) CheckProject(ctx context.Context, of Of) error {
	if !of.sees(of.Project) {
		return fleet.Errorf(fleet.Denied, "the token is restricted to project %s", of.By).At("/project")
	}
	if of.Project == fleet.DefaultProject || of.CopyKey.Region != "" && of.CopyKey.Region != m.Region {
		return nil
	}
	key := fleet.ProjectKey(of.Project)
	_, err := m.Object(ctx, fleet.CopyKey{ObjectKey: key})
	if fleet.KindOf(err) == fleet.NotFound {
		return fleet.NoPlace(key, "/project")
	}
	return at("/project", err)
}

// CheckReferences refuses the spec of a plain kind that names what is missing, or what the caller's objects may not refer to.
func (m *Maker) CheckReferences(ctx context.Context, of Of, spec any) error {
	for _, r := range fleet.ReferencesOf(spec) {
		if err := fleet.ValidateName(r.Field, r.Key.Name); err != nil {
			return err
		}
		if _, err := m.here(ctx, of, r.Key, r.Field); err != nil {
			return err
		}
	}
	return nil
}

// Store is the region's truth as far as declarations need it.
type Store interface {
	PutBody(ctx context.Context, project fleet.ProjectName, body []byte) (fleet.Hash, error)
	PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error)
	BodySize(ctx context.Context, project fleet.ProjectName, h fleet.Hash) (int64, error)
	OpenBody(ctx context.Context, h fleet.Hash) (*postgres.Body, error)
	WholeBodies(ctx context.Context, hashes []fleet.Hash) (map[fleet.Hash][]byte, error)
	GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error)
	// GetCopy is conflict for a name without a region that several have.
	GetCopy(ctx context.Context, k fleet.CopyKey) (fleet.Object, error)
	Template(ctx context.Context, name fleet.TemplateName) (fleet.TemplateName, fleet.Object, error)
	TemplateSpec(ctx context.Context, name fleet.TemplateName, generation int64) (fleet.TemplateSpec, int64, error)
}

// stored reads the objects and bodies of the store.
type stored struct {
	Store
	region fleet.RegionName // this one
}

// Object reads it here, or its copy.
func (s stored) Object(ctx context.Context, key fleet.CopyKey) (fleet.Object, error) {
	if key.Region == "" || key.Region == s.region {
		o, err := s.GetObject(ctx, key.ObjectKey)
		if key.Region != "" || fleet.KindOf(err) != fleet.NotFound || !key.Kind.Declared().Shared {
			return o, err
		}
	}
	return s.GetCopy(ctx, key)
}

// ReadBody reads a body whole.
func (s stored) ReadBody(ctx context.Context, h fleet.Hash) ([]byte, error) {
	body, err := s.OpenBody(ctx, h)
	if err != nil {
		return nil, err
	}
	text := make([]byte, body.Size())
	_, err = io.ReadFull(body, text)
	return text, err
}
