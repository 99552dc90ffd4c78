package tenure

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// sit takes the node's place among its site's voters, or another one than before. A place
// that stays the same goes on as it is.
func (k *Keeper) sit(now lease.Instant, site *Site) error {
	if site == nil {
		return nil
	}
	at := site.seat(k.opt.Node)
	if !at.votes {
		return k.lower(site) // who holds leaves first: see after
	}
	k.peer.At(peerTarget(at.peer.PeerAddress), PeerAudience(at.peer.Node))
	if k.seated && at.others() == k.seat.others() && site.Resets <= k.resets.Load() {
		k.seat = at
		k.config.OnIsolation, k.config.Cordoned, k.config.Yield = site.OnIsolation, at.cordoned, k.yields(at)
		c, acts := k.candidate.Configure(k.config, now)
		k.carry(c, acts, now)
		return nil
	}
	err := k.open(now, at, site)
	k.broken = err != nil // tried again with the next tick
	return err
}

// open begins voter and candidate from what is durable.
func (k *Keeper) open(now lease.Instant, at seat, site *Site) error {
	cfg := lease.Config{
		Site: k.opt.Site, Self: k.opt.Node, Others: at.others(), TTL: k.opt.TTL, Interval: k.opt.Interval,
		Boot: k.boot, OnIsolation: site.OnIsolation, Cordoned: at.cordoned, Yield: k.yields(at),
	}
	if err := cfg.Validate(); err != nil {
		return err
	}
	state, err := k.load()
	if err != nil {
		return err
	}
	if state, err = k.reset(state, site); err != nil {
		return err
	}
	if err := k.lower(site); err != nil {
		return err
	}
	vote := lease.VoterConfig{Site: cfg.Site, Name: cfg.Self, Others: cfg.Others, TTL: cfg.TTL, Known: state.Known}
	if vote.Nonce, err = nonce(); err != nil {
		return fleet.Errorf(fleet.Internal, "make a nonce: %w", err)
	}
	floor, err := k.opt.Tenant.Floor(k.ctx)
	if err != nil {
		return err
	}
	v := lease.Start(vote, state.Record, now)
	v = v.See(state.Record.Above(floor), now) // a vote that was never cast still need not wait
	c, acts := lease.NewCandidate(cfg, state.Claim, now)
	k.seat, k.seated, k.broken, k.config = at, true, false, cfg
	k.life++
	k.owesTell.told = 0
	k.voter, k.candidate, k.durable, k.follows = v, c, state.Record, follows{state.Resets, state.ResetFrom}
	if !k.keep(v) {
		return fleet.Errorf(fleet.Internal, "the votes cannot be written")
	}
	k.carry(c, acts, now)
	return nil
}

// yields is how long the node lets its peer be the first holder: one that is cordoned does not stand.
func (k *Keeper) yields(at seat) time.Duration {
	if at.first || at.peer.Cordoned {
		return 0
	}
	return 2 * k.opt.TTL
}

func (k *Keeper) votes() string { return filepath.Join(k.opt.Dir, votefile.Name) }

func (k *Keeper) load() (votefile.State, error) {
	state, err := votefile.Load(k.votes(), votefile.State{Site: k.opt.Site, Node: k.opt.Node}, votefile.Enrolled)
	if err != nil && fleet.KindOf(err) == fleet.Gone {
		k.opt.Log.Error("this node's vote is lost", "err", err)
		return state, votefile.Save(k.votes(), state)
	}
	return state, err
}

// reopen begins again from what the disk says, after it was not known.
func (k *Keeper) reopen(now lease.Instant) {
	site := k.site.Load()
	if site == nil || !site.seat(k.opt.Node).votes {
		return
	}
	k.broken = k.open(now, site.seat(k.opt.Node), site) != nil
}

// leave gives a lease back before the node's vote goes.
func (k *Keeper) leave(now lease.Instant, site *Site) {
	if k.candidate.Role() == lease.Holding {
		c, acts := k.candidate.HandOver(now)
		k.carry(c, acts, now)
	}
	if _, holds := k.candidate.Holding(now); holds {
		return
	}
	k.seated, k.seat = false, site.seat(k.opt.Node)
	k.life++
}

// keep makes a new state of the vote durable, or drops it.
func (k *Keeper) keep(v lease.Voter) bool {
	if k.broken || v.Record() != k.durable && !k.save(v.Record(), k.candidate.Claim()) {
		return false
	}
	k.voter = v
	return true
}

func (k *Keeper) save(r lease.Record, c lease.Claim) bool {
	err := votefile.Save(k.votes(), votefile.State{
		Site: k.opt.Site, Node: k.opt.Node, Record: r, Claim: c, Known: k.voter.Known(), Resets: k.follows.reset, ResetFrom: k.follows.from,
	})
	if err != nil {
		k.opt.Log.Error("the votes cannot be written: nothing is granted", "err", err)
		k.broken = true
		return false
	}
	k.durable = r
	return true
}

// handle casts this node's vote.
func (k *Keeper) handle(call lease.Call, q lease.Request, now lease.Instant) (lease.Answer, error) {
	if !k.seated {
		return lease.Answer{Voter: k.opt.Node, Reason: lease.NotAVoter}, nil
	}
	v, answer, _ := k.voter.Handle(call, q, now)
	if !k.keep(v) {
		return lease.Answer{}, fleet.Errorf(fleet.Unavailable, "the vote cannot be written")
	}
	if call == lease.Release && answer.Granted {
		k.candidate = k.candidate.Freed(now) // one that was waiting for the holder need not any more
	}
	return answer, nil
}

// carry takes over a candidate, once what must be is durable, and sends what it wants sent.
// What runs is the hand's, which is told the state and not the steps.
func (k *Keeper) carry(c lease.Candidate, acts []lease.Action, now lease.Instant) {
	for _, a := range acts {
		if a.Do == lease.DoPersist && (k.broken || !k.save(k.voter.Record(), c.Claim())) {
			return
		}
	}
	k.candidate = c
	for _, a := range acts {
		switch a.Do {
		case lease.DoSend:
			k.send(a.Send, now)
		case lease.DoLost:
			k.lapses++
			if a.Epoch > 0 {
				k.expired++
				k.opt.Log.Warn("the lease ended", "epoch", a.Epoch)
			}
		case lease.DoStart, lease.DoUnbounded:
			k.opt.Log.Info("this node holds the lease", "epoch", a.Epoch, "unbounded", a.Do == lease.DoUnbounded)
		case lease.DoStop:
			k.opt.Log.Info("this node hands the lease over", "epoch", a.Epoch)
		case lease.DoPersist, lease.DoExtend:
		}
	}
}

// send asks a voter. The node's own answers at once; for another a goroutine waits, no longer
// than its answer is worth.
func (k *Keeper) send(s lease.Send, now lease.Instant) {
	s.Request.Vote = k.voter.Record().Standing()
	if s.Call == lease.Release {
		k.releases[s.To] = true
	}
	if s.To == k.opt.Node {
		if answer, err := k.handle(s.Call, s.Request, now); err == nil {
			k.answered(s, answer, now)
		}
		return
	}
	voter, life := k.voterOf(s.To), k.life
	if voter == nil {
		return
	}
	running := k.ctx
	k.calls.Go(func() {
		ctx, cancel := context.WithTimeout(running, 2*k.opt.Interval)
		defer cancel()
		answer, err := voter.Vote(ctx, s.Call, s.Request)
		_ = k.post(running, func(now lease.Instant) { // without it the answer is as lost as on its way
			if life != k.life {
				return
			}
			if err != nil {
				k.unanswered(s, err, now)
				return
			}
			if s.To != lease.Region {
				k.trouble = trouble{}
			} else if answer.Resets < k.resets.Load() { // its numbers are those from before the reset
				k.answers[s.To] = notReset
				delete(k.releases, s.To)
				return
			}
			if s.To != lease.Region && k.seat.peer.newest() == nil { // it is told who holds, and not believed
				k.answers[s.To] = revoked
				delete(k.releases, s.To)
				return
			}
			k.answered(s, answer, now)
		})
	})
}

// What a voter's last word is called that gave no answer.
const (
	notReached lease.Reason = "not_reached"
	refused    lease.Reason = "refused"
	revoked    lease.Reason = "revoked"   // or not enrolled yet: its answers do not count
	notReset   lease.Reason = "not_reset" // the server has not seen the reset yet that this node followed
)

// unanswered takes in that a call came to nothing. Who was refused has reached the voter: its key
// is void there, which is no vote, but no isolation either.
func (k *Keeper) unanswered(s lease.Send, err error, now lease.Instant) {
	k.opt.Log.Debug("a voter did not answer", "voter", s.To, "call", s.Call, "err", err)
	k.complain(s.To, err)
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.PermissionDenied {
		k.answers[s.To] = notReached
		return
	}
	if k.answers[s.To] != refused {
		k.opt.Log.Warn("a voter refuses this node: is its key revoked, or its clock wrong?", "voter", s.To, "err", err)
	}
	k.answers[s.To] = refused
	c, acts := k.candidate.Refused(s, now)
	k.carry(c, acts, now)
}

// trouble is what keeps the peer from answering, as far as TLS is the cause.
type trouble struct {
	hint  string
	times int // in a row
}

// troubleCounts is how often it takes the same trouble: a peer that is killed may look like
// that once.
const troubleCounts = 3

// complain says once what is wrong with the TLS of the two nodes; votes are tried on.
func (k *Keeper) complain(voter fleet.NodeName, err error) {
	if voter == lease.Region {
		return
	}
	hint := certs.PeerHint(err)
	if hint == "" || hint != k.trouble.hint {
		k.trouble = trouble{hint: hint}
	}
	k.trouble.times++
	if hint != "" && k.trouble.times == troubleCounts {
		k.opt.Log.Error("the peer gives no vote", "peer", voter, "at", k.seat.peer.PeerAddress, "err", err, "hint", hint)
	}
}

func (k *Keeper) voterOf(name fleet.NodeName) interface {
	Vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error)
} {
	if name == lease.Region {
		if k.opt.Region == nil {
			return nil
		}
		return k.opt.Region
	}
	return k.peer
}

func (k *Keeper) answered(s lease.Send, a lease.Answer, now lease.Instant) {
	if a.Voter != s.To {
		return // an answer of somebody else
	}
	k.answers[s.To] = a.Reason
	k.countRefused(s, a)
	if s.Call == lease.Release {
		delete(k.releases, s.To)
	}
	if s.To != k.opt.Node {
		v, _ := k.voter.Hear(a, s.At, now)
		k.keep(v)
	}
	if s.To == lease.Region { // who holds by the word of the peer alone may be anybody
		k.hear(a.Vote)
	}
	c, acts := k.candidate.Answered(s, a, now)
	k.carry(c, acts, now)
}

// listen learns from this node's own vote who else holds; the region says it too.
func (k *Keeper) listen() {
	if k.seated {
		k.hear(k.voter.Record().Standing())
	}
}

func (k *Keeper) hear(s lease.Standing) {
	if s.Holder != "" && s.Holder != k.opt.Node && s.Epoch > k.foreign.epoch {
		k.foreign = elsewhere{s.Holder, s.Epoch}
	}
}

// desire is what should be, in the words of the hand.
func (k *Keeper) desire(now lease.Instant) desire {
	d := desire{lapses: k.lapses, resets: k.resets.Load(), elsewhere: k.foreign}
	if site := k.site.Load(); site != nil && !k.seated {
		at := site.seat(k.opt.Node)
		d.idle = at.member && !at.votes
	}
	if !k.seated {
		return d
	}
	t, holds := k.candidate.Holding(now)
	if !holds {
		d.lapsed = k.candidate.Lapsed()
		return d
	}
	d.holding, d.epoch, d.until, d.unbounded = true, t.Epoch, t.Until, t.Unbounded
	d.releasing = k.candidate.Role() == lease.Releasing
	d.patient = k.config.OnIsolation == lease.IsolationRun && k.seat.peer.Node != ""
	return d
}

// tale is what the region knows of a site that decides alone.
type tale struct {
	told    int64
	telling bool
	next    lease.Instant
}

// tell tells the region the epoch of a site with one node. It repeats that after a second node was declared, as
// the region's vote is lost until it hears the epoch.
func (k *Keeper) tell(now lease.Instant) {
	t, holds := lease.Tenure{}, false
	alone := k.seat.peer.Node == ""
	if k.seated && (alone || k.answers[lease.Region] == lease.Lost) && k.opt.Region != nil {
		t, holds = k.candidate.Holding(now)
	}
	if !holds || t.Epoch == k.owesTell.told || k.owesTell.telling || now < k.owesTell.next {
		return
	}
	k.owesTell.telling, k.owesTell.next = true, now.Add(k.opt.Interval)
	running := k.ctx
	k.calls.Go(func() {
		ctx, cancel := context.WithTimeout(running, 2*k.opt.Interval)
		defer cancel()
		err := k.opt.Region.Tell(ctx, k.opt.Site, t.Epoch)
		_ = k.post(running, func(lease.Instant) {
			k.owesTell.telling = false
			if err == nil || !alone && status.Code(err) == codes.PermissionDenied { // it waits for both nodes' votes
				k.owesTell.told = t.Epoch
			}
		})
	})
}
