package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// HandOverRequest asks that another region controls a policy holder. With Force, this region claims it without its owner.
type HandOverRequest struct {
	postgres.Request
	Holder fleet.ObjectKey
	Region fleet.RegionName // that created the holder, "" as in a write
	To     fleet.RegionName
	Force  bool
}

// AskHandOver fences the holder here for another region, or claims it by force, and opens the operation that ends with the claim.
func (s *Store) AskHandOver(ctx context.Context, in HandOverRequest) (postgres.Operation, error) {
	return postgres.Only(s.Request(ctx, in.Request, func(q *db.Queries) error {
		return postgres.Lock(ctx, q, []fleet.ObjectKey{in.Holder})
	}, func(q *db.Queries) ([]postgres.Operation, error) {
		o, err := s.FindNamed(ctx, q, fleet.CopyKey{Region: in.Region, ObjectKey: in.Holder})
		if err != nil {
			return nil, err
		}
		if o == nil || in.Project != "" && o.Project != in.Project {
			return nil, fleet.NoObject(in.Holder)
		}
		policy, err := s.mayHandOver(o, in)
		if err != nil {
			return nil, err
		}
		start := s.fence
		if in.Force {
			start = s.force
		}
		if err := start(ctx, q, o, policy, in); err != nil {
			return nil, err
		}
		p := db.WantPolicyTurnParams{Kind: string(in.Holder.Kind), Name: in.Holder.Name, Generation: o.Generation, Restart: in.Force}
		if err := q.WantPolicyTurn(ctx, p); err != nil {
			return nil, err
		}
		op, err := postgres.OpenOperation(ctx, q, in.Request, postgres.NewOperation{
			Kind: fleet.OperationHandOver, Name: in.Holder.Name, Subject: fleet.PolicySubject(in.Holder), Project: o.Project, Forced: in.Force,
		})
		return []postgres.Operation{op}, err
	}))
}

// mayHandOver refuses what the policy of the holder does not allow, and gives that policy.
func (s *Store) mayHandOver(o *fleet.Object, in HandOverRequest) (*fleet.MultiRegionPolicy, error) {
	spec, err := fleet.HolderOf(o.Kind, o.Spec)
	if err != nil {
		return nil, err
	}
	policy, owner, to := spec.MultiRegionPolicy, o.SyncingNow().OwningRegion, string(in.To)
	switch {
	case policy == nil:
		return nil, fleet.Errorf(fleet.IllegalState, "%s has no policy of its own", in.Holder).
			WithHint("hand over its organization or project, or declare its multiRegionPolicy")
	case !slices.Contains(policy.EnabledRegions, to):
		return nil, fleet.Errorf(fleet.Invalid, "region %.80q is not enabled by the policy of %s; use %s", to, in.Holder, fleet.OrList(policy.EnabledRegions)).At("/to")
	case owner == to:
		return nil, fleet.Errorf(fleet.IllegalState, "region %s controls %s already", to, in.Holder).At("/to")
	case in.Force && to != s.Region:
		return nil, fleet.Errorf(fleet.Invalid, "a forced hand-over is a claim by the new region itself; this is region %s", s.Region).At("/force").
			WithHint("send it to region " + to)
	case !in.Force:
		return policy, o.CheckOwner(s.Region)
	}
	return policy, nil
}

// fence writes the holder for the last time, with the new control region in its policy. A fence for the same region stands.
func (s *Store) fence(ctx context.Context, q *db.Queries, o *fleet.Object, policy *fleet.MultiRegionPolicy, in HandOverRequest) error {
	if f := o.SyncingNow().Fence; f != nil {
		if f.To == string(in.To) {
			return nil
		}
		return fleet.Errorf(fleet.IllegalState, "%s is being handed over to region %s", in.Holder, f.To).At("/to").
			WithHint("cancel that operation first, or wait for its end")
	}
	next, err := withControl(o, policy, string(in.To))
	if err != nil {
		return err
	}
	w := postgres.Write{Request: in.Request, Key: in.Holder, Region: o.Named(s.Region).Region, Labels: o.Labels, Service: o.Service}
	w.Project, w.Idempotency = o.Project, postgres.Idempotency{}
	out, err := s.Write(ctx, q, w, json.RawMessage(next))
	if err != nil {
		return err
	}
	return HolderWritten(ctx, q, w, nil, out)
}

// withControl is the spec of a holder with another control region.
func withControl(o *fleet.Object, policy *fleet.MultiRegionPolicy, region string) (json.RawMessage, error) {
	var spec map[string]json.RawMessage // keeps what a newer build wrote
	if err := json.Unmarshal(o.Spec, &spec); err != nil {
		return nil, postgres.Unreadable("the spec of "+o.String(), err)
	}
	changed := *policy
	changed.DefaultControlRegion = region
	b, err := json.Marshal(changed)
	if err != nil {
		return nil, err
	}
	spec["multiRegionPolicy"] = b
	out, err := json.Marshal(spec)
	return out, err
}

// force claims the holder as this region knows it. What its owner wrote later is listed there when it returns.
func (s *Store) force(ctx context.Context, q *db.Queries, o *fleet.Object, policy *fleet.MultiRegionPolicy, in HandOverRequest) error {
	spec, err := withControl(o, policy, s.Region)
	if err != nil {
		return err
	}
	renounced, err := s.renounced(ctx, q, o)
	if err != nil {
		return err
	}
	next := *o
	if !postgres.SameJSON(o.Spec, spec) {
		next.Spec, next.Generation = spec, o.Generation+1
	}
	_, err = s.ClaimHolder(ctx, q, in.Actor, o, &next, max(o.Version.OwnerEpoch, renounced)+1)
	return err
}

func (s *Store) renounced(ctx context.Context, q *db.Queries, o *fleet.Object) (int64, error) {
	epoch, err := q.RenouncedEpoch(ctx, db.RenouncedEpochParams{Region: s.birth(o), Kind: string(o.Kind), Name: o.Name})
	if postgres.NoRows(err) {
		return 0, nil
	}
	return epoch, err
}

// birth is the region that created an object.
func (s *Store) birth(o *fleet.Object) string {
	return string(o.Named(s.Region).Region)
}

// RenounceOf is what the new owner has to renounce before a hand-over is cancelled; nil when none is under way.
func (s *Store) RenounceOf(ctx context.Context, holder fleet.ObjectKey) (to fleet.RegionName, out *fleet.Renounce, err error) {
	all, err := s.named(ctx, s.Q, holder)
	if err != nil {
		return "", nil, err
	}
	for _, o := range all {
		if share := o.SyncingNow(); share.OwningRegion == s.Region && share.Fence != nil {
			return fleet.RegionName(share.Fence.To), &fleet.Renounce{
				Region: fleet.RegionName(s.birth(o)), Kind: o.Kind, Name: o.Name, Epoch: share.Fence.Epoch,
			}, nil
		}
	}
	return "", nil, nil
}

// Renounce promises the owner of a holder not to claim it in an epoch. It is illegal_state when this region has claimed it.
func (s *Store) Renounce(ctx context.Context, peer fleet.RegionName, r fleet.Renounce) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{r.Holder()}); err != nil {
			return err
		}
		all, err := s.named(ctx, q, r.Holder())
		if err != nil {
			return err
		}
		for _, o := range all {
			owner := o.SyncingNow().OwningRegion
			switch {
			case s.birth(o) != string(r.Region):
			case owner == s.Region && o.Version.OwnerEpoch >= r.Epoch:
				return fleet.Errorf(fleet.IllegalState, "region %s has claimed %s in epoch %d", s.Region, r.Holder(), o.Version.OwnerEpoch)
			case owner != string(peer):
				return fleet.Errorf(fleet.Denied, "region %s does not own %s; region %s does", peer, r.Holder(), owner)
			}
		}
		gone, err := q.HoldersGone(ctx, db.HoldersGoneParams{Kinds: []string{string(r.Kind)}, Names: []string{r.Name}})
		if err != nil {
			return err
		}
		for _, g := range gone {
			if g.Region == string(r.Region) && g.Owner == s.Region && g.OwnerEpoch >= r.Epoch {
				return fleet.Errorf(fleet.IllegalState, "region %s has claimed %s in epoch %d, and deleted it", s.Region, r.Holder(), g.OwnerEpoch)
			}
		}
		p := db.RenounceParams{Region: string(r.Region), Kind: string(r.Kind), Name: r.Name, Epoch: r.Epoch}
		return q.Renounce(ctx, p)
	})
}

// TakeBack ends a hand-over that the new owner has renounced: this region controls the holder again, in the epoch after that
// of the fence.
func (s *Store) TakeBack(ctx context.Context, r fleet.Renounce) error {
	key := r.Holder()
	return s.Tx(ctx, func(q *db.Queries) error {
		if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
			return err
		}
		all, err := s.named(ctx, q, key)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(o *fleet.Object) bool { return s.birth(o) == string(r.Region) })
		if at < 0 {
			return nil // deleted by now
		}
		o := all[at]
		if f := o.SyncingNow().Fence; o.CheckOwner(s.Region) != nil || f == nil || f.Epoch != r.Epoch {
			return nil // done before
		}
		spec, err := fleet.HolderOf(o.Kind, o.Spec)
		if err != nil {
			return err
		}
		next := *o
		if next.Spec, err = withControl(o, spec.MultiRegionPolicy, s.Region); err != nil {
			return err
		}
		next.Generation++
		if _, err := s.ClaimHolder(ctx, q, postgres.RegionActor, o, &next, r.Epoch+1); err != nil {
			return err
		}
		p := db.WantPolicyTurnParams{Kind: string(o.Kind), Name: o.Name, Generation: next.Generation, Restart: true}
		if err := q.WantPolicyTurn(ctx, p); err != nil {
			return err
		}
		return postgres.EndOperations(ctx, q, fleet.PolicySubject(key), postgres.Ending{
			Kind: fleet.OperationHandOver, State: fleet.OperationCancelled, Reason: "cancelled",
			Message: fmt.Sprintf("region %s renounced; region %s controls %s in epoch %d", o.SyncingNow().Fence.To, s.Region, key, r.Epoch+1),
		})
	})
}
