package deployments

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// historyLine is something that became of a deployment or, with replica, of some of its replicas
// in the same way, of which it names the last one.
type historyLine struct {
	replica, node   string
	from, to        string
	reason, message string
	actor           string
	times           int32 // 0 is 1
}

// historyLook is how many lines back a line is counted instead of written once more: a replica that
// fails over and over writes a few lines each time.
const historyLook = 16

// write adds a line to the history of a declaration.
func (w *deploymentWork) write(ctx context.Context, uid string, l historyLine) error {
	return writeHistory(ctx, w.q, w.row.Name, uid, l)
}

func writeHistory(ctx context.Context, q *db.Queries, name, uid string, l historyLine) error {
	return q.WriteDeploymentHistory(ctx, db.WriteDeploymentHistoryParams{
		Deployment: name, Uid: uid, Replica: l.replica, Node: l.node, Times: max(l.times, 1), FromState: l.from, ToState: l.to,
		Reason: l.reason, Message: l.message, Actor: l.actor, LookBack: historyLook,
	})
}

// lines folds what became of replicas: those alike are one line.
type lines struct {
	order []historyLine
	at    map[historyLine]int
}

func (l *lines) add(line historyLine) {
	key := line
	key.replica, key.node = "", ""
	if l.at == nil {
		l.at = map[historyLine]int{}
	}
	i, known := l.at[key]
	if !known {
		i = len(l.order)
		l.at[key], l.order = i, append(l.order, line)
	}
	of := &l.order[i]
	of.replica, of.node = line.replica, line.node
	of.times++
}

func (l *lines) write(ctx context.Context, q *db.Queries, name, uid string) error {
	for _, line := range l.order {
		if err := writeHistory(ctx, q, name, uid, line); err != nil {
			return err
		}
	}
	return nil
}

// DeploymentLine is a line of a deployment's history. Replica names the last of those that it
// speaks of, "" when it speaks of the deployment.
type DeploymentLine struct {
	ID              int64
	Replica         fleet.ReplicaID
	Node            fleet.NodeName
	At, LastAt      time.Time
	Times           int
	From, To        string
	Reason, Message string
	Actor           string
}

// numbered is a place in a list whose rows have numbers, 0 at its start.
func numbered(p postgres.Place) int64 {
	n, err := strconv.ParseInt(p.ID, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ListDeploymentHistory gives the history of a deployment newest first, after the place of a line,
// whose id is that of the line.
func (s *Store) ListDeploymentHistory(ctx context.Context, name fleet.DeploymentName, after postgres.Place, limit int32) ([]DeploymentLine, error) {
	rows, err := s.Q.ListDeploymentHistory(ctx, db.ListDeploymentHistoryParams{Deployment: string(name), Before: numbered(after), MaxRows: limit})
	out := make([]DeploymentLine, len(rows))
	for i, r := range rows {
		out[i] = DeploymentLine{
			ID: r.ID, Replica: fleet.ReplicaID(r.Replica), Node: fleet.NodeName(r.Node), At: r.At, LastAt: r.LastAt, Times: int(r.Times),
			From: r.FromState, To: r.ToState, Reason: r.Reason, Message: r.Message, Actor: r.Actor,
		}
	}
	return out, err
}
