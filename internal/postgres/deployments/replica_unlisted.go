package deployments

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// confirm forgets the tombstones and orphans of which the node says that nothing runs.
func (r *reporting) confirm(ctx context.Context, live map[string]bool) error {
	stopped, said := []string{}, []string{}
	for _, x := range r.report.Replicas {
		said = append(said, string(x.ID))
		if x.Phase == fleet.PhaseStopped && !live[string(x.ID)] {
			stopped = append(stopped, string(x.ID))
		}
	}
	if len(stopped) == 0 && !r.report.Whole {
		return nil
	}
	node := string(r.report.Node)
	n, err := r.q.ConfirmTombstones(ctx, db.ConfirmTombstonesParams{
		Node: node, Stopped: stopped, Whole: r.report.Whole, Held: r.held, Said: said,
	})
	if err != nil {
		return err
	}
	r.ended = r.ended || n > 0 // what the node may forget leaves its set
	return r.q.ForgetOrphanReplicas(ctx, db.ForgetOrphanReplicasParams{
		Node: node, Stopped: stopped, Whole: r.report.Whole, Said: said,
	})
}

// unlisted decides on replicas that the node has and that are not live there: what waits for an operator is listed,
// the tombstones of the others are given.
func (r *reporting) unlisted(ctx context.Context, live map[string]bool) (db.BuryUnlistedParams, error) {
	bury := db.BuryUnlistedParams{Node: string(r.report.Node)}
	said := map[string]fleet.ReplicaStatus{}
	ids := []string{}
	for _, x := range r.report.Replicas {
		if id := string(x.ID); !live[id] && x.Phase != fleet.PhaseStopped {
			said[id], ids = x, append(ids, id)
		}
	}
	if len(ids) == 0 {
		return bury, nil
	}
	rows, err := r.q.SeeUnlisted(ctx, db.SeeUnlistedParams{Ids: ids, Node: bury.Node})
	if err != nil {
		return bury, err
	}
	wait := db.ListOrphanReplicasParams{Node: bury.Node}
	here, err := r.q.CountReplicasOn(ctx, bury.Node)
	if err != nil {
		return bury, err
	}
	room := decide.DropCap(int(here.Live))
	for _, row := range rows {
		x := said[row.ID]
		seen := fleet.UnlistedSeen{Named: row.Named, Listed: row.Listed, Ended: row.Ended, Over: x.Phase.Over()}
		switch do, why := decide.UnlistedReplica(seen, room > 0); do {
		case fleet.AbsenceWait:
			wait.Ids, wait.Reasons, wait.Phases = append(wait.Ids, row.ID), append(wait.Reasons, why), append(wait.Phases, string(x.Phase))
			wait.Deployments, wait.Revisions = append(wait.Deployments, cmp.Or(row.Deployment, string(x.Deployment))), append(wait.Revisions, x.Revision)
		case fleet.AbsenceDrop:
			bury.Ids, bury.Deployments = append(bury.Ids, row.ID), append(bury.Deployments, row.Deployment)
			bury.Phases = append(bury.Phases, string(x.Phase))
			if !seen.Over {
				room--
				r.cameBack(row)
			}
		case fleet.AbsenceKeep:
		}
	}
	r.ended = r.ended || len(bury.Ids) > 0
	if len(wait.Ids) == 0 {
		return bury, nil
	}
	return bury, r.q.ListOrphanReplicas(ctx, wait)
}

// cameBack says in the history why a replica that had ended is ended again.
func (r *reporting) cameBack(row db.SeeUnlistedRow) {
	if row.Uid == nil {
		return
	}
	of := declaration{row.Deployment, *row.Uid}
	if r.history[of] == nil {
		r.history[of] = &lines{}
	}
	r.history[of].add(historyLine{
		replica: row.ID, node: string(r.report.Node), from: string(fleet.ReplicaTerminated), to: string(fleet.ReplicaTerminated),
		reason: "came_back", message: "its node has it again and must end it", actor: postgres.RegionActor,
	})
}

// bury names to the node what it is to end, from its set of that number on.
func (r *reporting) bury(ctx context.Context, unlisted db.BuryUnlistedParams, version int64) error {
	if len(r.buried) > 0 {
		if err := r.q.BuryReplicas(ctx, r.buried); err != nil {
			return err
		}
	}
	if len(unlisted.Ids) == 0 {
		return nil
	}
	unlisted.Listed = version
	return r.q.BuryUnlisted(ctx, unlisted)
}
