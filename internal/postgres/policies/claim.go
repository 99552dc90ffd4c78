package policies

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// inSync reports whether this region has applied all that a peer wrote up to a place in the peer's feed.
func (s *Store) inSync(ctx context.Context, q *db.Queries, peer, after string) (bool, error) {
	fence, err := postgres.ParseCursor(after)
	if err != nil {
		return false, err
	}
	position, err := q.StreamPosition(ctx, peer)
	if postgres.NoRows(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	at, is := postgres.PlaceOfToken(position)
	return is && !at.Before(fence), nil
}

// compared reports whether this region has compared with the old owner of a holder since its fence arrived, and asks for that.
func (s *Store) compared(ctx context.Context, q *db.Queries, o *fleet.Object, peer string, epoch int64) (bool, error) {
	is, err := q.ClaimCompared(ctx, db.ClaimComparedParams{Region: s.birth(o), Kind: string(o.Kind), Name: o.Name, Epoch: epoch, Peer: peer})
	if !postgres.NoRows(err) {
		return is, err
	}
	wanted, err := postgres.WantSync(ctx, q, peer, false)
	if err != nil {
		return false, err
	}
	return false, q.WantClaimCompared(ctx, db.WantClaimComparedParams{
		Region: s.birth(o), Kind: string(o.Kind), Name: o.Name, Epoch: epoch, Peer: peer, Wanted: wanted,
	})
}

// handOver claims the holders of a name that are handed over to this region, and gives what one of them waits for; nil for none.
func (s *Store) handOver(ctx context.Context, v fleet.PolicyVisit) (out *fleet.HandOver, err error) {
	key := v.Holder()
	moving, err := s.moving(ctx, s.Q, key)
	if err != nil || !moving {
		return nil, err
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		out = nil
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		all, err := s.named(ctx, q, key)
		if err != nil {
			return err
		}
		for _, o := range all {
			waits, err := s.move(ctx, q, o)
			if err != nil {
				return err
			}
			if waits != nil {
				out = waits
			}
		}
		if out == nil {
			return nil
		}
		return postgres.NoteWaiting(ctx, q, fleet.PolicySubject(key), fleet.OperationHandOver, out.Waits)
	})
	return out, err
}

// moving reports whether a holder of this name waits for another owner: a read without locks, since it seldom does.
func (s *Store) moving(ctx context.Context, q *db.Queries, key fleet.ObjectKey) (bool, error) {
	rows, err := q.HoldersNamed(ctx, db.HoldersNamedParams{Kinds: []string{string(key.Kind)}, Names: []string{key.Name}})
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		spec, err := fleet.HolderOf(key.Kind, r.Spec)
		if err != nil {
			return false, err
		}
		if p := spec.MultiRegionPolicy; p != nil && (p.DefaultControlRegion == s.Region) != (r.Owner == s.Region) {
			return true, nil
		}
	}
	return false, nil
}

// named are the holders of a name: that of this region, and copies.
func (s *Store) named(ctx context.Context, q *db.Queries, key fleet.ObjectKey) ([]*fleet.Object, error) {
	var out []*fleet.Object
	own, err := postgres.Find(ctx, q, key)
	if err != nil {
		return nil, err
	}
	if own != nil {
		out = append(out, own)
	}
	rows, err := q.CopiesNamed(ctx, db.CopiesNamedParams{Kind: string(key.Kind), Scope: key.Scope, Name: key.Name})
	for _, r := range rows {
		o := postgres.CopyOf(r)
		out = append(out, &o)
	}
	return out, err
}

// move does what a holder waits for, or says what that is; nil when it is where it belongs.
func (s *Store) move(ctx context.Context, q *db.Queries, o *fleet.Object) (*fleet.HandOver, error) {
	spec, err := fleet.HolderOf(o.Kind, o.Spec)
	if err != nil || spec.MultiRegionPolicy == nil {
		return nil, err
	}
	share := o.SyncingNow()
	if share.OwningRegion == s.Region {
		if share.Fence == nil {
			return nil, nil
		}
		return s.awaitClaim(ctx, q, o, *share.Fence)
	}
	if spec.MultiRegionPolicy.DefaultControlRegion != s.Region || share.Fence == nil {
		return nil, nil
	}
	c := decide.Ownership{Self: s.Region, Owner: share.OwningRegion, Kind: o.Kind, Policy: spec.MultiRegionPolicy, Itself: true}
	if c.InSync, err = s.inSync(ctx, q, share.OwningRegion, share.Fence.After); err == nil && c.InSync {
		c.InSync, err = s.compared(ctx, q, o, share.OwningRegion, share.Fence.Epoch)
	}
	if err != nil {
		return nil, err
	}
	renounced, err := s.renounced(ctx, q, o)
	if err != nil {
		return nil, err
	}
	c.Renounced = renounced >= share.Fence.Epoch
	switch step, _ := decide.Owner(c); step {
	case decide.OwnerStays:
		return nil, nil
	case decide.OwnerWaits:
		return &fleet.HandOver{
			To: s.Region, Epoch: share.Fence.Epoch, Waits: "waiting for what region " + share.OwningRegion + " wrote before its fence, and for the comparison with it",
		}, nil
	case decide.OwnerTakes:
	}
	if _, err := s.ClaimHolder(ctx, q, postgres.RegionActor, o, o, share.Fence.Epoch); err != nil {
		return nil, err
	}
	dropped := db.DropClaimComparedParams{Region: s.birth(o), Kind: string(o.Kind), Name: o.Name}
	if err := q.DropClaimCompared(ctx, dropped); err != nil {
		return nil, err
	}
	p := db.WantPolicyTurnParams{Kind: string(o.Kind), Name: o.Name, Generation: o.Generation, Restart: true}
	if err := q.WantPolicyTurn(ctx, p); err != nil {
		return nil, err
	}
	return nil, postgres.PutOutbox(ctx, q, fleet.PolicySubject(o.ObjectKey))
}

// awaitClaim says what the old owner waits for.
func (s *Store) awaitClaim(ctx context.Context, q *db.Queries, o *fleet.Object, f fleet.Fence) (*fleet.HandOver, error) {
	out := &fleet.HandOver{To: f.To, Epoch: f.Epoch, Waits: "waiting for region " + f.To + " to claim it"}
	trouble, err := postgres.PeerTrouble(ctx, q, f.To)
	if err != nil {
		return nil, err
	}
	out.Waits += trouble
	asked, err := q.HandOverAsked(ctx, fleet.PolicySubject(o.ObjectKey))
	if err != nil {
		return nil, err
	}
	out.Cancel = asked.Cancelled > 0 && asked.Asked == 0
	return out, nil
}
