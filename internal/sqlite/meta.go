package sqlite

import (
	"context"
	"errors"
	"time"

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
	Holder      fleet.NodeName // of the lease at Epoch, as far as the node knows
	Region      string
	LastStartID string
	Resets      int64 // the number of the last reset of the site's votes that the store followed
}

// Meta gives what the node knows about itself; only this process writes it, so it is read once.
func (s *Store) Meta(ctx context.Context) (Meta, error) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	return s.metaLocked(ctx)
}

func (s *Store) metaLocked(ctx context.Context) (Meta, error) {
	if s.meta != nil {
		return *s.meta, nil
	}
	row, err := s.q.GetMeta(ctx)
	if err != nil {
		return Meta{}, fail("read node meta", err)
	}
	s.meta = &Meta{
		Right:  Right{Role: fleet.Role(row.Role), Epoch: row.Epoch},
		Holder: fleet.NodeName(row.Holder), Region: row.Region, LastStartID: row.StartID, Resets: row.Resets,
	}
	return *s.meta, nil
}

// Adopt takes a role at a higher epoch; an epoch that is not higher changes nothing. From before and after the
// caller sees a change of role.
func (s *Store) Adopt(ctx context.Context, right Right, holder fleet.NodeName) (before, after Meta, err error) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	return s.adoptLocked(ctx, right, holder)
}

// AdoptTold is Adopt for an epoch from a command or an answer of the region. After a reset of the site's votes
// it rejects an epoch that is too far ahead: it may be from before the reset.
func (s *Store) AdoptTold(ctx context.Context, right Right, holder fleet.NodeName) (before, after Meta, err error) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	before, err = s.metaLocked(ctx)
	if err == nil && before.Resets > 0 && right.Epoch > before.Epoch+fleet.MaxEpochJump {
		err = fleet.Errorf(fleet.Stale, "epoch %d is far above %d: it is from before the votes were reset", right.Epoch, before.Epoch)
	}
	if err != nil {
		return before, before, err
	}
	return s.adoptLocked(ctx, right, holder)
}

func (s *Store) adoptLocked(ctx context.Context, right Right, holder fleet.NodeName) (before, after Meta, err error) {
	if before, err = s.metaLocked(ctx); err != nil || !before.below(right) {
		return before, before, err
	}
	s.meta = nil // also if the write fails: it may have been committed
	if _, err := s.q.AdoptEpoch(ctx, db.AdoptEpochParams{
		Role: string(right.Role), Epoch: right.Epoch, Holder: string(holder),
	}); err != nil {
		return before, before, fail("adopt epoch", err)
	}
	after, err = s.metaLocked(ctx)
	return before, after, err
}

// below is checked by the statement too: the file decides.
func (m Meta) below(right Right) bool {
	return m.Epoch < right.Epoch || m.Role == "" && m.Epoch == right.Epoch
}

// ResetEpochs follows a reset of the site's votes to an epoch, once per number: it lowers epochs that no vote
// accepts any more to it. It returns the node's epoch before the last reset.
func (s *Store) ResetEpochs(ctx context.Context, number, epoch int64) (from int64, err error) {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta = nil
	far := epoch + fleet.MaxEpochJump/2
	err = s.write(ctx, "reset epochs", func(ctx context.Context, q *db.Queries) error {
		n, err := q.ResetMeta(ctx, db.ResetMetaParams{Epoch: epoch, Far: far, Number: number})
		if err != nil {
			return err
		}
		if n > 0 {
			instances := q.ResetInstances(ctx, db.ResetInstancesParams{Epoch: epoch, Far: far})
			if err := errors.Join(instances, q.ResetSlots(ctx, db.ResetSlotsParams{Epoch: epoch, Far: far})); err != nil {
				return err
			}
		}
		from, err = q.GetResetFrom(ctx)
		return err
	})
	return from, err
}

// SetRegion records which region enrolled the node.
func (s *Store) SetRegion(ctx context.Context, region string) error {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta = nil
	return fail("record region", s.q.SetRegion(ctx, region))
}

// SetStartID records the start that the node reports to the region.
func (s *Store) SetStartID(ctx context.Context, id string) error {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta = nil
	return fail("record start", s.q.SetStartID(ctx, id))
}

// UseCommand records that the node acts on a signed command, until the signature expires. It returns false for one
// that is recorded already, also by an agent that ran before this one.
func (s *Store) UseCommand(ctx context.Context, signed fleet.Signature, now time.Time) (first bool, err error) {
	err = s.write(ctx, "record a used command", func(ctx context.Context, q *db.Queries) error {
		if err := q.ForgetUsedCommands(ctx, now.UnixNano()); err != nil {
			return err
		}
		n, err := q.UseCommand(ctx, db.UseCommandParams{Signature: signed.Value, ExpiresAt: signed.Expires.UnixNano()})
		first = n == 1
		return err
	})
	return first, err
}
