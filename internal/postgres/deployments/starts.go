package deployments

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// besideStable adds what there is to return to.
func (w *deploymentWork) besideStable(ctx context.Context, seen *decide.ReleaseSeen, hash fleet.Hash, body []byte) error {
	stable, err := w.stable(ctx)
	if err != nil || stable == nil {
		return err
	}
	seen.Stable = true
	seen.SameAsStable, err = w.sameObject(ctx, stable, hash, body)
	return err
}

// stable is the revision that ran last as it was to, nil for none.
func (w *deploymentWork) stable(ctx context.Context) (*db.DeploymentRevision, error) {
	if w.row.Stable == nil {
		return nil, nil
	}
	r, err := w.q.GetDeploymentRevision(ctx, db.GetDeploymentRevisionParams{Deployment: w.row.Name, Revision: *w.row.Stable})
	if postgres.NoRows(err) || err == nil && r.Uid != w.row.Uid { // a server that knows no stable revision redeclared it
		return nil, nil
	}
	return &r, err
}

// beginStart has the stable revision be the deployment's own if nothing is to run until the rollout begins. A rollout that takes the
// place of another keeps the state in which that began.
func (w *deploymentWork) beginStart(ctx context.Context, active *db.Rollout, seen decide.ReleaseSeen) (err error) {
	if active != nil {
		w.began = fleet.DeploymentState(active.BeganIn)
		return nil
	}
	if w.began = seen.BeganIn(); w.began == fleet.DeploymentRunning {
		return nil
	}
	before := w.row
	if w.row, err = w.q.BeginWithStable(ctx, db.BeginWithStableParams{Name: w.row.Name, Version: w.nextVersion()}); err != nil {
		return err
	}
	return w.announce(ctx, before, w.row, w.actor)
}

// seeRelease is what the release of a revision finds that was released before.
func (w *deploymentWork) seeRelease(ctx context.Context, l line) (decide.ReleaseSeen, error) {
	seen, hash := w.releaseSeen(l.spec), postgres.HashText(l.revision.Definition)
	body, err := readSmall(ctx, w.q, hash)
	if err != nil {
		return seen, err
	}
	return seen, w.besideStable(ctx, &seen, hash, body)
}

// startUnproven rolls out a revision that was released while nothing was to run, to a target.
func (w *deploymentWork) startUnproven(ctx context.Context, target int) error {
	own, err := w.readLine(ctx, w.row.Revision, 0)
	if err != nil {
		return err
	}
	seen, err := w.seeRelease(ctx, own)
	if seen.NextTarget = target; err != nil || decide.Release(seen) != decide.ReleaseRollsOut {
		return err
	}
	if err := w.beginStart(ctx, nil, seen); err != nil {
		return err
	}
	own.version = w.nextVersion()
	return w.releaseBeside(ctx, own)
}

// releaseBeside rolls out a revision that was released before, with another process version.
func (w *deploymentWork) releaseBeside(ctx context.Context, l line) error {
	p := db.ReleaseDeploymentParams{Name: w.row.Name, Revision: l.revision.Revision, Uid: w.row.Uid, ProcessVersion: l.version, Target: w.row.Target, Rolls: true}
	if err := w.q.ReleaseDeployment(ctx, p); err != nil {
		return err
	}
	return w.rollOut(ctx, l)
}
