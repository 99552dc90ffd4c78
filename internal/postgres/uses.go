package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Unreferred refuses to delete an object that a plain kind's object refers to. The caller holds the lock of the object,
// which Declare shares for each that it refers to.
func Unreferred(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	rows, err := q.ReferrersOf(ctx, db.ReferrersOfParams{ToKind: string(key.Kind), ToScope: key.Scope, ToName: key.Name})
	if err != nil || len(rows) == 0 {
		return err
	}
	by := fleet.ObjectKey{Kind: fleet.ObjectKind(rows[0].Kind), Scope: rows[0].Scope, Name: rows[0].Name}
	if n := rows[0].Total; n > 1 {
		return fleet.Errorf(fleet.IllegalState, "%d objects still refer to %s, among them %s", n, key, by).WithHint("delete or change them first")
	}
	return fleet.Errorf(fleet.IllegalState, "%s still refers to %s", by, key).WithHint("delete or change it first")
}

// keepReferences replaces what an object refers to.
func keepReferences(ctx context.Context, q *db.Queries, key fleet.ObjectKey, refers []fleet.Reference) error {
	if err := q.ForgetReferences(ctx, db.ForgetReferencesParams{Kind: string(key.Kind), Scope: key.Scope, Name: key.Name}); err != nil {
		return err
	}
	p := db.KeepReferencesParams{Kind: string(key.Kind), Scope: key.Scope, Name: key.Name}
	for _, r := range refers {
		if r.Pinned || r.Key == key { // it goes with itself
			continue
		}
		p.ToKinds, p.ToScopes, p.ToNames = append(p.ToKinds, string(r.Key.Kind)), append(p.ToScopes, r.Key.Scope), append(p.ToNames, r.Key.Name)
	}
	return q.KeepReferences(ctx, p)
}

// Unnamed refuses to delete a pool or a site that a deployment's placement names (list: pools or sites), in
// what is written of it or in what it runs: that would have no place any more.
func Unnamed(ctx context.Context, q *db.Queries, list string, k fleet.ObjectKey) error {
	names, err := q.NamesOfPlacement(ctx, db.NamesOfPlacementParams{List: list, Name: k.Name})
	if err != nil || len(names) == 0 {
		return err
	}
	for _, n := range names {
		if !n.Written {
			return fleet.Errorf(fleet.IllegalState, "%d deployments still name %s: what is released of %s does", len(names), k, n.Name).
				WithHint("release its written spec, or delete it, first")
		}
	}
	return fleet.Errorf(fleet.IllegalState, "%d deployments still name %s, among them %s", len(names), k, names[0].Name).
		WithHint("delete or change them first")
}

// UsedBy refuses to delete an object that instances use.
func UsedBy(n int64, err error, key fleet.ObjectKey) error {
	if err != nil || n == 0 {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "%d instances still use %s", n, key).WithHint("delete or change them first")
}
