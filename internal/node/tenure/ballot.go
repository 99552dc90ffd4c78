package tenure

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// sit takes the node's place among its site's voters, or changes it. Nothing changes if the place stays the
// same.
func (k *Keeper) sit(now lease.Instant, site *Site) error {
	if site == nil {
		return nil
	}
	at := site.seat(k.opt.Node)
	if !at.votes {
		return k.lower(site) // a holder leaves first: see after
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
	k.broken = err != nil // retried with the next tick
	return err
}

// open starts voter and candidate from what is durable.
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
		return fleet.Errorf(fleet.Internal, "the node cannot write its votes; see its log")
	}
	k.carry(c, acts, now)
	return nil
}

// yields is how long the node lets its peer be the first holder; a cordoned peer does not stand.
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

// reopen starts again from the disk, after its content was unknown.
func (k *Keeper) reopen(now lease.Instant) {
	site := k.site.Load()
	if site == nil || !site.seat(k.opt.Node).votes {
		return
	}
	k.broken = k.open(now, site.seat(k.opt.Node), site) != nil
}

// leave releases a lease before the node loses its vote.
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
		k.opt.Log.Error("write the votes; nothing is granted", "err", err)
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
		return lease.Answer{}, fleet.Errorf(fleet.Unavailable, "the node cannot write its vote; see its log")
	}
	if call == lease.Release && answer.Granted {
		k.candidate = k.candidate.Freed(now) // it need not wait for the former holder any more
	}
	return answer, nil
}

// carry applies a candidate's new state, after what must be durable is, and sends its messages. The hand
// controls what runs; it gets states, not steps.
func (k *Keeper) carry(c lease.Candidate, acts []lease.Action, now lease.Instant) {
	for _, a := range acts {
		if a.Do == lease.DoPersist && (k.broken || !k.save(k.voter.Record(), c.Claim())) {
			return
		}
	}
	before := k.candidate.Claim().Epoch
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
		case lease.DoExtend:
			if a.Epoch > before {
				k.opt.Log.Info("this node raised the epoch of its lease, because another voter had promised a higher one", "epoch", a.Epoch)
			}
		case lease.DoPersist:
		}
	}
}

// send calls a voter. The node's own voter answers at once; for another, a goroutine waits only as long as the
// answer is useful.
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
		_ = k.post(running, func(now lease.Instant) { // if the loop does not take the answer, it counts as lost
			if life != k.life {
				return
			}
			if err != nil {
				k.unanswered(s, err, now)
				return
			}
			if s.To != lease.Region {
				k.trouble = trouble{}
			} else if answer.Resets < k.resets.Load() { // its numbers are from before the reset
				k.answers[s.To] = notReset
				delete(k.releases, s.To)
				return
			}
			if s.To != lease.Region && k.seat.peer.newest() == nil { // it has no valid key: its answers do not count
				k.answers[s.To] = revoked
				delete(k.releases, s.To)
				return
			}
			k.answered(s, answer, now)
		})
	})
}

// The last reason of a voter without an answer.
const (
	notReached lease.Reason = "not_reached"
	refused    lease.Reason = "refused"
	revoked    lease.Reason = "revoked"   // or not enrolled yet: its answers do not count
	notReset   lease.Reason = "not_reset" // the server does not know the reset yet that this node followed
)

// unanswered handles a call without an answer. A refusal came from a voter that was reached: this node's key is
// void there. That is no vote, but the node is not isolated either.
func (k *Keeper) unanswered(s lease.Send, err error, now lease.Instant) {
	k.opt.Log.Debug("a voter did not answer", "voter", s.To, "call", s.Call, "err", err)
	k.complain(s.To, err)
	if code := status.Code(err); code != codes.Unauthenticated && code != codes.PermissionDenied {
		k.answers[s.To] = notReached
		return
	}
	if k.answers[s.To] != refused {
		k.opt.Log.Warn("a voter refuses this node; check whether its key is revoked or its clock wrong", "voter", s.To, "err", err)
	}
	k.answers[s.To] = refused
	c, acts := k.candidate.Refused(s, now)
	k.carry(c, acts, now)
}

// trouble is the TLS problem that keeps the peer from answering.
type trouble struct {
	hint  string
	times int // in a row
}

// troubleCounts is after how many equal failures it is logged: a peer that is killed may cause one.
const troubleCounts = 3

// complain logs once what is wrong with the TLS of the two nodes; votes are retried.
func (k *Keeper) complain(voter fleet.NodeName, err error) {
	if voter == lease.Region {
		return
	}
	advice := hint.Peer(err)
	if advice == "" || advice != k.trouble.hint {
		k.trouble = trouble{hint: advice}
	}
	k.trouble.times++
	if advice != "" && k.trouble.times == troubleCounts {
		k.opt.Log.Error("the peer does not answer votes", "peer", voter, "at", k.seat.peer.PeerAddress, "err", err, "hint", advice)
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
		return // an answer of another voter
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
	if s.To == lease.Region { // a peer's word alone does not prove who holds
		k.hear(a.Vote)
	}
	c, acts := k.candidate.Answered(s, a, now)
	k.carry(c, acts, now)
}

// listen learns from this node's own vote which other node holds; the region reports it too.
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

// desire is the desired state for the hand.
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

// tale is what the region knows of a site with one voter.
type tale struct {
	told    int64
	telling bool
	next    lease.Instant
}

// tell reports the epoch of a site with one node to the region. It repeats that after a second node was
// declared, because the region's vote is lost until it gets the epoch.
func (k *Keeper) tell(now lease.Instant) {
	alone, epoch := k.seat.peer.Node == "", k.decidedAlone(now)
	if epoch == 0 || epoch == k.owesTell.told || k.owesTell.telling || now < k.owesTell.next {
		return
	}
	k.owesTell.telling, k.owesTell.next = true, now.Add(k.opt.Interval)
	running := k.ctx
	k.calls.Go(func() {
		ctx, cancel := context.WithTimeout(running, 2*k.opt.Interval)
		defer cancel()
		err := k.opt.Region.Tell(ctx, k.opt.Site, epoch)
		_ = k.post(running, func(lease.Instant) {
			k.owesTell.telling = false
			if err == nil || !alone && status.Code(err) == codes.PermissionDenied { // the region waits for both nodes' votes
				k.owesTell.told = epoch
			}
		})
	})
}

// decidedAlone is the epoch that the region needs of this node, 0 for none. A node whose lease ran out before it
// heard of the second one reports the last epoch that its vote gave: nobody else decided since.
func (k *Keeper) decidedAlone(now lease.Instant) int64 {
	alone := k.seat.peer.Node == ""
	if !k.seated || k.opt.Region == nil || !alone && k.answers[lease.Region] != lease.Lost {
		return 0
	}
	if t, holds := k.candidate.Holding(now); holds {
		return t.Epoch
	}
	r := k.voter.Record()
	if own := r.Holder == k.opt.Node || r.Holder == "" && r.PromisedTo == k.opt.Node; own && !alone && !r.Lost {
		return r.Epoch
	}
	return 0
}
