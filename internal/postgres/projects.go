package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// KeepProject holds the project of what is about to be made, so that it is not deleted in between;
// the default one is always there. Its lock may come last: whoever holds it alone waits for no other.
func KeepProject(ctx context.Context, q *db.Queries, project fleet.ProjectName) error {
	if project == fleet.DefaultProject {
		return nil
	}
	key := fleet.ProjectKey(project)
	if err := Lock(ctx, q, nil, key); err != nil {
		return err
	}
	o, err := Find(ctx, q, key)
	if err != nil || o != nil {
		return err
	}
	return noProject(project)
}

func noProject(name fleet.ProjectName) error {
	return fleet.Errorf(fleet.NotFound, "project %s not found", name).At("/project").
		WithHint("declare it first: PUT /api/v1/projects/" + string(name))
}

// UnusedProject refuses to delete a project that something belongs to: the next project of its name
// would own it. The caller holds the project's lock.
func UnusedProject(ctx context.Context, q *db.Queries, k fleet.ObjectKey) error {
	uses, err := q.UsesOfProject(ctx, k.Name)
	if err != nil || len(uses) == 0 {
		return err
	}
	counts := make([]string, len(uses))
	for i, u := range uses {
		counts[i] = fmt.Sprintf("%d %ss", u.Uses, u.Kind)
		if u.Uses == 1 {
			counts[i] = "1 " + u.Kind
		}
	}
	return fleet.Errorf(fleet.IllegalState, "project %s still has %s", k.Name, strings.Join(counts, ", ")).
		WithHint("delete its objects (holdfast get KINDS --project " + k.Name + "), wait until they are gone, and revoke its tokens (holdfast token list)")
}
