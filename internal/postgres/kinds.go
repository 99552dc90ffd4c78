package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// StoredKind is what the store does for a kind of objects that start no work, beside writing and removing the object.
// Each part may be nil.
type StoredKind struct {
	// Check refuses a spec by what else is stored, or completes it.
	Check func(ctx context.Context, q *db.Queries, w Write, spec any) (any, error)
	// Written follows a write.
	Written func(ctx context.Context, q *db.Queries, w Write, spec any, out Written) error
	// Unused refuses to delete an object that is in use.
	Unused func(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error
	// Removed follows a deletion.
	Removed func(ctx context.Context, q *db.Queries, w Write, o *fleet.Object) error
}

// unused refuses to delete an object that is in use.
func (k StoredKind) unused(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	key := o.ObjectKey
	switch {
	case o.Region != "" && o.Kind.Declared().Holder:
		return unusedCopy(ctx, q, o)
	case o.Kind.Declared().Holder:
		if err := unusedElsewhere(ctx, q, o); err != nil {
			return err
		}
	case o.Kind == fleet.KindTemplate:
		key.Name = string(fleet.TemplateNameOf(*o))
	}
	if err := Unreferred(ctx, q, key); err != nil || k.Unused == nil {
		return err
	}
	return k.Unused(ctx, q, key)
}

// unusedCopy refuses to delete a holder that another region created while something known belongs to it.
func unusedCopy(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	uses, err := q.UsesOfCopiedHolder(ctx, db.UsesOfCopiedHolderParams{
		OfKind: string(o.Kind), OfName: o.Name, OfRegion: string(o.Region), Project: string(o.Project),
	})
	if err != nil {
		return err
	}
	return unused(o, uses)
}

// unusedElsewhere refuses to delete a holder of this region while something known that other regions created belongs to it.
func unusedElsewhere(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	rows, err := q.UsesElsewhere(ctx, db.UsesElsewhereParams{OfKind: string(o.Kind), OfName: o.Name, Project: string(o.Project)})
	if err != nil {
		return err
	}
	uses := make([]db.UsesOfCopiedHolderRow, len(rows))
	for i, r := range rows {
		uses[i] = db.UsesOfCopiedHolderRow(r)
	}
	return unused(o, uses)
}

func unused(o *fleet.Object, uses []db.UsesOfCopiedHolderRow) error {
	if len(uses) == 0 {
		return nil
	}
	counts := make([]string, len(uses))
	for i, u := range uses {
		counts[i] = fmt.Sprintf("%d %ss", u.Uses, u.Kind)
	}
	return fleet.Errorf(fleet.IllegalState, "%s still has %s", o, strings.Join(counts, ", ")).WithHint("delete them first")
}

// Parts are what the areas of the store add to the mechanisms of this package.
type Parts struct {
	// Kinds has a row for each kind of objects that needs more than the object.
	Kinds map[fleet.ObjectKind]StoredKind
	// Cancels has what the cancel of an operation does, by its kind; for others the entity decides.
	Cancels map[fleet.OperationKind]func(context.Context, *db.Queries, *Operation) error
}

// Checked is a Check of the spec's own type.
func Checked[T any](f func(context.Context, *db.Queries, Write, T) (T, error)) func(context.Context, *db.Queries, Write, any) (any, error) {
	return func(ctx context.Context, q *db.Queries, w Write, spec any) (any, error) {
		return f(ctx, q, w, spec.(T))
	}
}

// Following is a Written of the spec's own type.
func Following[T any](f func(context.Context, *db.Queries, Write, T, Written) error) func(context.Context, *db.Queries, Write, any, Written) error {
	return func(ctx context.Context, q *db.Queries, w Write, spec any, out Written) error {
		return f(ctx, q, w, spec.(T), out)
	}
}

// Declare writes an object that starts no work. The spec is of the type of its kind: ProjectSpec, SiteSpec, PoolSpec
// or TemplateSpec. What it refers to is locked too, and has to be declared.
func (s *Store) Declare(ctx context.Context, w Write, spec any) (Written, error) {
	kind := s.areas.Kinds[w.Key.Kind]
	refers := fleet.ReferencesOf(spec)
	shared := make([]fleet.ObjectKey, len(refers))
	for i, r := range refers {
		shared[i] = r.Key
	}
	out, err := s.Change(ctx, w, shared, func(q *db.Queries, out *Started) (err error) {
		if err := allDeclared(ctx, q, refers); err != nil {
			return err
		}
		spec := spec
		if kind.Check != nil {
			if spec, err = kind.Check(ctx, q, w, spec); err != nil {
				return err
			}
		}
		if out.Written, err = s.Write(ctx, q, w, spec); err != nil {
			return err
		}
		if _, is := spec.(fleet.Referrer); is && out.After.Region == "" {
			if err := keepReferences(ctx, q, w.Key, refers); err != nil {
				return err
			}
		}
		if kind.Written == nil {
			return nil
		}
		return kind.Written(ctx, q, w, spec, out.Written)
	})
	return out.Written, err
}

func allDeclared(ctx context.Context, q *db.Queries, refers []fleet.Reference) error {
	for _, r := range refers {
		o, err := FindReferred(ctx, q, r.Key)
		if err != nil {
			return err
		}
		if o == nil || o.DeletingSince != nil {
			return fleet.NoPlace(r.Key, r.Field)
		}
	}
	return nil
}

// DeleteDeclared deletes an object that no node has to confirm and no other object refers to: an unused project or
// template, a site without instances, a fleet change that is not under way.
func (s *Store) DeleteDeclared(ctx context.Context, w Write) (Written, error) {
	kind := s.areas.Kinds[w.Key.Kind]
	out, err := s.Change(ctx, w, nil, func(q *db.Queries, out *Started) error {
		o, err := s.findWritten(ctx, q, w.named())
		if err != nil || o == nil {
			return OrNotFound(err, string(w.Key.Kind), w.Key.Name, "holdfast get "+w.Key.Kind.Declared().Plural)
		}
		if err := s.CheckMatch(w, o); err != nil {
			return err
		}
		if err := s.Recovered(ctx, q, o); err != nil {
			return err
		}
		if err := s.mayDelete(ctx, q, o); err != nil {
			return err
		}
		if err := kind.unused(ctx, q, o); err != nil {
			return err
		}
		if kind.Removed != nil {
			if err := kind.Removed(ctx, q, w, o); err != nil {
				return err
			}
		}
		out.Written = Written{Before: o, Changed: true}
		return s.removeShared(ctx, q, w.Actor, o)
	})
	return out.Written, err
}
