package postgres

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Purged counts what one bounded purge took away.
type Purged struct {
	Pending     int64 `json:"pending"`
	Tickets     int64 `json:"tickets"`
	Tokens      int64 `json:"tokens"`
	Idempotency int64 `json:"idempotencyKeys"`
	Executions  int64 `json:"executions"`
}

// Purge removes at most limit expired rows of each kind (N15). The delivery rows stay:
// they keep hash and revision until they are settled (N14).
func (s *Store) Purge(ctx context.Context, limit int32) (Purged, error) {
	var p Purged
	ids, err := s.Q.PurgePending(ctx, limit)
	if err != nil {
		return p, err
	}
	p.Pending = int64(len(ids))
	for _, step := range []struct {
		count *int64
		purge func(context.Context, int32) (int64, error)
	}{
		{&p.Tickets, s.Q.PurgeTickets},
		{&p.Tokens, s.Q.PurgeTokens},
		{&p.Idempotency, s.Q.PurgeIdempotency},
		{&p.Executions, s.Q.PurgeExecutions},
	} {
		if *step.count, err = step.purge(ctx, limit); err != nil {
			return p, err
		}
	}
	return p, nil
}

// ServerSeen says that a server of this build has a worker.
func (s *Store) ServerSeen(ctx context.Context, id, build string) error {
	return s.Q.ServerSeen(ctx, db.ServerSeenParams{ID: id, BuildID: build})
}

// ServerGone takes a server that stops.
func (s *Store) ServerGone(ctx context.Context, id string) error {
	return s.Q.ServerGone(ctx, id)
}

// Servers are all that did not say that they end, and were not forgotten.
func (s *Store) Servers(ctx context.Context) ([]decide.Server, error) {
	rows, err := s.Q.Servers(ctx)
	out := make([]decide.Server, len(rows))
	for i, r := range rows {
		out[i] = decide.Server{ID: r.ID, Build: r.BuildID, SeenAt: r.SeenAt}
	}
	return out, err
}

// ForgetServer takes one that has said nothing since.
func (s *Store) ForgetServer(ctx context.Context, gone decide.Server) error {
	return s.Q.ForgetServer(ctx, db.ForgetServerParams{ID: gone.ID, SeenAt: gone.SeenAt})
}

// PurgeOnce is Purge with one count.
func (s *Store) PurgeOnce(ctx context.Context, limit int32) (int64, error) {
	p, err := s.Purge(ctx, limit)
	return p.Pending + p.Tickets + p.Tokens + p.Idempotency + p.Executions, err
}
