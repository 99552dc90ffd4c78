package postgres

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// OpenEntity is the subject of operations that have not ended, and the workflow run that served them last.
type OpenEntity struct{ Subject, Run string }

// OpenEntities pages through the open subjects of one kind, in order. Those whose operations are all younger than a
// time are left out.
func (s *Store) OpenEntities(ctx context.Context, kind fleet.EntityKind, after string, older time.Duration, limit int32) ([]OpenEntity, error) {
	rows, err := s.Q.OpenEntities(ctx, db.OpenEntitiesParams{
		Prefix: kind.Prefix + ".", After: after, OlderSeconds: older.Seconds(), MaxRows: limit,
	})
	out := make([]OpenEntity, len(rows))
	for i, r := range rows {
		out[i] = OpenEntity{r.Subject, r.EntityRun}
	}
	return out, err
}

// CloseEntityOperations ends the operations that a lost run served, as failed, and gives them. What was written by
// them, for example a target of replicas, remains: the next run continues with it.
func (s *Store) CloseEntityOperations(ctx context.Context, o OpenEntity, reason string) ([]fleet.OperationEnded, error) {
	var out []fleet.OperationEnded
	err := s.Tx(ctx, func(q *db.Queries) error {
		rows, err := q.CloseEntityOperations(ctx, db.CloseEntityOperationsParams{
			Subject: o.Subject, Run: o.Run, State: string(fleet.OperationFailed), Reason: reason,
			Message: "its workflow run " + o.Run + " is gone",
		})
		out = make([]fleet.OperationEnded, len(rows))
		for i, r := range rows {
			out[i] = fleet.OperationEnded{Kind: fleet.OperationKind(r.Kind), State: fleet.OperationFailed, Reason: reason}
		}
		return err
	})
	return out, err
}
