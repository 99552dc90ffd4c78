package deliveries

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// InstanceChange is a PUT of an instance. Content is its flattened body, already stored;
// RunJSON the canonical run section. With Release unset the spec is written and nothing
// is released. Flattened names the template generations that the body was made from.
type InstanceChange struct {
	postgres.Write
	Spec    fleet.InstanceSpec
	Content fleet.Content
	RunJSON json.RawMessage
	RunHash fleet.Hash
	Release bool
	Reason  string
}

// PutInstance writes the spec, numbers its revision and opens the operation that brings it
// to the nodes, with the outbox row, in one transaction (X2).
func (s *Store) PutInstance(ctx context.Context, c InstanceChange) (postgres.Started, error) {
	return s.Change(ctx, c.Write, siteOf(c.Write), func(q *db.Queries, out *postgres.Started) error {
		if err := onSite(ctx, q, c.Write); err != nil {
			return err
		}
		if err := s.checkReferences(ctx, q, c); err != nil {
			return err
		}
		var err error
		if out.Written, err = s.Write(ctx, q, c.Write, c.Spec); err != nil || !c.Release {
			return err
		}
		r := releaseOf(c)
		before, err := Desired(ctx, q, c.Key)
		if err != nil {
			return err
		}
		if before != nil && before.Generation == out.After.Generation && sameRevision(before, r) {
			return nil
		}
		out.Operation, err = s.release(ctx, q, r, out.After)
		return err
	})
}

func releaseOf(c InstanceChange) release {
	return release{
		Request: c.Request, Key: c.Key, Action: fleet.ActionDeploy, Content: c.Content, Run: c.RunJSON, RunHash: c.RunHash,
		Enabled: c.Spec.Enabled, Durability: c.Spec.Durability, Reason: c.Reason,
		Operation: fleet.OperationDeploy,
	}
}

// siteOf is what a change of an instance locks too.
func siteOf(w postgres.Write) []fleet.ObjectKey {
	return []fleet.ObjectKey{{Kind: fleet.KindSite, Name: w.Key.Scope}}
}

// onSite refuses a change of an instance whose site is not declared.
func onSite(ctx context.Context, q *db.Queries, w postgres.Write) error {
	if o, err := postgres.Find(ctx, q, siteOf(w)[0]); err != nil || o == nil || o.DeletingSince != nil {
		return postgres.OrNotFound(err, "site", w.Key.Scope, "declare it first: PUT /api/v1/sites/"+w.Key.Scope)
	}
	return nil
}

// checkReferences looks at what the spec points to, inside the transaction that writes it.
func (s *Store) checkReferences(ctx context.Context, q *db.Queries, c InstanceChange) error {
	if c.Spec.Template != "" {
		pin := fleet.TemplatePin{Name: c.Spec.Template, Generation: c.Spec.TemplateGeneration}
		if err := postgres.HoldGeneration(ctx, q, pin, "/template"); err != nil {
			return err
		}
	}
	if c.Spec.Artifact != nil {
		p := db.BodyAllowedParams{Hash: postgres.HashBytes(c.Spec.Artifact.Hash), Project: string(c.Project)}
		_, err := q.BodyAllowed(ctx, p)
		if postgres.NoRows(err) {
			return fleet.Errorf(fleet.NotFound, "artifact not found in project %s", c.Project).At("/artifact").
				WithHint("upload it first: POST /api/v1/artifacts")
		}
		if err != nil {
			return err
		}
	}
	if err := mayRunCommand(ctx, q, c); err != nil {
		return err
	}
	return postgres.Hold(ctx, q, append(c.Spec.Bodies(), c.Content.Hash)...)
}

// mayRunCommand refuses a command at another project's site, which is a shared one, unless each node that may run it
// keeps projects apart. Nodes refuse it too: they may have changed since.
func mayRunCommand(ctx context.Context, q *db.Queries, c InstanceChange) error {
	if c.Spec.Run == nil {
		return nil
	}
	site, err := postgres.Find(ctx, q, fleet.ObjectKey{Kind: fleet.KindSite, Name: c.Key.Scope})
	if err != nil || site == nil || fleet.SeparationNone.Admits(c.Project, site.Project) {
		return err
	}
	open, err := q.UnseparatedNodes(ctx, db.UnseparatedNodesParams{Site: c.Key.Scope, Uid: string(fleet.SeparationUID)})
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return nil
	}
	return fleet.Errorf(fleet.IsolationMissing, "isolation_missing: site %s is shared, and node %s does not isolate the commands of projects", c.Key.Scope, open[0]).
		At("/run").WithHint("omit run, use a deployment with an image, or use a site of project " + string(c.Project))
}

// InstanceTurn asks for enable, disable, delete, deploy or rollback of an instance.
type InstanceTurn struct {
	postgres.Write
	Kind     fleet.OperationKind
	Revision int64 // for a rollback, 0 to find it
	Reason   string
	// Unreleased releases a spec that was written with ?deploy=false; nil when there is none.
	Unreleased *InstanceChange
}
