package copies

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// dropAtOnce is how many copies go in one transaction.
const dropAtOnce = 500

// DropPeer takes away all copies of what a disabled peer owns, and all that is known of them, so that a region of its name may
// join again with another database. It is illegal for a peer that is followed.
func (s *Store) DropPeer(ctx context.Context, peer fleet.RegionName) error {
	for more := true; more; {
		err := s.Tx(ctx, func(q *db.Queries) error {
			more = false
			if err := leftAlone(ctx, q, peer); err != nil {
				return err
			}
			rows, err := q.WatchCopies(ctx, db.WatchCopiesParams{WantedOwner: string(peer), MaxRows: dropAtOnce})
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return q.ForgetPeer(ctx, string(peer))
			}
			more = true
			return s.drop(ctx, q, peer, copiesOf(rows))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func leftAlone(ctx context.Context, q *db.Queries, peer fleet.RegionName) error {
	enabled, err := q.MemberEnabled(ctx, string(peer))
	switch {
	case postgres.NoRows(err):
		return fleet.Errorf(fleet.NotFound, "region %s is not a peer", peer).At("name").WithHint("holdfast get regions")
	case err != nil:
		return err
	case enabled:
		return fleet.Errorf(fleet.IllegalState, "region %s is followed, so its copies would come back", peer).
			WithHint("disable it first: holdfast region disable " + string(peer))
	}
	return nil
}

func (s *Store) drop(ctx context.Context, q *db.Queries, peer fleet.RegionName, all []fleet.Object) error {
	a := s.applying(q, peer)
	ended := make([]fleet.CopyChange, len(all))
	for i, o := range all {
		ended[i] = fleet.CopyChange{Key: keyOf(o), Version: o.Version, End: fleet.CopyRemoved}
	}
	read := func(ctx context.Context, changes []fleet.CopyChange) error { return a.read(ctx, q, changes) }
	for _, step := range []func(context.Context, []fleet.CopyChange) error{a.lockHolders, read, a.end, a.turnPolicies} {
		if err := step(ctx, ended); err != nil {
			return err
		}
	}
	return nil
}
