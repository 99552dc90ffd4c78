package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// Replica is a row of the node's state of its replicas; Known is the keeper's JSON.
type Replica struct {
	ID    fleet.ReplicaID
	Known []byte
}

// Replicas lists them, ordered by id.
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

// PutReplica writes the state of one; the offset of its output stays.
func (s *Store) PutReplica(ctx context.Context, r Replica) error {
	return fail("write replica", s.q.PutReplica(ctx, db.PutReplicaParams{ID: string(r.ID), Known: r.Known}))
}

// DropReplica removes one.
func (s *Store) DropReplica(ctx context.Context, id fleet.ReplicaID) error {
	return fail("drop replica", s.q.DropReplica(ctx, string(id)))
}

// ReplicaSet is the version of the newest set of replicas that was stored, zero before the first.
func (s *Store) ReplicaSet(ctx context.Context) (fleet.SetVersion, error) {
	row, err := s.q.GetReplicaSet(ctx)
	return fleet.SetVersion{Era: row.Era, Number: row.Version}, fail("read set of replicas", err)
}

// TakeReplicaSet writes the changes of a set together with its version, which never falls.
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

// ReplicaLogOffset is the offset up to which the output of a replica was sent, 0 for an unknown one.
func (s *Store) ReplicaLogOffset(ctx context.Context, id fleet.ReplicaID) (int64, error) {
	at, err := s.q.GetReplicaLogOffset(ctx, string(id))
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return at, fail("read log offset", err)
}

// SetReplicaLogOffset records the offset up to which the output of a replica was sent.
func (s *Store) SetReplicaLogOffset(ctx context.Context, id fleet.ReplicaID, at int64) error {
	return fail("record log offset", s.q.SetReplicaLogOffset(ctx, db.SetReplicaLogOffsetParams{ID: string(id), Position: at}))
}
