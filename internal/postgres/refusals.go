package postgres

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Refusal is something that an identity asked for and may not have. No secret is in it.
type Refusal struct {
	ID       int64
	At       time.Time
	Door     string // link, tasks, leases, http
	Identity string // as proven, or as claimed with a "?" before it
	Reason   string // a stable word
	What     string
	Times    int64
}

// AddRefusals writes some down with one statement.
func (s *Store) AddRefusals(ctx context.Context, all []Refusal) error {
	var p db.InsertRefusalsParams
	for _, r := range all {
		p.Doors, p.Identities, p.Reasons = append(p.Doors, r.Door), append(p.Identities, r.Identity), append(p.Reasons, r.Reason)
		p.Whats, p.Times = append(p.Whats, r.What), append(p.Times, r.Times)
	}
	return failed("record refusals", s.q.InsertRefusals(ctx, p))
}

// ListRefusals lists newest first, below an id (0 is the start), of one identity or of all.
func (s *Store) ListRefusals(ctx context.Context, identity string, before int64, limit int32) ([]Refusal, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.q.ListRefusals(ctx, db.ListRefusalsParams{Before: before, Identity: identity, MaxRows: limit})
	out := make([]Refusal, len(rows))
	for i, r := range rows {
		out[i] = Refusal{r.ID, r.At, r.Door, r.Identity, r.Reason, r.What, r.Times}
	}
	return out, failed("list refusals", err)
}
