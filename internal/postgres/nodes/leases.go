package nodes

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Vote is the region's vote on who is a site's active node, as lease.Record has it: Holder is
// "" before anybody was granted the lease, and after a release.
type Vote struct {
	Promised   int64
	PromisedTo fleet.NodeName
	Holder     fleet.NodeName
	Epoch      int64
	Counter    int64
	TTL        time.Duration
	Target     fleet.NodeName
	Lost       bool
}

// SiteVote is the vote of one site, and the nodes that vote beside it, by name.
type SiteVote struct {
	Site fleet.SiteName
	Vote Vote
	Pair []fleet.NodeName
	// Resets is the number of the last reset by an operator.
	Resets int64
}

// Unvoted reports that this vote was never cast: its epoch comes from the declaration.
func (v Vote) Unvoted() bool {
	return v.TTL == 0 && v.Counter == 0 && v.PromisedTo == "" && !v.Lost
}

// Votes reads the votes of all sites.
func (s *Store) Votes(ctx context.Context) ([]SiteVote, error) {
	rows, err := s.Q.Votes(ctx)
	out := make([]SiteVote, len(rows))
	for i, r := range rows {
		out[i] = voteOf(r)
	}
	return out, err
}

// VoteOf reads the vote of one site.
func (s *Store) VoteOf(ctx context.Context, site fleet.SiteName) (SiteVote, error) {
	row, err := s.Q.VoteOf(ctx, string(site))
	if postgres.NoRows(err) {
		return SiteVote{}, postgres.OrNotFound(nil, "site", string(site), "holdfast get sites")
	}
	return voteOf(db.VotesRow(row)), err
}

func voteOf(r db.VotesRow) SiteVote {
	out := SiteVote{Site: fleet.SiteName(r.Site), Resets: r.Resets, Vote: Vote{
		Promised: r.Promised, PromisedTo: fleet.NodeName(r.PromisedTo), Holder: fleet.NodeName(r.Holder), Epoch: r.Epoch,
		Counter: r.Counter, TTL: time.Duration(math.Round(r.TtlSeconds*1e6)) * time.Microsecond,
		Target: fleet.NodeName(r.Target), Lost: r.Lost,
	}}
	if r.Released || out.Vote.TTL == 0 {
		out.Vote.Holder = ""
	}
	for _, n := range r.Pair {
		out.Pair = append(out.Pair, fleet.NodeName(n))
	}
	return out
}

// seconds of a TTL, rounded up to what the database keeps.
func seconds(ttl time.Duration) float64 {
	return float64((ttl+time.Microsecond-1)/time.Microsecond) / 1e6
}

// VoteChange is a vote as it was when its voter decided, and as it is to be.
type VoteChange struct {
	Site     fleet.SiteName
	Was, Now Vote
}

// Renews says that the change only prolongs a tenure.
func (c VoteChange) Renews() bool {
	return c.Was.Holder != "" && c.Was.Holder == c.Now.Holder && c.Was.Epoch == c.Now.Epoch && c.Was.Counter < c.Now.Counter &&
		!c.Was.Lost && !c.Now.Lost
}

// moves says that who holds the lease, or by which epoch, becomes another.
func (c VoteChange) moves() bool {
	return c.Now.Holder != "" && (c.Now.Holder != c.Was.Holder || c.Now.Epoch != c.Was.Epoch)
}

// RenewVotes writes renewals of many sites in one statement, and gives those that it wrote.
// One whose vote is not what it was, or is locked just now, is left as it is.
func (s *Store) RenewVotes(ctx context.Context, all []VoteChange) ([]fleet.SiteName, error) {
	var p db.RenewVotesParams
	for _, c := range all {
		p.Sites, p.Holders, p.Epochs = append(p.Sites, string(c.Site)), append(p.Holders, string(c.Was.Holder)), append(p.Epochs, c.Was.Epoch)
		p.WasPromised, p.WasPromisedTo = append(p.WasPromised, c.Was.Promised), append(p.WasPromisedTo, string(c.Was.PromisedTo))
		p.WasCounters, p.WasTtls = append(p.WasCounters, c.Was.Counter), append(p.WasTtls, seconds(c.Was.TTL))
		p.WasTargets, p.Targets = append(p.WasTargets, string(c.Was.Target)), append(p.Targets, string(c.Now.Target))
		p.Promised, p.PromisedTo = append(p.Promised, c.Now.Promised), append(p.PromisedTo, string(c.Now.PromisedTo))
		p.Counters, p.Ttls = append(p.Counters, c.Now.Counter), append(p.Ttls, seconds(c.Now.TTL))
	}
	rows, err := s.Q.RenewVotes(ctx, p)
	out := make([]fleet.SiteName, len(rows))
	for i, r := range rows {
		out[i] = fleet.SiteName(r)
	}
	return out, err
}

// CastVote writes a vote if it is still what it was, and says whether it did. A grant that
// moves the lease brings the new holder what the one before was owed, in the same transaction.
func (s *Store) CastVote(ctx context.Context, c VoteChange, actor string) (written bool, err error) {
	releases := c.Was.Holder != "" && c.Now.Holder == ""
	if !c.moves() && !releases {
		n, err := s.Q.CastVote(ctx, castOf(c))
		return n > 0, err
	}
	err = s.Tx(ctx, func(q *db.Queries) error {
		written = false
		site, before, err := lockSiteLease(ctx, q, c.Site)
		if err != nil || site == nil || before == nil {
			return err
		}
		n, err := q.CastVote(ctx, castOf(c))
		if err != nil || n == 0 {
			return err
		}
		written = true
		if c.moves() {
			if err := handOwed(ctx, q, c.Site, c.Now.Holder); err != nil {
				return err
			}
		}
		return leaseEvent(ctx, q, site, before, actor)
	})
	return written && err == nil, err
}

func castOf(c VoteChange) db.CastVoteParams {
	return db.CastVoteParams{
		Site: string(c.Site), Promised: c.Now.Promised, PromisedTo: string(c.Now.PromisedTo), Epoch: c.Now.Epoch,
		Counter: c.Now.Counter, Ttl: seconds(c.Now.TTL), Target: string(c.Now.Target), Lost: c.Now.Lost, Holder: string(c.Now.Holder),
		Moves:     c.Now.Holder != c.Was.Holder || c.Now.Epoch != c.Was.Epoch,
		WasHolder: string(c.Was.Holder), WasPromised: c.Was.Promised, WasPromisedTo: string(c.Was.PromisedTo), WasEpoch: c.Was.Epoch,
		WasCounter: c.Was.Counter, WasTtl: seconds(c.Was.TTL), WasTarget: string(c.Was.Target), WasLost: c.Was.Lost,
	}
}

// FollowVote writes what a site of one node decided by itself, also when it has its second
// node since, and the region's vote begins from that. It never goes down.
func (s *Store) FollowVote(ctx context.Context, site fleet.SiteName, node fleet.NodeName, epoch int64, ttl time.Duration) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		declared, before, err := lockSiteLease(ctx, q, site)
		if err != nil {
			return err
		}
		if declared == nil || before == nil {
			return postgres.OrNotFound(nil, "site", string(site), "holdfast get sites")
		}
		if err := mayTell(ctx, q, before, node, epoch); err != nil {
			return err
		}
		if before.Epoch == epoch && before.Holder == string(node) && before.Counter > 0 && !before.Lost {
			return nil
		}
		n, err := q.FollowVote(ctx, db.FollowVoteParams{Site: string(site), Holder: string(node), Epoch: epoch, Ttl: seconds(ttl)})
		if err != nil {
			return err
		}
		if n == 0 {
			return fleet.Errorf(fleet.Precondition, "site %s is at epoch %d, above %d", site, before.Epoch, epoch).
				WithHint("use a higher epoch")
		}
		if err := handOwed(ctx, q, site, node); err != nil {
			return err
		}
		return leaseEvent(ctx, q, declared, before, "node:"+string(node))
	})
}

// mayTell refuses who does not decide alone, and an epoch that would use the numbers up.
func mayTell(ctx context.Context, q *db.Queries, l *db.SiteLease, node fleet.NodeName, epoch int64) error {
	pair, err := q.PairNodes(ctx, l.Site)
	if err != nil {
		return err
	}
	if alone := len(pair) == 1 && pair[0].Name == string(node); !alone && !joins(l, node) {
		return fleet.Errorf(fleet.Denied, "node %s is not the only voter of site %s", node, l.Site)
	}
	if epoch-fleet.MaxEpochJump <= l.Promised {
		return nil
	}
	return fleet.Errorf(fleet.Invalid, "epoch %d is far above epoch %d of site %s", epoch, l.Promised, l.Site).At("epoch").
		WithHint("epochs rise by one: if its node's votes are damaged, run holdfast admin reset-votes " + l.Site)
}

// ForceVote makes good a lost vote of the region by an operator's word, who vouches that no epoch
// above floor was given.
func (s *Store) ForceVote(ctx context.Context, site fleet.SiteName, floor int64, actor string) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		declared, before, err := lockSiteLease(ctx, q, site)
		if err != nil {
			return err
		}
		if declared == nil || before == nil {
			return postgres.OrNotFound(nil, "site", string(site), "holdfast get sites")
		}
		n, err := q.ForceVote(ctx, db.ForceVoteParams{Site: string(site), Floor: floor})
		if err != nil {
			return err
		}
		if n == 0 {
			return fleet.Errorf(fleet.IllegalState, "the region's vote on site %s is not lost: it knows epochs up to %d", site, before.Promised).
				WithHint("nothing needs to be forced")
		}
		return leaseEvent(ctx, q, declared, before, actor)
	})
}

// joins says that the vote waits for the word of the node that decided alone until now.
func joins(l *db.SiteLease, node fleet.NodeName) bool {
	return l.Lost && l.PromisedTo == string(node)
}

// lockSiteLease takes the site's lock and reads both; either is nil when it is gone.
func lockSiteLease(ctx context.Context, q *db.Queries, site fleet.SiteName) (*fleet.Object, *db.SiteLease, error) {
	key := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}
	if err := postgres.Lock(ctx, q, []fleet.ObjectKey{key}); err != nil {
		return nil, nil, err
	}
	o, err := postgres.Find(ctx, q, key)
	if err != nil {
		return nil, nil, err
	}
	l, err := q.GetLease(ctx, string(site))
	if postgres.NoRows(err) {
		return o, nil, nil
	}
	return o, &l, err
}

// handOwed gives the holder what the one before was owed and never deployed: only the holder
// can (N60).
func handOwed(ctx context.Context, q *db.Queries, site fleet.SiteName, holder fleet.NodeName) error {
	names, err := q.MoveOwed(ctx, db.MoveOwedParams{Site: string(site), Holder: string(holder)})
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := postgres.PutOutbox(ctx, q, fleet.InstanceSubject(site, fleet.InstanceName(name))); err != nil {
			return err
		}
	}
	return nil
}

// leaseEvent tells from whom to whom the lease went (X17).
func leaseEvent(ctx context.Context, q *db.Queries, site *fleet.Object, was *db.SiteLease, actor string) error {
	now, err := q.FindLease(ctx, site.Name)
	if err != nil {
		return err
	}
	return postgres.AppendStatus(ctx, q, db.AppendEventParams{
		Kind: string(site.Kind), Project: string(site.Project), Name: site.Name, Uid: site.UID, Generation: site.Generation, Actor: actor,
	}, leaseState(was), leaseState(&now))
}

func leaseState(l *db.SiteLease) fleet.LeaseState {
	return fleet.LeaseState{Holder: fleet.NodeName(l.Holder), Epoch: l.Epoch, Released: l.Released}
}

// Lease is which node may be active, by which epoch, and its state. Holder stays
// the last one when it was released.
type Lease struct {
	Holder   fleet.NodeName
	Epoch    int64
	Released bool
	Target   fleet.NodeName // of a forced hand-over
	Lost     bool
	Voted    bool
	Since    time.Time // it is held, or was released
}

// LeaseOf reads the lease of a site, zero when there is none.
func (s *Store) LeaseOf(ctx context.Context, site fleet.SiteName) (Lease, error) {
	r, err := s.Q.LeaseView(ctx, string(site))
	if postgres.NoRows(err) {
		return Lease{}, nil
	}
	return Lease{
		Holder: fleet.NodeName(r.Holder), Epoch: r.Epoch, Released: r.Released, Target: fleet.NodeName(r.Target), Lost: r.Lost,
		Voted: r.Voted != nil && *r.Voted, Since: r.GrantedAt,
	}, err
}
