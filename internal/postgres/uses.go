package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Unnamed refuses to delete a pool or a site that a deployment's placement names (list: pools or sites), in
// what is written of it or in what it runs: that would have no place any more.
func Unnamed(ctx context.Context, q *db.Queries, list string, k fleet.ObjectKey) error {
	names, err := q.NamesOfPlacement(ctx, db.NamesOfPlacementParams{List: list, Name: k.Name})
	if err != nil || len(names) == 0 {
		return Failed("look for uses", err)
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
		return Failed("look for uses", err)
	}
	return fleet.Errorf(fleet.IllegalState, "%d instances still use %s", n, key).WithHint("delete or change them first")
}
