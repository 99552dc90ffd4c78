package postgres

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// InstanceChange is a PUT of an instance. Content is its flattened body, already stored;
// RunJSON the canonical run section. With Release unset the spec is written and nothing
// is released. Flattened names the template generations that the body was made from.
type InstanceChange struct {
	Write
	Spec    fleet.InstanceSpec
	Content fleet.Content
	RunJSON json.RawMessage
	RunHash fleet.Hash
	Release bool
	Reason  string
	Limit   time.Duration // of the operation
}

// Started is what a change of an instance came to. Operation is nil when nothing had to
// be started.
type Started struct {
	Written
	Operation *Operation
}

// PutInstance writes the spec, numbers its revision and opens the operation that brings it
// to the nodes, with the outbox row, in one transaction (X2).
func (s *Store) PutInstance(ctx context.Context, c InstanceChange) (Started, error) {
	var out Started
	err := s.change(ctx, c.Write, &out, func(q *db.Queries) error {
		if err := s.checkReferences(ctx, q, c); err != nil {
			return err
		}
		var err error
		if out.Written, err = s.write(ctx, q, c.Write, c.Spec); err != nil || !c.Release {
			return err
		}
		r := releaseOf(c)
		before, err := desired(ctx, q, c.Key)
		if err != nil {
			return err
		}
		if before != nil && before.Generation == out.After.Generation && sameRevision(before, r) {
			return nil
		}
		out.Operation, err = s.release(ctx, q, r, out.After)
		return err
	})
	return out, err
}

func releaseOf(c InstanceChange) release {
	return release{
		Key: c.Key, Action: fleet.ActionDeploy, Content: c.Content, Run: c.RunJSON, RunHash: c.RunHash,
		Enabled: c.Spec.Enabled, Durability: c.Spec.Durability, Actor: c.Actor, Reason: c.Reason,
		Operation: fleet.OperationDeploy, Limit: c.Limit,
	}
}

// change runs one mutation of an instance under its locks, once per idempotency key.
func (s *Store) change(ctx context.Context, w Write, out *Started, f func(q *db.Queries) error) error {
	return s.tx(ctx, "change "+w.Key.String(), func(q *db.Queries) error {
		*out = Started{}
		site := fleet.ObjectKey{Kind: fleet.KindSite, Name: w.Key.Scope}
		if err := lock(ctx, q, []fleet.ObjectKey{w.Key}, site); err != nil {
			return err
		}
		again, err := s.replayed(ctx, q, w, out)
		if err != nil || again {
			return err
		}
		if o, err := find(ctx, q, site); err != nil || o == nil || o.DeletingSince != nil {
			return orNotFound(err, "site", w.Key.Scope, "declare it first: PUT /api/v1/sites/"+w.Key.Scope)
		}
		if err := f(q); err != nil {
			return err
		}
		if w.DryRun {
			return errRollback
		}
		return remember(ctx, q, w, out)
	})
}

func orNotFound(err error, kind, name, hint string) error {
	if err != nil {
		return err
	}
	return fleet.Errorf(fleet.NotFound, "%s %s not found", kind, name).At(kind).WithHint(hint)
}

// replayed answers a request that was seen before from what it started then.
func (s *Store) replayed(ctx context.Context, q *db.Queries, w Write, out *Started) (bool, error) {
	row, err := usedKey(ctx, q, w.Actor, w.Idempotency)
	if err != nil || row == nil {
		return false, err
	}
	if out.After, err = find(ctx, q, w.Key); err != nil {
		return true, err
	}
	if out.After != nil && w.Project != "" && out.After.Project != w.Project { // another's, which took the name since
		out.After = nil
	}
	if row.OperationID == "" {
		return true, nil
	}
	op, err := q.GetOperation(ctx, row.OperationID)
	if err != nil {
		return true, failed("read operation", err)
	}
	o := operationOf(op)
	if !repeats(w.Project, o) {
		return false, otherRequest()
	}
	out.Operation = &o
	return true, nil
}

// repeats says whether a caller of a project, "" for every project, may be answered with the operation of a key.
func repeats(project fleet.ProjectName, o Operation) bool {
	return project == "" || o.Project == project
}

func remember(ctx context.Context, q *db.Queries, w Write, out *Started) error {
	if w.Idempotency.Key == "" {
		return nil
	}
	p := db.InsertIdempotencyParams{Actor: w.Actor, Key: w.Idempotency.Key, RequestHash: w.Idempotency.Hash}
	if out.Operation != nil {
		p.OperationID = string(out.Operation.ID)
	}
	n, err := q.InsertIdempotency(ctx, p)
	if err == nil && n == 0 {
		return keyUnderWay()
	}
	return failed("store idempotency key", err)
}

func otherRequest() error {
	return fleet.Errorf(fleet.Conflict, "this key was used for another request").At("Idempotency-Key").
		WithHint("use a new key for a new request")
}

func keyUnderWay() error {
	return fleet.Errorf(fleet.Conflict, "a request with this key is under way").At("Idempotency-Key").
		WithHint("retry in a moment")
}

// checkReferences looks at what the spec points to, inside the transaction that writes it.
func (s *Store) checkReferences(ctx context.Context, q *db.Queries, c InstanceChange) error {
	if c.Spec.Template != "" {
		p := db.GetTemplateGenerationParams{Name: string(c.Spec.Template), Generation: c.Spec.TemplateGeneration}
		if _, err := q.GetTemplateGeneration(ctx, p); err != nil {
			return missingTemplate(err, c.Spec.Template, "/template")
		}
	}
	if c.Spec.Artifact != nil {
		p := db.BodyAllowedParams{Hash: hashBytes(c.Spec.Artifact.Hash), Project: string(c.Project)}
		_, err := q.BodyAllowed(ctx, p)
		if noRows(err) {
			return fleet.Errorf(fleet.NotFound, "artifact not found in project %s", c.Project).At("/artifact").
				WithHint("upload it first: POST /api/v1/artifacts")
		}
		if err != nil {
			return failed("read artifact", err)
		}
	}
	if err := mayRunCommand(ctx, q, c); err != nil {
		return err
	}
	return hold(ctx, q, append(c.Spec.Bodies(), c.Content.Hash)...)
}

// mayRunCommand refuses a command at another project's site, which is a shared one, unless each node that may run it
// keeps projects apart. Nodes refuse it too: they may have changed since.
func mayRunCommand(ctx context.Context, q *db.Queries, c InstanceChange) error {
	if c.Spec.Run == nil {
		return nil
	}
	site, err := find(ctx, q, fleet.ObjectKey{Kind: fleet.KindSite, Name: c.Key.Scope})
	if err != nil || site == nil || fleet.SeparationNone.Admits(c.Project, site.Project) {
		return err
	}
	open, err := q.UnseparatedNodes(ctx, db.UnseparatedNodesParams{Site: c.Key.Scope, Uid: string(fleet.SeparationUID)})
	if err != nil {
		return failed("read how the site's nodes keep projects apart", err)
	}
	if len(open) == 0 {
		return nil
	}
	return fleet.Errorf(fleet.IsolationMissing, "isolation_missing: site %s is shared, and node %s does not isolate the commands of projects", c.Key.Scope, open[0]).
		At("/run").WithHint("omit run, use a deployment with an image, or use a site of project " + string(c.Project))
}

// InstanceTurn asks for enable, disable, delete, deploy or rollback of an instance. Door
// is the workflow that asked, when it was one.
type InstanceTurn struct {
	Write
	Kind     fleet.OperationKind
	Revision int64 // for a rollback, 0 to find it
	Reason   string
	Limit    time.Duration
	Door     Door
	// Unreleased releases a spec that was written with ?deploy=false; nil when there is none.
	Unreleased *InstanceChange
}

// Door is a workflow that waits for an operation.
type Door struct{ Workflow, Run string }

func hashBytes(h fleet.Hash) []byte {
	b, err := hex.DecodeString(string(h))
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

func hashText(b []byte) fleet.Hash { return fleet.Hash(hex.EncodeToString(b)) }
