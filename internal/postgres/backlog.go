package postgres

import (
	"context"
	"time"
)

// Backlog is how much of one mechanism waits, and how old the oldest is.
type Backlog struct {
	Count  int64
	Oldest time.Duration
}

// Backlogs counts what waits in the region, by mechanism: deliveries, operations, owed,
// outbox, and orphans, which wait for an operator.
func (s *Store) Backlogs(ctx context.Context) (map[string]Backlog, error) {
	r, err := s.Q.Backlog(ctx)
	if err != nil {
		return nil, err
	}
	of := func(count int64, age float64) Backlog {
		return Backlog{Count: count, Oldest: time.Duration(age * float64(time.Second))}
	}
	return map[string]Backlog{
		"deliveries": of(r.Deliveries, r.DeliveryAge), "operations": of(r.Operations, r.OperationAge),
		"owed": of(r.Owed, r.OwedAge), "outbox": of(r.Outbox, r.OutboxAge),
		"orphans": of(r.Orphans, r.OrphanAge),
	}, nil
}
