package postgres

import (
	"context"
	"math"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Refusal is one that was written down.
type Refusal struct {
	audit.Refusal
	ID int64
}

// OnRefusal sets who is notified of refusals of the record step; call it first.
func (s *Store) OnRefusal(refused func(audit.Refusal)) { s.refused = refused }

// Refuse passes a refusal on, nil for none.
func (s *Store) Refuse(r *audit.Refusal) {
	if r != nil && s.refused != nil {
		s.refused(*r)
	}
}

// AddRefusals writes some down with one statement. Those that have no time happen now; now is
// the clock by which the others have theirs.
func (s *Store) AddRefusals(ctx context.Context, all []audit.Refusal, now time.Time) error {
	var p db.InsertRefusalsParams
	for _, r := range all {
		age := time.Duration(0)
		if !r.At.IsZero() {
			age = max(0, now.Sub(r.At))
		}
		p.Doors, p.Identities, p.Reasons = append(p.Doors, r.Door), append(p.Identities, r.Identity), append(p.Reasons, r.Reason)
		p.Whats, p.Times, p.Ages = append(p.Whats, r.What), append(p.Times, r.Times), append(p.Ages, age.Seconds())
		p.RefusedBys = append(p.RefusedBys, r.By)
	}
	return s.Q.InsertRefusals(ctx, p)
}

// ListRefusals lists newest first, below an id (0 is the start): all, or those that an identity
// got or, where it is a node's, gave.
func (s *Store) ListRefusals(ctx context.Context, identity string, before int64, limit int32) ([]Refusal, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	rows, err := s.Q.ListRefusals(ctx, db.ListRefusalsParams{Before: before, Identity: identity, MaxRows: limit})
	out := make([]Refusal, len(rows))
	for i, r := range rows {
		out[i] = Refusal{ID: r.ID, Refusal: audit.Refusal{
			Door: r.Door, Identity: r.Identity, Reason: r.Reason, What: r.What, By: r.RefusedBy, At: r.At, Times: r.Times,
		}}
	}
	return out, err
}
