package deployments

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// way is how a release reaches what runs, with what that needs.
type way struct {
	decide.ReleaseWay
	version int64
	object  []byte
	of      *db.DeploymentRevision // whose replicas stay, nil for none
	active  *db.Rollout            // that it joins, or supersedes
	pends   bool                   // what was declared waits for a restart; this release only amends what is applied
	idle    bool                   // it does not even amend: its operation has nothing to wait for
}

// way looks at what runs, and has the way decided.
func (w *deploymentWork) way(ctx context.Context, p DeploymentPut, last *db.DeploymentRevision, body []byte) (way, error) {
	how := way{version: w.nextVersion(), object: postgres.HashBytes(p.Definition.Hash)}
	seen := w.releaseSeen(p.Spec)
	own, err := w.before(ctx, last)
	if err != nil {
		return how, err
	}
	var next line
	if !seen.Waits {
		if how.active, err = w.activeRollout(ctx); err != nil {
			return how, err
		}
		seen.Rolling = how.active != nil
		if seen.Returning, err = w.returning(ctx, how.active); err != nil {
			return how, err
		}
	}
	if seen.Rolling {
		if next, err = w.readLine(ctx, how.active.ToRevision, how.active.ProcessVersion); err != nil {
			return how, err
		}
	}
	if seen.SameAsOwn, err = w.sameObject(ctx, own.revision, p.Definition.Hash, body); err != nil {
		return how, err
	}
	if seen.SameAsNext, err = w.sameObject(ctx, next.revision, p.Definition.Hash, body); err != nil {
		return how, err
	}
	if err := w.besideStable(ctx, &seen, p.Definition.Hash, body); err != nil {
		return how, err
	}
	seen.WasStopped = own.spec.State == fleet.StateStopped
	applied := own
	if seen.Rolling && !seen.Returning {
		applied = next
	}
	if seen.NeedsRestart, err = w.needsRestart(ctx, p, applied.revision, body); err != nil {
		return how, err
	}
	if how.ReleaseWay = decide.Release(seen); how.ReleaseWay == decide.ReleasePends {
		how.pends, how.ReleaseWay = true, decide.Release(seen.Applied())
	}
	switch how.ReleaseWay {
	case decide.ReleaseKeeps:
		how.keep(own)
		if seen.Rolling { // what is created from now on comes after what was rolled out
			how.version = w.nextVersion()
		}
	case decide.ReleaseJoins:
		how.keep(next)
	case decide.ReleaseRollsOut:
		err = w.beginStart(ctx, how.active, seen)
		how.version = w.nextVersion()
	case decide.ReleaseAtOnce, decide.ReleasePends:
	}
	return how, err
}

// keep sets the revision whose replicas stay.
func (h *way) keep(l line) { h.version, h.object, h.of = l.version, objectOf(l.revision), l.revision }

// releaseSeen is what a release of a spec finds, without what runs.
func (w *deploymentWork) releaseSeen(spec fleet.DeploymentSpec) decide.ReleaseSeen {
	return decide.ReleaseSeen{
		Waits: w.object.UID != w.row.Uid, State: fleet.DeploymentState(w.row.State), Target: int(w.row.Target), Released: w.row.Revision > 0,
		Stopped: spec.State == fleet.StateStopped, NextTarget: w.targetOf(spec.Replicas),
	}
}

// before is the revision that a release comes after: the deployment's own, or the last one of a declaration that waits. It is
// empty if nothing was released.
func (w *deploymentWork) before(ctx context.Context, last *db.DeploymentRevision) (line, error) {
	switch {
	case w.object.UID != w.row.Uid && last != nil:
		return line{revision: last, version: last.ProcessVersion}, nil
	case w.object.UID != w.row.Uid || w.row.Revision == 0:
		return line{}, nil
	}
	return w.readLine(ctx, w.row.Revision, w.row.ProcessVersion)
}

// nextVersion lies above every process version that was given, also by servers of the build before.
func (w *deploymentWork) nextVersion() int64 { return max(w.row.LastVersion, w.row.ProcessVersion) + 1 }

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
		was, err := keptTerms(how.of)
		if err != nil {
			return err
		}
		if err := w.amend(ctx, r, amendment{t, !reflect.DeepEqual(was, t)}); err != nil {
			return err
		}
	}
	if how.ReleaseWay == decide.ReleaseJoins {
		return w.join(ctx, r.Revision, how.active)
	}
	if err := w.supersede(ctx, how.active, fmt.Sprintf("revision %d was released", r.Revision)); err != nil || how.ReleaseWay != decide.ReleaseRollsOut {
		return err
	}
	l, err := w.readLine(ctx, r.Revision, how.version)
	if err != nil {
		return err
	}
	return w.rollOut(ctx, l)
}

// join has the rollout under way bring a revision of the same object, by its strategy. The rollout stays of its type, with its steps.
func (w *deploymentWork) join(ctx context.Context, revision int64, active *db.Rollout) error {
	l, err := w.readLine(ctx, revision, active.ProcessVersion)
	if err != nil {
		return err
	}
	var before fleet.Strategy
	if err := json.Unmarshal(active.Strategy, &before); err != nil {
		return postgres.Unreadable("a strategy", err)
	}
	strategy, err := json.Marshal(l.spec.Strategy.Joining(before))
	if err != nil {
		return err
	}
	limit, err := w.rolloutLimit(ctx, l)
	if err != nil {
		return err
	}
	return w.q.JoinRollout(ctx, db.JoinRolloutParams{
		Deployment: w.row.Name, ToRevision: revision, Strategy: strategy, Progress: l.progress().Seconds(), MinHealthy: l.minHealthy().Seconds(), Seconds: limit.Seconds(),
	})
}
