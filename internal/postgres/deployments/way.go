package deployments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// way is how a release reaches what runs. It rolls out from the stable revision, joins the rollout of the same content that is
// under way, or is the deployment's own revision at once: if nothing of a running replica needs a new process, or nothing
// runs that could be returned to.
type way struct {
	rolls, joins bool
	version      int64
	object       []byte
	of           *db.DeploymentRevision // whose replicas stay, nil for none
	active       *db.Rollout            // that it joins, or supersedes
}

func (w *deploymentWork) way(ctx context.Context, p DeploymentPut, last *db.DeploymentRevision, body []byte) (way, error) {
	how := way{version: w.nextVersion(), object: postgres.HashBytes(p.Definition.Hash)}
	if w.object.UID != w.row.Uid { // it waits for the end of the one before
		if last != nil {
			_, err := w.stays(ctx, &how, line{revision: last, version: last.ProcessVersion}, body)
			return how, err
		}
		return how, nil
	}
	var err error
	if how.active, err = w.activeRollout(ctx); err != nil || w.row.Revision == 0 {
		return how, err
	}
	own, err := w.readLine(ctx, w.row.Revision, w.row.ProcessVersion)
	if err != nil {
		return how, err
	}
	if same, err := w.stays(ctx, &how, own, body); err != nil || same {
		if how.active != nil { // what is created from now on comes after what was rolled out
			how.version = w.nextVersion()
		}
		return how, err
	}
	returns, err := w.returning(ctx, how.active)
	if err != nil {
		return how, err
	}
	if a := how.active; a != nil && !returns && p.Spec.State != fleet.StateStopped {
		to, err := w.readLine(ctx, a.ToRevision, a.ProcessVersion)
		if err != nil {
			return how, err
		}
		if how.joins, err = w.stays(ctx, &how, to, body); err != nil || how.joins {
			return how, err
		}
	}
	how.rolls = w.rolls(own.spec, p.Spec)
	return how, nil
}

// nextVersion lies above every process version that was given, also by servers of the build before.
func (w *deploymentWork) nextVersion() int64 { return max(w.row.LastVersion, w.row.ProcessVersion) + 1 }

// beside reports whether the deployment's own revision stays, beside the one that is rolled out.
func (h way) beside() bool { return h.rolls || h.joins }

// stays reports whether replicas of a revision need no new process for a definition: they stay then.
func (w *deploymentWork) stays(ctx context.Context, how *way, l line, body []byte) (bool, error) {
	same, err := bytes.Equal(l.revision.Definition, how.object), error(nil)
	if !same {
		same, err = w.sameObject(ctx, l.revision, body)
	}
	if same {
		how.version, how.object, how.of = l.version, objectOf(l.revision), l.revision
	}
	return same, err
}

// objectOf is what replicas of a revision run.
func objectOf(r *db.DeploymentRevision) []byte {
	if len(r.Object) == 0 {
		return r.Definition
	}
	return r.Object
}

// take has running replicas and rollouts follow a release.
func (w *deploymentWork) take(ctx context.Context, how way, r db.InsertDeploymentRevisionParams, t terms) error {
	if how.of != nil {
		if err := w.amend(ctx, r, amendment{t, !bytes.Equal(how.of.Definition, r.Definition)}); err != nil {
			return err
		}
	}
	if how.joins {
		return w.join(ctx, r.Revision)
	}
	if err := w.supersede(ctx, how.active, fmt.Sprintf("revision %d was released", r.Revision)); err != nil || !how.rolls {
		return err
	}
	l, err := w.readLine(ctx, r.Revision, how.version)
	if err != nil {
		return err
	}
	return w.rollOut(ctx, l)
}

// join has the rollout under way bring a revision of the same object, by its strategy.
func (w *deploymentWork) join(ctx context.Context, revision int64) error {
	l, err := w.readLine(ctx, revision, 0)
	if err != nil {
		return err
	}
	strategy, err := json.Marshal(l.spec.Strategy)
	if err != nil {
		return postgres.Failed("write a strategy", err)
	}
	return postgres.Failed("join the rollout", w.q.JoinRollout(ctx, db.JoinRolloutParams{
		Deployment: w.row.Name, ToRevision: revision, Strategy: strategy, Progress: l.progress().Seconds(),
	}))
}
