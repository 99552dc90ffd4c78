package deliveries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// PutBodies is PutBody for many small bodies: with a few statements, however many they are.
// One that is larger than fleet.MaxBatchBody is put alone.
func (s *Store) PutBodies(ctx context.Context, project fleet.ProjectName, bodies [][]byte) ([]fleet.Hash, error) {
	out := make([]fleet.Hash, len(bodies))
	small := map[fleet.Hash][]byte{}
	for i, b := range bodies {
		if len(b) > fleet.MaxBatchBody {
			h, err := s.PutBody(ctx, project, b)
			if err != nil {
				return nil, err
			}
			out[i] = h
			continue
		}
		sum := sha256.Sum256(b)
		out[i] = postgres.HashText(sum[:])
		small[out[i]] = b
	}
	// In the order of their hashes, so that two at once wait for each other in one direction.
	order := slices.Sorted(maps.Keys(small))
	for len(order) > 0 {
		n := groupOf(order, func(h fleet.Hash) int { return len(small[h]) }, fleet.MaxBatchBytes)
		if err := s.putGroup(ctx, project, order[:n], small); err != nil {
			return nil, err
		}
		order = order[n:]
	}
	return out, nil
}

// groupOf counts how many of the first come to at most so many bytes; one at least.
func groupOf[T any](of []T, size func(T) int, most int) int {
	sum := 0
	for i, v := range of {
		if sum += size(v); sum > most && i > 0 {
			return i
		}
	}
	return len(of)
}

func (s *Store) putGroup(ctx context.Context, project fleet.ProjectName, hashes []fleet.Hash, bodies map[fleet.Hash][]byte) error {
	all := postgres.HashesBytes(hashes)
	err := s.Tx(ctx, func(q *db.Queries) error {
		if err := q.CommitLater(ctx); err != nil { // as for one: the change that refers to them flushes both
			return err
		}
		known, err := insertBodies(ctx, q, project, all, bodies)
		if err != nil || len(known) == 0 {
			return err
		}
		return q.AllowBodies(ctx, db.AllowBodiesParams{Project: string(project), Hashes: known})
	})
	if err != nil {
		return err
	}
	for _, h := range hashes {
		s.Recent.Put(h, bodies[h])
	}
	return nil
}

// unknownBodies holds those that are there against the collection, and gives the rest.
func unknownBodies(ctx context.Context, q *db.Queries, hashes [][]byte) ([][]byte, error) {
	_, unknown, err := useBodies(ctx, q, hashes)
	return unknown, err
}

func useBodies(ctx context.Context, q *db.Queries, hashes [][]byte) (known, unknown [][]byte, err error) {
	if known, err = q.UseBodies(ctx, hashes); err != nil {
		return nil, nil, err
	}
	is := map[string]bool{}
	for _, h := range known {
		is[string(h)] = true
	}
	for _, h := range hashes {
		if !is[string(h)] {
			unknown = append(unknown, h)
		}
	}
	return known, unknown, nil
}

// insertBodies stores what is not there yet, for a project, and gives what is. It takes the locks of the hashes first, as
// PutBody does, so that two writers of the same bytes store one.
func insertBodies(ctx context.Context, q *db.Queries, of fleet.ProjectName, hashes [][]byte, bodies map[fleet.Hash][]byte) (known [][]byte, err error) {
	locks := map[int64]bool{}
	for _, h := range hashes {
		locks[int64(binary.BigEndian.Uint64(h[:8]))] = false //nolint:gosec // any 64 bits will do
	}
	if err := postgres.LockKeys(ctx, q, locks); err != nil {
		return nil, err
	}
	known, missing, err := useBodies(ctx, q, hashes)
	if err != nil || len(missing) == 0 {
		return known, err
	}
	slices.SortFunc(missing, bytes.Compare)
	p := db.InsertWholeBodiesParams{Project: string(of), Hashes: missing}
	for _, h := range missing {
		p.Bodies = append(p.Bodies, bodies[postgres.HashText(h)])
	}
	return known, q.InsertWholeBodies(ctx, p)
}
