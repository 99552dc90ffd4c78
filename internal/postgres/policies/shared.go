package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// find reads shared objects wherever they are: Region "" is this one.
func (s *Store) find(ctx context.Context, q *db.Queries, keys []fleet.CopyKey) ([]*fleet.Object, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	var own db.ObjectsNowParams
	var copied db.CopiesNowParams
	for _, k := range keys {
		if k.Region == "" {
			own.Kinds, own.Scopes, own.Names = append(own.Kinds, string(k.Kind)), append(own.Scopes, k.Scope), append(own.Names, k.Name)
			continue
		}
		copied.Regions, copied.Kinds = append(copied.Regions, string(k.Region)), append(copied.Kinds, string(k.Kind))
		copied.Scopes, copied.Names = append(copied.Scopes, k.Scope), append(copied.Names, k.Name)
	}
	objects, err := q.ObjectsNow(ctx, own)
	if err != nil {
		return nil, err
	}
	copies, err := q.CopiesNow(ctx, copied)
	if err != nil {
		return nil, err
	}
	out := make([]*fleet.Object, 0, len(keys))
	for _, r := range objects {
		o := postgres.ObjectOf(r)
		out = append(out, &o)
	}
	for _, r := range copies {
		o := postgres.CopyOf(r)
		out = append(out, &o)
	}
	return out, nil
}

// refreshShared takes over those of some shared objects that this region is to own (M34), and refreshes the syncing of
// those that it owns. The caller holds their locks.
func (s *Store) refreshShared(ctx context.Context, q *db.Queries, objects []*fleet.Object) (int64, error) {
	taken, err := s.TakeOver(ctx, q, postgres.RegionActor, objects...)
	if err != nil {
		return 0, err
	}
	var own []*fleet.Object
	var writes []postgres.SharedWrite
	for _, o := range objects {
		switch {
		case o.CheckOwner(s.Region) != nil || slices.ContainsFunc(taken, func(t *fleet.Object) bool { return t.UID == o.UID }):
			continue
		case o.Region == "":
			own = append(own, o)
			continue
		}
		governed, err := s.Govern(ctx, q, o)
		if err != nil {
			return 0, err
		}
		if governed[0].Same {
			continue
		}
		after := *o
		after.Syncing = governed[0].Syncing
		writes = append(writes, postgres.SharedWrite{Type: "updated", Before: o, After: &after})
	}
	if err := postgres.SaveShared(ctx, q, postgres.RegionActor, writes); err != nil {
		return 0, err
	}
	n, err := s.refresh(ctx, q, own)
	return n + int64(len(writes)+len(taken)), err
}

// endHandOver ends the requests for a hand-over that has ended. Its name may be that of several holders.
func (p *page) endHandOver(ctx context.Context, subject string) error {
	all, err := p.s.named(ctx, p.q, p.visit.Holder())
	if err != nil {
		return err
	}
	var owners []string
	for _, o := range all {
		if o.Version.OwnerEpoch > 0 {
			owners = append(owners, fmt.Sprintf("region %s owns %s in epoch %d", o.SyncingNow().OwningRegion, o.ObjectKey, o.Version.OwnerEpoch))
		}
	}
	if len(owners) == 0 {
		return postgres.EndOperations(ctx, p.q, subject, p.deleted())
	}
	return postgres.EndOperations(ctx, p.q, subject, postgres.Ending{
		Kind: fleet.OperationHandOver, State: fleet.OperationSucceeded, Reason: "claimed", Message: strings.Join(owners, "; "),
	})
}
