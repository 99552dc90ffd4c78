package deployments

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// content is what a revision says: what a PUT declares, or what is applied of it.
type content struct {
	spec       json.RawMessage
	definition fleet.Hash
	terms      terms
	idle       bool // it changes nothing of what is applied
}

// needsRestart reports whether a release waits for a restart beside the revision that is applied, nil for none.
func (w *deploymentWork) needsRestart(ctx context.Context, p DeploymentPut, applied *db.DeploymentRevision, body []byte) (bool, error) {
	if applied == nil || p.Spec.Update != fleet.UpdateVersioned {
		return false, nil
	}
	was, err := readSmall(ctx, w.q, postgres.HashText(applied.Definition))
	if err != nil {
		return false, err
	}
	return p.Spec.NeedsRestart(was, body)
}

// contentOf gives the content of a release: the declared one or, if that waits for a restart, the applied one with the
// terms of the declaration.
func (w *deploymentWork) contentOf(ctx context.Context, p DeploymentPut, how way, body []byte) (content, error) {
	declared, err := readDefinition(body)
	if err != nil || !how.pends {
		return content{spec: w.object.Spec, definition: p.Definition.Hash, terms: termsIn(declared)}, err
	}
	out := content{definition: postgres.HashText(how.of.Definition)}
	if body, err = readSmall(ctx, w.q, out.definition); err != nil {
		return out, err
	}
	applied, err := readDefinition(body)
	if err != nil {
		return out, err
	}
	out.terms = termsIn(applied.Amended(declared))
	out.terms.Amended = out.terms.Replica != applied.Terms()
	spec, changed, err := fleet.AmendedSpec(how.of.Spec, w.object.Spec)
	out.spec, out.idle = spec, !changed && how.active == nil
	return out, err
}

// pend stores what was declared as a revision that waits for a restart: it has no process version.
func (w *deploymentWork) pend(ctx context.Context, p DeploymentPut, r db.InsertDeploymentRevisionParams, body []byte) error {
	t, err := termsOf(body)
	if err != nil {
		return err
	}
	if r.Terms, err = json.Marshal(t); err != nil {
		return err
	}
	r.Revision, r.ProcessVersion, r.Spec = r.Revision+1, 0, w.object.Spec
	r.Definition, r.Object = postgres.HashBytes(p.Definition.Hash), postgres.HashBytes(p.Definition.Hash)
	if err := w.q.InsertDeploymentRevision(ctx, r); err != nil {
		return err
	}
	if err := w.q.NumberRevision(ctx, db.NumberRevisionParams{Name: w.row.Name, Revision: r.Revision}); err != nil {
		return err
	}
	return w.write(ctx, r.Uid, historyLine{reason: "pending_restart", message: fmt.Sprintf("revision %d waits for a restart", r.Revision), actor: p.Actor})
}

// openIdle opens the operation of a release that only waits for a restart: it has succeeded.
func (w *deploymentWork) openIdle(ctx context.Context, door postgres.Door, o postgres.NewOperation) (*postgres.Operation, error) {
	out, err := w.insertEnded(ctx, door, o, fleet.OperationFinish{Reason: "pending_restart", Message: "it waits for a restart: holdfast restart deployment " + w.row.Name})
	if err != nil {
		return nil, err
	}
	return out, postgres.PutOutbox(ctx, w.q, w.subject())
}

// pending reports whether the newest revision waits for a restart.
func (w *deploymentWork) pending(last *db.DeploymentRevision) bool {
	return last != nil && last.Revision > w.row.Revision && last.ProcessVersion == 0
}

// addPending adds what waits for a restart to what is known of deployments.
func (s *Store) addPending(ctx context.Context, names []string, views map[string]DeploymentView) error {
	rows, err := s.Q.PendingRestarts(ctx, names)
	for _, r := range rows {
		v := views[r.Name]
		v.Pending = &PendingRestart{Revision: r.Revision, Applied: r.Applied, Spec: r.Spec}
		views[r.Name] = v
	}
	return err
}

// PendingRestart is a revision that waits for a restart, with its spec and the one that is applied.
type PendingRestart struct {
	Revision      int64
	Applied, Spec json.RawMessage
}

// scaleUnreleased sets the target that the first release begins with; there is nothing to wait for (F18).
func (w *deploymentWork) scaleUnreleased(ctx context.Context, t DeploymentTurn, out *postgres.Started) error {
	var spec fleet.DeploymentSpec
	if err := json.Unmarshal(w.object.Spec, &spec); err != nil {
		return postgres.Unreadable("the spec of the deployment", err)
	}
	if err := w.scaleWithin(ctx, t, spec); err != nil {
		return err
	}
	var err error
	o := postgres.NewOperation{Kind: t.Kind, Target: *t.Replicas}
	out.Operation, err = w.insertEnded(ctx, t.Door, o, fleet.OperationFinish{Reason: "scaled", Message: fmt.Sprintf("it is not released: its first release begins with %d replicas", *t.Replicas)})
	return err
}
