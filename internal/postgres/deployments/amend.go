package deployments

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// RunningSpecs gives what runs of some deployments by name, without bodies; one of which nothing was released is
// missing.
func (s *Store) RunningSpecs(ctx context.Context, names ...string) (map[string]fleet.RunningSpec, error) {
	return runningSpecs(ctx, s.Q, names...)
}

func runningSpecs(ctx context.Context, q *db.Queries, names ...string) (map[string]fleet.RunningSpec, error) {
	rows, err := q.RunningSpecs(ctx, names)
	out := make(map[string]fleet.RunningSpec, len(rows))
	for _, r := range rows {
		out[r.Name] = fleet.RunningSpec{
			UID: r.Uid, Spec: r.Spec, Definition: postgres.HashText(r.Definition), Target: int(r.Target),
			Applied: fleet.AppliedSpec{Spec: r.Applied, Definition: postgres.HashText(r.AppliedDefinition)},
		}
	}
	return out, err
}

// changes compares a declaration with what runs of it.
func (w *deploymentWork) changes(ctx context.Context, p DeploymentPut) ([]fleet.SpecChange, error) {
	if p.Compare == nil {
		return nil, nil
	}
	all, err := runningSpecs(ctx, w.q, w.row.Name)
	if err != nil {
		return nil, err
	}
	r, is := all[w.row.Name]
	if !is || r.UID != w.object.UID {
		return p.Compare(nil, p.Deploy)
	}
	if r.Definition != p.Definition.Hash {
		if r.Body, err = readSmall(ctx, w.q, r.Definition); err != nil {
			return nil, err
		}
	}
	if a := &r.Applied; a.Definition != r.Definition && a.Definition != p.Definition.Hash {
		if a.Body, err = readSmall(ctx, w.q, a.Definition); err != nil {
			return nil, err
		}
	}
	return p.Compare(&r, p.Deploy)
}

// sameObject reports whether replicas of a revision need no new process for a definition; nil has none.
func (w *deploymentWork) sameObject(ctx context.Context, last *db.DeploymentRevision, hash fleet.Hash, definition []byte) (bool, error) {
	if last == nil || postgres.HashText(last.Definition) == hash {
		return last != nil, nil
	}
	was, err := readSmall(ctx, w.q, postgres.HashText(last.Definition))
	if err != nil {
		return false, err
	}
	return fleet.SameRuntimeObject(was, definition)
}

// amendment is what a release changes of running replicas; announced is set if their nodes have to fetch it.
type amendment struct {
	terms
	announced bool
}

// amend has running replicas obey a release that needs no new process, and their nodes fetch its terms.
func (w *deploymentWork) amend(ctx context.Context, r db.InsertDeploymentRevisionParams, a amendment) error {
	if w.row.Uid != r.Uid { // what runs is of an earlier declaration
		return nil
	}
	nodes, err := w.q.AmendReplicas(ctx, db.AmendReplicasParams{
		Deployment: w.row.Name, Uid: r.Uid, Object: r.Object, Revision: &r.Revision, StopSeconds: postgres.WaveNumber(a.StopSeconds),
	})
	if err != nil || !a.announced {
		return err
	}
	versions, err := RaiseSets(ctx, w.q, nodes)
	if err != nil {
		return err
	}
	return TellSets(ctx, w.q, versions)
}
