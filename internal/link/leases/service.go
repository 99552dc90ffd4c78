package leases

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// Store stores the region's votes. Errors are *fleet.Error.
type Store interface {
	Votes(ctx context.Context) ([]nodes.SiteVote, error)
	VoteOf(ctx context.Context, site fleet.SiteName) (nodes.SiteVote, error)
	// CastVote is false, and changes nothing, if the stored vote has changed.
	CastVote(ctx context.Context, c nodes.VoteChange, actor string) (written bool, err error)
	// RenewVotes returns the sites that it wrote; it skips locked ones.
	RenewVotes(ctx context.Context, all []nodes.VoteChange) ([]fleet.SiteName, error)
	FollowVote(ctx context.Context, site fleet.SiteName, node fleet.NodeName, epoch int64, ttl time.Duration) error
}

// Options configure the service.
type Options struct {
	Store Store
	// Timing has the TTL, which is the heartbeat timeout.
	Timing fleet.LinkTiming
	// Clock counts suspend (boottime.Now).
	Clock func() (lease.Instant, error)
	Now   func() time.Time // for metrics
	// Nonce gives random numbers other than zero.
	Nonce func() int64
	// Caller is the proven node of a call, "" for none.
	Caller func(ctx context.Context) fleet.NodeName
	// Refuse audits a refusal.
	Refuse  func(ctx context.Context, reason, what string)
	Status  func(error) error // the gRPC status of an error
	Log     *slog.Logger
	Metrics *prometheus.Registry
}

// Service is one server's part of the region's votes.
type Service struct {
	nodev1.UnimplementedLeasesServer
	o       Options
	batch   *batch
	metrics *metrics

	mu     sync.Mutex // never held across I/O
	booths map[fleet.SiteName]*booth

	later sync.WaitGroup // ticks that wait for a busy vote
}

const (
	// tickEvery is how often all votes are read.
	tickEvery = time.Second
	// leastLate is the shortest gap between two ticks that counts as a pause. A skipped tick because of a busy vote
	// is not a pause, even if the next one is slightly late.
	leastLate = 5 * tickEvery / 2
	// storeLimit is how long a call to the store may take.
	storeLimit = 3 * time.Second
	// castTries limits how often a vote is read and handled again.
	castTries = 8
)

// New makes the service; Run makes it work.
func New(o Options) (*Service, error) {
	s := &Service{o: o, batch: newBatch(), booths: map[fleet.SiteName]*booth{}}
	var err error
	s.metrics, err = newMetrics(o.Metrics)
	return s, err
}

// Vote answers a candidate's call, after the change is stored.
func (s *Service) Vote(ctx context.Context, in *nodev1.VoteRequest) (*nodev1.VoteResponse, error) {
	who := s.o.Caller(ctx)
	call, q := requestOf(in)
	if who == "" || who != q.Candidate {
		s.o.Refuse(ctx, "not_the_candidate", "Vote "+in.GetSite())
		return nil, s.o.Status(fleet.Errorf(fleet.Denied, "the caller is not the candidate").At("candidate"))
	}
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	answer, err := s.vote(ctx, call, q)
	if err != nil {
		s.metrics.votes.WithLabelValues(string(call), "failed").Inc()
		return nil, s.o.Status(err)
	}
	s.metrics.votes.WithLabelValues(string(call), string(answer.Reason)).Inc()
	return responseOf(answer), nil
}

// Tell accepts the epoch of a site's only node.
func (s *Service) Tell(ctx context.Context, in *nodev1.TellRequest) (*nodev1.TellResponse, error) {
	who := s.o.Caller(ctx)
	if who == "" || in.GetEpoch() <= 0 {
		return nil, s.o.Status(fleet.Errorf(fleet.Invalid, "invalid epoch: want more than 0").At("epoch"))
	}
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	err := s.o.Store.FollowVote(ctx, fleet.SiteName(in.GetSite()), who, in.GetEpoch(), s.o.Timing.HeartbeatTimeout)
	switch fleet.KindOf(err) { //nolint:exhaustive // what an honest node does not get
	case fleet.Denied:
		s.o.Refuse(ctx, "not_alone", "Tell "+in.GetSite())
	case fleet.Invalid:
		s.o.Refuse(ctx, "bad_epoch", "Tell "+in.GetSite()+" "+strconv.FormatInt(in.GetEpoch(), 10))
	}
	if err != nil {
		return nil, s.o.Status(err)
	}
	return &nodev1.TellResponse{}, nil
}

// vote handles a call in the site's booth.
func (s *Service) vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error) {
	nothing := lease.Answer{Voter: lease.Region, Reason: lease.NotAVoter}
	answer, stranger := nothing, false
	err := s.within(ctx, q.Site, func(b *booth) error {
		if !b.votes() {
			return nil
		}
		return s.change(ctx, b, "node:"+string(q.Candidate), func(v lease.Voter, now lease.Instant) (lease.Voter, bool) {
			v, a, changed := v.Handle(call, q, now)
			answer, stranger = a, a.Reason == lease.NotAVoter
			answer.Resets = b.reset
			return v, changed
		})
	})
	if fleet.KindOf(err) == fleet.NotFound && err != nil { // no such site
		stranger, err = true, nil
	}
	if err == nil && stranger { // only the site's own nodes may learn the holder
		s.o.Refuse(ctx, string(lease.NotAVoter), "Vote "+string(q.Site))
		return nothing, nil
	}
	return answer, err
}

// Aim restricts the region's vote to one node, or lifts the restriction with "". Another server may have aimed
// since the last read: the stored state counts.
func (s *Service) Aim(ctx context.Context, site fleet.SiteName, to fleet.NodeName) error {
	return s.within(ctx, site, func(b *booth) error {
		if err := s.look(ctx, b); err != nil {
			return err
		}
		if !b.votes() {
			return nil // its node decides alone
		}
		return s.change(ctx, b, "region", func(v lease.Voter, now lease.Instant) (lease.Voter, bool) { return v.Aim(to, now) })
	})
}

// within runs f in a site's booth, which is created when this server first sees the site.
func (s *Service) within(ctx context.Context, site fleet.SiteName, f func(b *booth) error) error {
	b := s.booth(site)
	if b == nil {
		row, err := s.o.Store.VoteOf(ctx, site)
		if err != nil {
			return err
		}
		b = s.open(site)
		if err := b.enter(ctx); err != nil {
			return err
		}
		defer b.leave()
		if b.pair == nil {
			now, err := s.o.Clock()
			if err != nil {
				return clockFailed(err)
			}
			b.see(row, s.config(), now)
		}
		return f(b)
	}
	if err := b.enter(ctx); err != nil {
		return err
	}
	defer b.leave()
	return f(b)
}

func clockFailed(err error) error { return fleet.Errorf(fleet.Internal, "read the clock: %w", err) }

func (s *Service) booth(site fleet.SiteName) *booth {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.booths[site]
}

func (s *Service) open(site fleet.SiteName) *booth {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.booths[site]
	if b == nil {
		b = newBooth(site)
		s.booths[site] = b
	}
	return b
}

func (s *Service) config() lease.VoterConfig {
	ttl := s.o.Timing.HeartbeatTimeout
	return lease.VoterConfig{TTL: ttl, Late: max(ttl/2, leastLate), Nonce: s.o.Nonce()}
}

// change decides with the current voter and writes the result. If the record has changed since, it reads it and
// decides again. If the write fails, the voter stays as it was, and the next call reads what is stored.
func (s *Service) change(ctx context.Context, b *booth, actor string, decide func(lease.Voter, lease.Instant) (lease.Voter, bool)) error {
	for range castTries {
		now, err := s.o.Clock()
		if err != nil {
			return clockFailed(err)
		}
		next, changed := decide(b.voter, now)
		if !changed {
			b.voter = next
			return nil
		}
		written, err := s.write(ctx, nodes.VoteChange{
			Site: b.site, Was: nodes.Vote(b.voter.Record()), Now: nodes.Vote(next.Record()),
		}, actor)
		if err != nil {
			return err
		}
		if written {
			b.voter = next
			return nil
		}
		if err := s.look(ctx, b); err != nil {
			return err
		}
		if !b.votes() {
			return fleet.Errorf(fleet.Unavailable, "the nodes of site %s have changed", b.site)
		}
	}
	return fleet.Errorf(fleet.Unavailable, "the vote of site %s keeps changing", b.site)
}

// look reads what is stored now.
func (s *Service) look(ctx context.Context, b *booth) error {
	row, err := s.o.Store.VoteOf(ctx, b.site)
	if err != nil {
		return err
	}
	now, err := s.o.Clock()
	if err != nil {
		return clockFailed(err)
	}
	b.see(row, s.config(), now)
	return nil
}

func (s *Service) write(ctx context.Context, c nodes.VoteChange, actor string) (bool, error) {
	if c.Renews() {
		return s.renew(ctx, c, actor)
	}
	written, err := s.o.Store.CastVote(ctx, c, actor)
	if written && c.Now.Holder != "" && c.Now.Holder != c.Was.Holder {
		s.metrics.moves.Inc()
		s.o.Log.Info("the lease moved", "site", c.Site, "holder", c.Now.Holder, "epoch", c.Now.Epoch)
	}
	return written, err
}
