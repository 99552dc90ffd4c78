package postgres

import (
	"context"
	"strings"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// A region whose database was restored knows policies and owners as they were. Until it has compared its copies with each
// enabled peer since, it accepts no write under a policy, unless an operator overrides that.

// Recovered refuses a write of an object under a policy while the region catches up after a restore.
func (s *Store) Recovered(ctx context.Context, q *db.Queries, o *fleet.Object) error {
	if !s.recovering.Load() {
		return nil
	}
	governed, err := s.Govern(ctx, q, o)
	if err != nil {
		return err
	}
	return s.recovered(ctx, q, governed[0].Policies)
}

func (s *Store) recovered(ctx context.Context, q *db.Queries, policies []*fleet.MultiRegionPolicy) error {
	if !s.recovering.Load() || decide.Governing(policies...) == nil {
		return nil
	}
	left, err := s.notCompared(ctx, q)
	if err != nil || len(left) == 0 {
		return err
	}
	return fleet.Errorf(fleet.IllegalState, "region %s was restored, and first compares with region %s", s.Region, strings.Join(left, ", ")).
		WithHint("wait for it (holdfast sync status), disable a peer that is gone, or accept the risk: holdfast region resume-writes " + s.Region)
}

// NotCompared lists the peers that this region has to compare with after a restore, before it accepts writes under a policy.
func (s *Store) NotCompared(ctx context.Context) ([]string, error) {
	if !s.recovering.Load() {
		return nil, nil
	}
	return s.notCompared(ctx, s.Q)
}

func (s *Store) notCompared(ctx context.Context, q *db.Queries) ([]string, error) {
	left, err := q.NotCompared(ctx)
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return left, nil
	}
	if err := s.Q.EndRecovery(ctx); err != nil {
		return nil, err
	}
	s.recovering.Store(false)
	return nil, nil
}

// LookRecovering has a server that runs notice that the database was restored behind it.
func (s *Store) LookRecovering(ctx context.Context) error {
	r, err := s.Q.GetRegion(ctx)
	if err == nil && r.Recovering {
		s.recovering.Store(true)
	}
	return err
}

// ResumeWrites accepts writes under a policy before all peers were compared with after a restore.
func (s *Store) ResumeWrites(ctx context.Context, name fleet.RegionName) error {
	if string(name) != s.Region {
		return fleet.Errorf(fleet.Invalid, "region %s decides that itself: ask one of its servers", name).At("name")
	}
	return s.Q.EndRecovery(ctx)
}

// WantSync has the copies of what a peer owns compared, and gives the number of the request: a comparison whose pass has this
// number, or a higher one, began after it.
func WantSync(ctx context.Context, q *db.Queries, peer string, accept bool) (int64, error) {
	wanted, err := q.WantSync(ctx, db.WantSyncParams{Peer: peer, Accepting: accept})
	if err != nil {
		return 0, err
	}
	return wanted, PutOutbox(ctx, q, fleet.SyncSubject(fleet.RegionName(peer)))
}
