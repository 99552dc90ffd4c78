package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// Replica is a row of what the node knows of its replicas; Known is its keeper's JSON.
type Replica struct {
	ID    fleet.ReplicaID
	Known []byte
}

// Replicas lists them, by id.
func (s *Store) Replicas(ctx context.Context) ([]Replica, error) {
	rows, err := s.q.ListReplicas(ctx)
	if err != nil {
		return nil, fail("list replicas", err)
	}
	all := make([]Replica, len(rows))
	for i, row := range rows {
		all[i] = Replica{ID: fleet.ReplicaID(row.ID), Known: row.Known}
	}
	return all, nil
}

// PutReplica writes what is known of one; how far its output was sent stays.
func (s *Store) PutReplica(ctx context.Context, r Replica) error {
	return fail("write replica", s.q.PutReplica(ctx, db.PutReplicaParams{ID: string(r.ID), Known: r.Known}))
}

// DropReplica forgets one.
func (s *Store) DropReplica(ctx context.Context, id fleet.ReplicaID) error {
	return fail("drop replica", s.q.DropReplica(ctx, string(id)))
}

// ReplicaSet is the newest set of replicas that was taken, zero before the first.
func (s *Store) ReplicaSet(ctx context.Context) (fleet.SetVersion, error) {
	row, err := s.q.GetReplicaSet(ctx)
	return fleet.SetVersion{Era: row.Era, Number: row.Version}, fail("read set of replicas", err)
}

// TakeReplicaSet writes what a set changed together with its number, which never falls.
func (s *Store) TakeReplicaSet(ctx context.Context, at fleet.SetVersion, changed []Replica) error {
	return s.write(ctx, "take set of replicas", func(ctx context.Context, q *db.Queries) error {
		for _, r := range changed {
			if err := q.PutReplica(ctx, db.PutReplicaParams{ID: string(r.ID), Known: r.Known}); err != nil {
				return err
			}
		}
		return q.RaiseReplicaSet(ctx, db.RaiseReplicaSetParams{Era: at.Era, Version: at.Number})
	})
}

// ReplicaLogOffset is how far the output of a replica was sent, 0 for one that is not known.
func (s *Store) ReplicaLogOffset(ctx context.Context, id fleet.ReplicaID) (int64, error) {
	at, err := s.q.GetReplicaLogOffset(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, fail("read log offset", err)
}

// SetReplicaLogOffset records how far the output of a replica was sent.
func (s *Store) SetReplicaLogOffset(ctx context.Context, id fleet.ReplicaID, at int64) error {
	return fail("record log offset", s.q.SetReplicaLogOffset(ctx, db.SetReplicaLogOffsetParams{ID: string(id), Position: at}))
}
