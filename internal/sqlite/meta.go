package sqlite

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/sqlite/db"
)

// Right is what a node may do in its site: its role at an epoch.
type Right struct {
	Role  fleet.Role
	Epoch int64
}

// Meta is what the node knows about itself.
type Meta struct {
	Right
	Holder      fleet.NodeName // of the lease at Epoch, as far as the node was told
	Region      string
	LastStartID string
}

// Meta reads what the node knows about itself.
func (s *Store) Meta(ctx context.Context) (Meta, error) {
	row, err := s.q.GetMeta(ctx)
	if err != nil {
		return Meta{}, fail("read node meta", err)
	}
	return Meta{
		Right:  Right{Role: fleet.Role(row.Role), Epoch: row.Epoch},
		Holder: fleet.NodeName(row.Holder), Region: row.Region, LastStartID: row.StartID,
	}, nil
}

// Adopt takes a role at a higher epoch and says whether it did; an epoch that is not higher
// changes nothing. Before and after let the caller see a change of role.
func (s *Store) Adopt(ctx context.Context, right Right, holder fleet.NodeName) (before, after Meta, err error) {
	if before, err = s.Meta(ctx); err != nil {
		return before, before, err
	}
	err = s.write(ctx, "adopt epoch", func(q *db.Queries) error {
		_, err := q.AdoptEpoch(ctx, db.AdoptEpochParams{
			Role: string(right.Role), Epoch: right.Epoch, Holder: string(holder),
		})
		return err
	})
	if err != nil {
		return before, before, err
	}
	after, err = s.Meta(ctx)
	return before, after, err
}

// SetRegion records which region enrolled the node.
func (s *Store) SetRegion(ctx context.Context, region string) error {
	return fail("record region", s.q.SetRegion(ctx, region))
}

// SetStartID records the start that the region is being told of.
func (s *Store) SetStartID(ctx context.Context, id string) error {
	return fail("record start", s.q.SetStartID(ctx, id))
}
