package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Operation is the durable record of one thing asked for.
type Operation struct {
	ID         fleet.OperationID
	Kind       fleet.OperationKind
	Site       fleet.SiteName
	Instance   fleet.InstanceName // "" of what is done to a node
	Node       fleet.NodeName     // that is compared, drained, or to become a site's active
	Fleet      fleet.FleetName    // that is run
	Deployment fleet.DeploymentName
	Module     string           // that is executed, its whole name
	Region     fleet.RegionName // that is compared with
	Holder     string           // whose policy is applied, for example project/p1
	Forced     bool             // of a failover
	Subject    string
	Revision   int64
	// ProcessVersion is that of the rollout, or of the replicas, that it waits for.
	ProcessVersion int64
	Project        fleet.ProjectName
	State          fleet.OperationState
	Reason         string
	Message        string
	RequestedBy    string
	EntityRun      string
	EntityBuild    string
	Door           Door
	Delivery       fleet.DeliveryID
	CreatedAt      time.Time
	Deadline       time.Time
	EndedAt        *time.Time
}

// OperationOf is a row as an operation. Whose name it has follows from its subject, as in ListOperations.
func OperationOf(r db.Operation) Operation {
	out := Operation{
		ID: fleet.OperationID(r.ID), Kind: fleet.OperationKind(r.Kind), Site: fleet.SiteName(r.Site), Subject: r.Subject, Revision: r.Revision, ProcessVersion: r.ProcessVersion,
		Project: fleet.ProjectName(r.Project), State: fleet.OperationState(r.State), Reason: r.Reason,
		Message: r.Message, RequestedBy: r.RequestedBy, EntityRun: r.EntityRun, EntityBuild: r.EntityBuild,
		Door: Door{r.DoorWorkflow, r.DoorRun}, Delivery: fleet.DeliveryID(r.DeliveryID),
		CreatedAt: r.CreatedAt, Deadline: r.DeadlineAt, EndedAt: r.EndedAt, Forced: r.Forced,
	}
	switch entity, _, _ := strings.Cut(r.Subject, "."); entity {
	case fleet.EntityInstance.Prefix:
		out.Instance = fleet.InstanceName(r.Name)
	case fleet.EntityNode.Prefix, fleet.EntityDrain.Prefix, fleet.EntitySite.Prefix:
		out.Node = fleet.NodeName(r.Name)
	case fleet.EntityFleet.Prefix:
		out.Fleet = fleet.FleetName(r.Name)
	case fleet.EntityExecution.Prefix:
		out.Module = r.Name
	case fleet.EntityPolicy.Prefix:
		if _, names, ok := fleet.ParseSubject(r.Subject); ok {
			out.Holder = strings.Join(names, "/")
		}
	case fleet.EntitySync.Prefix:
		out.Region = fleet.RegionName(r.Name)
	case fleet.EntityDeployment.Prefix:
		out.Deployment = fleet.DeploymentName(r.Name)
	}
	return out
}

// GetOperation reads one operation.
func (s *Store) GetOperation(ctx context.Context, id fleet.OperationID) (Operation, error) {
	row, err := s.Q.GetOperation(ctx, string(id))
	if NoRows(err) {
		return Operation{}, OrNotFound(nil, "operation", string(id), "holdfast operations")
	}
	return OperationOf(row), err
}

// OperationFilter narrows a list of operations; zero values do not.
type OperationFilter struct {
	Project  fleet.ProjectName
	State    fleet.OperationState
	Site     fleet.SiteName
	Instance fleet.InstanceName
	Node     fleet.NodeName
	Fleet    fleet.FleetName
	// Deployment narrows it to those on a deployment.
	Deployment fleet.DeploymentName
}

// Place is where a list, newest first, continues.
type Place struct {
	At time.Time
	ID string
}

// OrStart is the place itself, or one before all rows; the clocks may differ.
func (p Place) OrStart() Place {
	if p.ID == "" {
		return Place{At: time.Now().Add(time.Hour), ID: "~"}
	}
	return p
}

// ListOperations lists newest first, after a place ("" is the start).
func (s *Store) ListOperations(ctx context.Context, f OperationFilter, after Place, limit int32) ([]Operation, error) {
	after = after.OrStart()
	rows, err := s.Q.ListOperations(ctx, db.ListOperationsParams{
		BeforeAt: after.At, BeforeID: after.ID, Project: string(f.Project), State: string(f.State),
		Site: string(f.Site), Name: string(f.Instance), Node: string(f.Node), Fleet: string(f.Fleet),
		Deployment: string(f.Deployment), MaxRows: limit,
	})
	if err != nil {
		return nil, err
	}
	out := make([]Operation, len(rows))
	for i, r := range rows {
		out[i] = OperationOf(r)
	}
	return out, nil
}

// CancelOperation asks for the end of an operation. Its entity decides, unless its kind has a row in Cancels.
func (s *Store) CancelOperation(ctx context.Context, id fleet.OperationID) (Operation, error) {
	out, err := s.GetOperation(ctx, id)
	if err != nil {
		return Operation{}, err
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		if out.Kind == fleet.OperationFleet {
			if err := Lock(ctx, q, []fleet.ObjectKey{fleet.FleetKey(out.Fleet)}); err != nil {
				return err
			}
		}
		row, err := q.RequestCancel(ctx, string(id))
		if NoRows(err) {
			return fleet.Errorf(fleet.IllegalState, "operation %s has ended", id)
		}
		if err != nil {
			return err
		}
		out = OperationOf(row)
		if cancel := s.areas.Cancels[out.Kind]; cancel != nil {
			return cancel(ctx, q, &out)
		}
		return PutOutbox(ctx, q, out.Subject)
	})
	return out, err
}

// EndsCancelled is the Cancels of operations that end at once, because nothing has to be undone or can be. The message says
// what becomes of what has begun.
func EndsCancelled(message string) func(context.Context, *db.Queries, *Operation) error {
	return func(ctx context.Context, q *db.Queries, o *Operation) error {
		p := db.EndOperationParams{ID: string(o.ID), State: string(fleet.OperationCancelled), Reason: "cancelled", Message: message}
		if _, err := q.EndOperation(ctx, p); err != nil {
			return err
		}
		row, err := q.GetOperation(ctx, p.ID)
		if err != nil {
			return err
		}
		*o = OperationOf(row)
		return q.NotifyOperation(ctx, p.ID)
	}
}

// Ending is how a set of operations of one subject ends.
type Ending struct {
	From, To      int64 // revisions
	State         fleet.OperationState
	Reason        string
	Message       string
	Delivery      fleet.DeliveryID
	OnlyCancelled bool
	Run           string              // only those that it serves, "" for all
	Kind          fleet.OperationKind // only those, "" for all that its subject has
}

// EndOperations ends them and announces each end to its waiters.
func EndOperations(ctx context.Context, q *db.Queries, subject string, e Ending) error {
	return q.EndOperations(ctx, db.EndOperationsParams{
		Subject: subject, FromRevision: e.From, ToRevision: e.To, State: string(e.State), Reason: e.Reason,
		Message: e.Message, DeliveryID: string(e.Delivery), OnlyCancelled: e.OnlyCancelled,
		Run: e.Run, Kind: string(e.Kind),
	})
}

// Server is a workflow run, of a build.
type Server struct{ Run, Build string }

// Serve has a run serve what some subjects were asked, and takes their outbox rows.
func Serve(ctx context.Context, q *db.Queries, by Server, subjects ...string) error {
	p := db.ServeOperationsParams{Run: by.Run, Build: by.Build, Subjects: subjects}
	if err := q.ServeOperations(ctx, p); err != nil {
		return err
	}
	return q.TakeOutbox(ctx, subjects)
}

// OperationOfDoor is the operation of a door, nil if it has none.
func (s *Store) OperationOfDoor(ctx context.Context, d Door) (*Operation, error) {
	return OperationOfDoor(ctx, s.Q, d)
}

// UntoldDoors lists ended operations whose door was not notified; subject "" is all.
func (s *Store) UntoldDoors(ctx context.Context, subject string, limit int32) ([]Operation, error) {
	rows, err := s.Q.UntoldDoors(ctx, db.UntoldDoorsParams{Subject: subject, MaxRows: limit})
	out := make([]Operation, len(rows))
	for i, r := range rows {
		out[i] = OperationOf(r)
	}
	return out, err
}

// DoorTold records that a door knows the end.
func (s *Store) DoorTold(ctx context.Context, id fleet.OperationID) error {
	return s.Q.DoorTold(ctx, string(id))
}

// entityLate is how long past its deadline an operation on a deployment is left to its entity.
const entityLate = time.Minute

// EndOverdue fails the operations whose deadline passed, whatever became of their workflow. It gives
// how many, and of them those on deployments, also of a run that fails later.
func (s *Store) EndOverdue(ctx context.Context, limit int32) (count int, ofDeployments []fleet.OperationEnded, err error) {
	rows, err := s.Q.OverdueOperations(ctx, db.OverdueOperationsParams{EntitySeconds: entityLate.Seconds(), MaxRows: limit})
	if err != nil {
		return 0, nil, err
	}
	for _, r := range rows {
		p := db.EndOperationParams{
			ID: r.ID, State: string(fleet.OperationFailed), Reason: "deadline",
			Message: "it did not end within its deadline; what is missing stays owed",
		}
		if r.OfDeployment {
			p.Message = fleet.LateDeployment(r.Message, r.Awaited)
		}
		var ended int64
		err := s.Tx(ctx, func(q *db.Queries) (err error) {
			if ended, err = q.EndOperation(ctx, p); err != nil {
				return err
			}
			return q.NotifyOperation(ctx, r.ID)
		})
		if err != nil {
			return 0, ofDeployments, err
		}
		kind := fleet.OperationKind(r.Kind)
		if ended > 0 && kind.OfDeployment() { // its visit may have come first
			ofDeployments = append(ofDeployments, fleet.OperationEnded{Kind: kind, State: fleet.OperationFailed, Reason: p.Reason})
		}
	}
	return len(rows), ofDeployments, nil
}

// NoteWaiting says why the operations of a subject wait, for "" that they do not.
func NoteWaiting(ctx context.Context, q *db.Queries, subject string, kind fleet.OperationKind, why string) error {
	p := db.NoteWaitingParams{Subject: subject, Kind: string(kind), Message: why}
	if why != "" {
		p.Reason = "waiting"
	}
	return q.NoteWaiting(ctx, p)
}

// PeerTrouble completes what waits for a peer by why the peer does not answer: "" while it does.
func PeerTrouble(ctx context.Context, q *db.Queries, peer string) (string, error) {
	peers, err := q.PeerAllowed(ctx)
	at := slices.IndexFunc(peers, func(p db.PeerAllowedRow) bool { return p.Name == peer })
	switch {
	case err != nil:
		return "", err
	case at < 0:
		return "; it is not an enabled peer", nil
	case peers[at].Problem != "" && peers[at].SeenAt != nil:
		return "; it is unreachable since " + peers[at].SeenAt.UTC().Format("2006-01-02T15:04:05Z"), nil
	}
	return "", nil
}
