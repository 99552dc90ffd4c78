package policies

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// ProjectWritten refuses a new project of an organization that is not declared, whose lock the write has taken.
func ProjectWritten(ctx context.Context, q *db.Queries, w postgres.Write, spec fleet.ProjectSpec, out postgres.Written) error {
	if key := fleet.OrganizationKey(spec.Organization); out.Before == nil && key.Name != "" {
		o, err := postgres.FindHere(ctx, q, key)
		if err == nil && o == nil {
			err = fleet.NoPlace(key, "/organization")
		}
		if err != nil {
			return err
		}
	}
	return HolderWritten(ctx, q, w, spec, out)
}

// OutsideDefault refuses a policy for a service of the project default, whose objects stay in their region.
func OutsideDefault(_ context.Context, _ *db.Queries, w postgres.Write, spec fleet.ServiceSpec) (fleet.ServiceSpec, error) {
	if w.Project == fleet.DefaultProject && spec.MultiRegionPolicy != nil {
		return spec, fleet.Errorf(fleet.Invalid, "a service of project %s cannot have a policy: what belongs to it stays in its region", w.Project).
			At("/multiRegionPolicy").WithHint("declare the service in a project of your own")
	}
	return spec, nil
}

// HolderWritten has a changed policy applied to what the holder governs. A new holder governs nothing yet, unless the copy of another
// region's was the only one of its name.
func HolderWritten(ctx context.Context, q *db.Queries, w postgres.Write, _ any, out postgres.Written) error {
	governs, err := governsAnew(ctx, q, w, out)
	if err != nil || !governs {
		return err
	}
	p := db.WantPolicyTurnParams{Kind: string(w.Key.Kind), Name: w.Key.Name, Generation: out.After.Generation, Restart: true}
	if err := q.WantPolicyTurn(ctx, p); err != nil {
		return err
	}
	return postgres.PutOutbox(ctx, q, fleet.PolicySubject(w.Key))
}

// governsAnew: there is something that another policy governed before a write.
func governsAnew(ctx context.Context, q *db.Queries, w postgres.Write, out postgres.Written) (bool, error) {
	if out.Before == nil {
		named, err := q.NamedAlready(ctx, db.NamedAlreadyParams{Kind: string(w.Key.Kind), Name: w.Key.Name, Project: string(out.After.Project)})
		return named, err
	}
	if !out.Changed {
		return false, nil
	}
	before, errBefore := fleet.HolderOf(w.Key.Kind, out.Before.Spec)
	after, errAfter := fleet.HolderOf(w.Key.Kind, out.After.Spec)
	return !reflect.DeepEqual(before.MultiRegionPolicy, after.MultiRegionPolicy), errors.Join(errBefore, errAfter)
}

// HolderRemoved drops how far the policy was applied; its entity finds nothing and ends.
func HolderRemoved(ctx context.Context, q *db.Queries, w postgres.Write, _ *fleet.Object) error {
	return q.DropPolicyTurn(ctx, db.DropPolicyTurnParams{Kind: string(w.Key.Kind), Name: w.Key.Name})
}

// UnusedOrganization refuses to delete an organization that a project belongs to.
func UnusedOrganization(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	n, err := q.UsesOfOrganization(ctx, key.Name)
	if err != nil || n == 0 {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "%s still has %d projects", key, n).WithHint("delete them first")
}

// UnusedService refuses to delete a service that an object belongs to.
func UnusedService(ctx context.Context, q *db.Queries, key fleet.ObjectKey) error {
	o, err := postgres.Find(ctx, q, key)
	if err != nil || o == nil {
		return err
	}
	uses, err := q.UsesOfService(ctx, db.UsesOfServiceParams{Project: string(o.Project), Service: key.Name})
	if err != nil || len(uses) == 0 {
		return err
	}
	counts := make([]string, len(uses))
	for i, u := range uses {
		counts[i] = fmt.Sprintf("%d %ss", u.Uses, u.Kind)
	}
	return fleet.Errorf(fleet.IllegalState, "%s still has %s", key, strings.Join(counts, ", ")).WithHint("delete them first")
}
