package postgres

import (
	"context"
	"encoding/json"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Observe makes the run the subject's current one, takes its outbox rows and its open
// operations, and says all that the decision needs.
//
// It does not wait for the disk: should the database lose it, the outbox row is back and
// the next claim of the run is refused, so that it looks anew. A claim that follows flushes it.
func (s *Store) Observe(ctx context.Context, of fleet.Subject) (fleet.InstanceSeen, error) {
	return s.act(ctx, "observe", of, func(q *db.Queries, sub db.Subject) error {
		if err := q.CommitLater(ctx); err != nil {
			return failed("observe", err)
		}
		if err := q.AttachRun(ctx, db.AttachRunParams{Site: sub.Site, Name: sub.Name, Run: of.Run}); err != nil {
			return failed("attach the run", err)
		}
		p := db.ServeOperationsParams{Subject: of.Name(), Run: of.Run, Build: of.Build}
		if err := q.ServeOperations(ctx, p); err != nil {
			return failed("serve operations", err)
		}
		return failed("take the outbox", q.TakeOutbox(ctx, of.Name()))
	})
}

// act runs one step of an entity under the subject's lock and says what is seen after it.
func (s *Store) act(ctx context.Context, doing string, of fleet.Subject, f func(q *db.Queries, sub db.Subject) error) (fleet.InstanceSeen, error) {
	var seen fleet.InstanceSeen
	err := s.tx(ctx, doing+" "+of.Name(), func(q *db.Queries) error {
		if err := lock(ctx, q, []fleet.ObjectKey{of.Key()}); err != nil {
			return err
		}
		sub, err := q.LockSubject(ctx, db.LockSubjectParams{Site: string(of.Site), Name: string(of.Instance)})
		if noRows(err) {
			return orNotFound(nil, "instance", string(of.Site)+"/"+string(of.Instance), "nothing was ever released under this name")
		}
		if err != nil {
			return failed("lock the subject", err)
		}
		if err := f(q, sub); err != nil {
			return err
		}
		seen, err = see(ctx, q, of)
		return err
	})
	return seen, err
}

// see reads all that the decision looks at, in one query.
func see(ctx context.Context, q *db.Queries, of fleet.Subject) (fleet.InstanceSeen, error) {
	var seen fleet.InstanceSeen
	row, err := q.SeeInstance(ctx, db.SeeInstanceParams{
		Subject: of.Name(), Site: string(of.Site), Name: string(of.Instance),
	})
	if err != nil {
		return seen, failed("read the instance", err)
	}
	return seen, failed("read the instance", json.Unmarshal(row, &seen))
}
