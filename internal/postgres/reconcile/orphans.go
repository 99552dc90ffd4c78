package reconcile

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// ConfirmAbsent answers a node by name what is to become of its extra instances (X3). Each
// is judged under its object's lock, so that nothing is released under the name at the same time.
func (s *Store) ConfirmAbsent(ctx context.Context, pass Pass, extras []fleet.Extra) (fleet.Absence, error) {
	out := fleet.Absence{Drop: []fleet.RefreshDeploymentCommand{}, Wait: []fleet.Differs{}, Keep: []fleet.Differs{}}
	deployed, err := s.Q.CountDeployed(ctx, string(pass.Site))
	if err != nil {
		return out, err
	}
	limit := decide.DropCap(int(deployed))
	for _, e := range extras {
		var one fleet.Absence
		err := s.Tx(ctx, func(q *db.Queries) (err error) {
			one, err = s.confirmAbsent(ctx, q, absence{pass, e, limit})
			return err
		})
		if err != nil {
			return out, err
		}
		out.Drop, out.Wait, out.Keep = append(out.Drop, one.Drop...), append(out.Wait, one.Wait...), append(out.Keep, one.Keep...)
	}
	return out, nil
}

// absence is the question about one name.
type absence struct {
	Pass
	fleet.Extra
	limit int
}

func (s *Store) confirmAbsent(ctx context.Context, q *db.Queries, a absence) (fleet.Absence, error) {
	var none fleet.Absence
	if err := postgres.Lock(ctx, q, []fleet.ObjectKey{fleet.InstanceKey(a.Site, a.Instance)}); err != nil {
		return none, err
	}
	pass, err := q.LockReconcile(ctx, a.ID)
	if err != nil {
		return none, err
	}
	row, err := q.SeeAbsence(ctx, db.SeeAbsenceParams{Site: string(a.Site), Name: string(a.Instance), Node: string(a.Node)})
	if err != nil {
		return none, err
	}
	do, why := decide.Absent(absenceSeen(row, a.Version), int(pass.Drops) < a.limit)
	because := []fleet.Differs{{Instance: a.Instance, Why: why}}
	switch do {
	case fleet.AbsenceWait:
		return fleet.Absence{Wait: because}, s.listOrphan(ctx, q, a, why)
	case fleet.AbsenceDrop:
		return s.dropOrphan(ctx, q, a, fleet.Version{Era: row.Era, Revision: row.Revision})
	case fleet.AbsenceKeep:
	}
	return fleet.Absence{Keep: because}, nil
}

func absenceSeen(row db.SeeAbsenceRow, held fleet.Version) fleet.AbsenceSeen {
	approved := row.Approved && fleet.Version{Era: row.ApprovedEra, Revision: row.ApprovedRevision} == held
	return fleet.AbsenceSeen{
		Known: row.Known, UnderWay: row.UnderWay, Owed: row.Owed, Approved: approved, Listed: row.Listed, Held: held,
		Deployed: fleet.Revision{
			Version: fleet.Version{Era: row.Era, Revision: row.Revision}, Action: fleet.Action(row.Action),
		},
	}
}

func (s *Store) listOrphan(ctx context.Context, q *db.Queries, a absence, why string) error {
	return q.ListOrphan(ctx, db.ListOrphanParams{
		Node: string(a.Node), Name: string(a.Instance), Site: string(a.Site), Era: a.Version.Era, Revision: a.Version.Revision,
		Hash: postgres.HashBytes(a.Hash), Reason: why, Reconcile: a.ID,
	})
}

// buryUnknown gives a name that the region never released a number to be deleted by.
func buryUnknown(ctx context.Context, q *db.Queries, a absence) (fleet.Version, error) {
	r, err := q.GetRegion(ctx)
	if err != nil {
		return fleet.Version{}, err
	}
	last, err := q.BuryUnknown(ctx, db.BuryUnknownParams{
		Site: string(a.Site), Name: string(a.Instance), Revision: a.Version.Revision + 1,
	})
	return fleet.Version{Era: r.Era, Revision: last}, err
}

// dropOrphan counts the drop and gives the node its delete. What waited stays listed until
// the node's report, in which it does not come again.
func (s *Store) dropOrphan(ctx context.Context, q *db.Queries, a absence, tombstone fleet.Version) (fleet.Absence, error) {
	var out fleet.Absence
	if tombstone.IsZero() {
		var err error
		if tombstone, err = buryUnknown(ctx, q, a); err != nil {
			return out, err
		}
	}
	if err := q.CountDrop(ctx, a.ID); err != nil {
		return out, err
	}
	at, err := nodes.On(s.Store).Welcome(ctx, q, a.Node)
	if err != nil {
		return out, err
	}
	id, err := postgres.NewID()
	out.Drop = []fleet.RefreshDeploymentCommand{{
		DeploymentID: id, Site: a.Site, Instance: a.Instance, Role: at.Role, Epoch: at.Epoch, DeployedBy: "region",
		Revision: fleet.Revision{Version: tombstone, Action: fleet.ActionDelete}, Timestamp: time.Now().UTC(),
	}}
	return out, err
}

// Orphan is what a node holds without a declaration, for an operator to decide on: an instance, or a
// replica, of which the version is its revision and the deployment what its node knows.
type Orphan struct {
	Node       fleet.NodeName
	Instance   fleet.InstanceName // "" for a replica
	Replica    fleet.ReplicaID    // "" for an instance
	Deployment fleet.DeploymentName
	Phase      fleet.ReplicaPhase // of a replica, by its node's last word
	Site       fleet.SiteName
	Version    fleet.Version
	Hash       fleet.Hash
	Reason     string
	Since      time.Time
	ApprovedBy string
	ApprovedAt *time.Time
}

// The kinds of orphans, in the order in which they are listed.
const (
	orphanInstance = "instance"
	orphanReplica  = "replica"
)

// Ref names an orphan on its node: the instance's name, or replica/ID.
func (o Orphan) Ref() string {
	if o.Replica != "" {
		return orphanReplica + "/" + string(o.Replica)
	}
	return string(o.Instance)
}

// OrphanFilter says whose orphans are listed: on a node, and of replicas those of a project's deployments,
// all for "".
type OrphanFilter struct {
	Node    fleet.NodeName
	Project fleet.ProjectName
}

// ListOrphans pages through what waits on a node: instances by name, then replicas. After is the Ref
// of the last one of the page before.
func (s *Store) ListOrphans(ctx context.Context, of OrphanFilter, after string, limit int32) ([]Orphan, error) {
	p := db.ListOrphansParams{Node: string(of.Node), Project: string(of.Project), AfterKind: orphanInstance, After: after, MaxRows: limit}
	if id, is := strings.CutPrefix(after, orphanReplica+"/"); is {
		p.AfterKind, p.After = orphanReplica, id
	}
	rows, err := s.Q.ListOrphans(ctx, p)
	out := make([]Orphan, len(rows))
	for i, r := range rows {
		out[i] = Orphan{
			Node: of.Node, Deployment: fleet.DeploymentName(r.Deployment), Phase: fleet.ReplicaPhase(r.Phase), Site: fleet.SiteName(r.Site),
			Version: fleet.Version{Era: r.Era, Revision: r.Revision}, Hash: postgres.HashText(r.Hash), Reason: r.Reason,
			Since: r.Since, ApprovedAt: r.ApprovedAt,
		}
		if r.Kind == orphanReplica {
			out[i].Replica = fleet.ReplicaID(r.Name)
		} else {
			out[i].Instance = fleet.InstanceName(r.Name)
		}
		if r.ApprovedBy != nil {
			out[i].ApprovedBy = *r.ApprovedBy
		}
	}
	return out, err
}
