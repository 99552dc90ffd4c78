package declaration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// Turns ask something of objects that stand. Some release a spec that was declared before.
type Turns struct {
	*Maker
	Store TurnStore
}

// TurnStore is what turns need of the region's truth.
type TurnStore interface {
	GetObject(ctx context.Context, k fleet.ObjectKey) (fleet.Object, error)
	ViewDeployments(ctx context.Context, names ...string) (map[string]deployments.DeploymentView, error)
	// RevisionBefore is the revision that a rollback without one restores; illegal_state without one.
	RevisionBefore(ctx context.Context, name fleet.DeploymentName) (int64, error)
	ListDeploymentRevisions(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]deployments.DeploymentRevision, error)
	PutDeployment(ctx context.Context, p deployments.DeploymentPut) (postgres.Started, error)
	// TurnDeployment is illegal_state for anything but a delete of one that is being deleted.
	TurnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error)
	// Repeated answers a change that was carried out before, and refuses any other.
	Repeated(ctx context.Context, w postgres.Write, refusal error) (postgres.Started, error)
}

// readAgain is how often a change that is bound to what was read is made anew of what is there by then.
const readAgain = 5

// ofNewest makes a change that is bound to the object that was read. If another write came between, it is made of the newer
// object, unless the caller named a version.
func (t Turns) ofNewest(ctx context.Context, w postgres.Write, o fleet.Object, change func(fleet.Object) (postgres.Started, error)) (postgres.Started, error) {
	for range readAgain {
		started, err := change(o)
		if w.IfMatch != 0 || fleet.KindOf(err) != fleet.Precondition {
			return started, err
		}
		uid := o.UID
		if o, err = t.Store.GetObject(ctx, w.Key); err != nil {
			return postgres.Started{}, err
		}
		if o.UID != uid { // the caller may not see another one
			return postgres.Started{}, fleet.Errorf(fleet.Precondition, "%s was declared anew", w.Key).WithHint("read it again and repeat the change")
		}
	}
	return change(o)
}

// Turn asks the store for a turn of an object that was read; a deploy of what was only written so far releases it.
func (t Turns) Turn(ctx context.Context, turn deployments.DeploymentTurn, o fleet.Object) (postgres.Started, error) {
	return t.ofNewest(ctx, turn.Write, o, func(o fleet.Object) (postgres.Started, error) {
		if turn.Kind == fleet.OperationConverge && !turn.Again && o.UID != "" && o.DeletingSince == nil {
			unreleased, err := t.unreleased(ctx, o)
			if err != nil {
				return postgres.Started{}, err
			}
			if unreleased {
				var spec fleet.DeploymentSpec
				if err := json.Unmarshal(o.Spec, &spec); err != nil {
					return postgres.Started{}, &fleet.Error{Kind: fleet.Internal, Message: "read the spec of " + o.String(), Err: err}
				}
				return t.release(ctx, turn, o, spec)
			}
		}
		return t.Store.TurnDeployment(ctx, turn)
	})
}

// TurnDeployment is Turn by name, for who may ask everything.
func (t Turns) TurnDeployment(ctx context.Context, turn deployments.DeploymentTurn) (postgres.Started, error) {
	o, err := t.Store.GetObject(ctx, turn.Key)
	if err != nil && fleet.KindOf(err) != fleet.NotFound { // a repeat of a delete that succeeded finds none
		return postgres.Started{}, err
	}
	return t.Turn(ctx, turn, o)
}

// RollBackDeployment is RollBack by name, for who may ask everything.
func (t Turns) RollBackDeployment(ctx context.Context, turn deployments.DeploymentTurn, revision int64) (postgres.Started, error) {
	o, err := t.Store.GetObject(ctx, turn.Key)
	if err != nil {
		return postgres.Started{}, err
	}
	return t.RollBack(ctx, turn, o, revision)
}

// UnreleasedInstance is Unreleased by name, for who may ask everything.
func (t Turns) UnreleasedInstance(ctx context.Context, w postgres.Write) (*deliveries.InstanceChange, error) {
	o, err := t.Store.GetObject(ctx, w.Key)
	if err != nil {
		return nil, err
	}
	return t.Unreleased(ctx, w, "", o)
}

// Unreleased is the change that a deploy of an instance releases if its spec was only written so far, for a caller who is bound to a
// project, or to none. It is nil for one that is being deleted: the store refuses the deploy.
func (t Turns) Unreleased(ctx context.Context, w postgres.Write, by fleet.ProjectName, o fleet.Object) (*deliveries.InstanceChange, error) {
	if o.DeletingSince != nil {
		return nil, nil
	}
	i, err := t.Maker.Unreleased(ctx, by, o)
	if err != nil {
		return nil, err
	}
	c := i.Change(w)
	c.Project, c.Labels, c.Release = o.Project, o.Labels, true
	return &c, nil
}

// unreleased says that the spec of a deployment was only written so far.
func (t Turns) unreleased(ctx context.Context, o fleet.Object) (bool, error) {
	views, err := t.Store.ViewDeployments(ctx, o.Name)
	v := views[o.Name]
	return err == nil && (v.UID != o.UID || v.Revision == 0 || v.Generation != o.Generation), err
}

// release releases a spec of an object, bound to the object that was read.
func (t Turns) release(ctx context.Context, turn deployments.DeploymentTurn, o fleet.Object, spec fleet.DeploymentSpec) (postgres.Started, error) {
	w := turn.Write
	w.Project, w.Labels, w.IfMatch = o.Project, o.Labels, cmp.Or(turn.IfMatch, o.ResourceVersion)
	p, err := t.Release(ctx, w, spec)
	if err != nil {
		return postgres.Started{}, err
	}
	p.Reason = turn.Reason
	return t.Store.PutDeployment(ctx, p)
}

// RollBack writes the whole spec of an earlier revision once more, 0 for the one before, and releases it (F63).
func (t Turns) RollBack(ctx context.Context, turn deployments.DeploymentTurn, o fleet.Object, revision int64) (postgres.Started, error) {
	to, err := t.rollbackTo(ctx, fleet.DeploymentName(o.Name), revision)
	if err != nil {
		return t.Store.Repeated(ctx, turn.Write, err)
	}
	turn.Reason = cmp.Or(turn.Reason, fmt.Sprintf("back to revision %d", to.Revision))
	back := func(o fleet.Object) (postgres.Started, error) { return t.release(ctx, turn, o, to.Spec) }
	if revision == 0 { // after another write, the one before may be another
		return back(o)
	}
	return t.ofNewest(ctx, turn.Write, o, back)
}

// rollbackTo is the revision to go back to.
func (t Turns) rollbackTo(ctx context.Context, name fleet.DeploymentName, revision int64) (none deployments.DeploymentRevision, err error) {
	if revision < 0 {
		return none, fleet.Errorf(fleet.Invalid, "invalid revision: want 1 or more").At("/revision")
	}
	if revision == 0 {
		if revision, err = t.Store.RevisionBefore(ctx, name); err != nil {
			return none, err
		}
	}
	rows, err := t.Store.ListDeploymentRevisions(ctx, name, postgres.Place{ID: strconv.FormatInt(revision+1, 10)}, 1)
	if err != nil {
		return none, err
	}
	if len(rows) == 0 || rows[0].Revision != revision {
		return none, fleet.Errorf(fleet.NotFound, "deployment %s has no revision %d", name, revision).At("/revision").
			WithHint("see its revisions: holdfast get revisions --deployment " + string(name))
	}
	return rows[0], nil
}
