package postgres

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PutOutbox writes that some subjects have something to do. The trace of the context goes along:
// the wake may be made by somebody who does not know the request (X22).
func PutOutbox(ctx context.Context, q *db.Queries, subjects ...string) error {
	if len(subjects) == 0 {
		return nil
	}
	carried := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carried)
	p := db.PutOutboxParams{Subjects: subjects, Trace: carried["traceparent"]}
	return q.PutOutbox(ctx, p)
}

// WaitingWakes lists subjects whose outbox row has waited longer than a time: their wake
// was lost between commit and call.
func (s *Store) WaitingWakes(ctx context.Context, older time.Duration, limit int32) ([]string, error) {
	subjects, err := s.Q.WaitingOutbox(ctx, db.WaitingOutboxParams{OlderSeconds: older.Seconds(), MaxRows: limit})
	return subjects, err
}

// WakeTrace gives the trace of the request that a subject's entity has to see first, a W3C
// traceparent; "" for none.
func (s *Store) WakeTrace(ctx context.Context, subject string) (string, error) {
	trace, err := s.Q.OutboxTrace(ctx, subject)
	if NoRows(err) {
		return "", nil
	}
	return trace, err
}

// DeploymentSubjects are the subjects of deployments.
func DeploymentSubjects(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fleet.DeploymentSubject(fleet.DeploymentName(n))
	}
	return out
}
