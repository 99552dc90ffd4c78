package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// storedKind is what the store does for a kind of objects that start no work, beside writing and removing the object.
// Each part may be nil.
type storedKind struct {
	// check refuses a spec by what else is stored, or completes it.
	check func(ctx context.Context, q *db.Queries, w Write, spec any) (any, error)
	// written follows a write.
	written func(ctx context.Context, q *db.Queries, w Write, spec any, out Written) error
	// unused refuses to delete an object that is in use.
	unused func(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error
	// removed follows a deletion.
	removed func(ctx context.Context, q *db.Queries, w Write, o *fleet.Object) error
}

// storedKinds has a row for each kind that needs more than the object. Instances, deployments and fleet changes
// are written by requests of their own.
func storedKinds() map[fleet.ObjectKind]storedKind {
	return map[fleet.ObjectKind]storedKind{
		fleet.KindProject: {unused: unusedProject},
		fleet.KindSite: {
			check:   checked(keepOne),
			written: following(siteWritten), unused: unusedSite,
			removed: func(ctx context.Context, q *db.Queries, w Write, o *fleet.Object) error {
				return setNodes(ctx, q, w, o, fleet.SiteSpec{})
			},
		},
		fleet.KindPool: {
			written: following(poolWritten),
			unused: func(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
				return unnamed(ctx, q, "pools", key)
			},
		},
		fleet.KindTemplate: {
			check: checked(pinCompositions), written: following(templateWritten), unused: unusedTemplate,
		},
		fleet.KindFleet: {unused: notUnderWay},
		fleet.KindDeployment: {unused: func(_ context.Context, _ *db.Queries, key fleet.ObjectKey) error {
			return fleet.Errorf(fleet.Invalid, "%s cannot be deleted this way: it ends with its replicas", key).WithHint("destroy it")
		}},
	}
}

func checked[T any](f func(context.Context, *db.Queries, Write, T) (T, error)) func(context.Context, *db.Queries, Write, any) (any, error) {
	return func(ctx context.Context, q *db.Queries, w Write, spec any) (any, error) {
		return f(ctx, q, w, spec.(T))
	}
}

func following[T any](f func(context.Context, *db.Queries, Write, T, Written) error) func(context.Context, *db.Queries, Write, any, Written) error {
	return func(ctx context.Context, q *db.Queries, w Write, spec any, out Written) error {
		return f(ctx, q, w, spec.(T), out)
	}
}

// Declare writes an object that starts no work. The spec is of the type of its kind: ProjectSpec, SiteSpec, PoolSpec
// or TemplateSpec. What it refers to is locked too, and has to be declared.
func (s *Store) Declare(ctx context.Context, w Write, spec any) (Written, error) {
	kind := storedKinds()[w.Key.Kind]
	refers := fleet.ReferencesOf(spec)
	shared := make([]fleet.ObjectKey, len(refers))
	for i, r := range refers {
		shared[i] = r.Key
	}
	out, err := s.change(ctx, w, shared, func(q *db.Queries, out *Started) (err error) {
		if err := allDeclared(ctx, q, refers); err != nil {
			return err
		}
		spec := spec
		if kind.check != nil {
			if spec, err = kind.check(ctx, q, w, spec); err != nil {
				return err
			}
		}
		if out.Written, err = s.write(ctx, q, w, spec); err != nil || kind.written == nil {
			return err
		}
		return kind.written(ctx, q, w, spec, out.Written)
	})
	return out.Written, err
}

func allDeclared(ctx context.Context, q *db.Queries, refers []fleet.Reference) error {
	for _, r := range refers {
		o, err := find(ctx, q, r.Key)
		if err != nil {
			return err
		}
		if o == nil || o.DeletingSince != nil {
			return fleet.NoPlace(r.Key, r.Field)
		}
	}
	return nil
}

// DeleteDeclared deletes an object that no node has to confirm: an unused project or
// template, a site without instances, a fleet change that is not under way.
func (s *Store) DeleteDeclared(ctx context.Context, w Write) (Written, error) {
	kind := storedKinds()[w.Key.Kind]
	out, err := s.change(ctx, w, nil, func(q *db.Queries, out *Started) error {
		o, err := find(ctx, q, w.Key)
		if err != nil || o == nil {
			return orNotFound(err, string(w.Key.Kind), w.Key.Name, "holdfast get "+w.Key.Kind.Declared().Plural)
		}
		if err := checkMatch(w, o); err != nil {
			return err
		}
		if kind.unused != nil {
			if err := kind.unused(ctx, q, w.Key); err != nil {
				return err
			}
		}
		if kind.removed != nil {
			if err := kind.removed(ctx, q, w, o); err != nil {
				return err
			}
		}
		out.Written = Written{Before: o, Changed: true}
		return remove(ctx, q, w.Actor, o)
	})
	return out.Written, err
}

// usedBy refuses to delete an object that instances use.
func usedBy(n int64, err error, key fleet.ObjectKey) error {
	if err != nil || n == 0 {
		return failed("look for uses", err)
	}
	return fleet.Errorf(fleet.IllegalState, "%d instances still use %s", n, key).WithHint("delete or change them first")
}
