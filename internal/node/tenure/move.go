package tenure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// Reasons of a hand-over or take-over that failed.
const (
	reasonNoPart  = "no_part" // this node does not vote, so it never holds
	reasonNobody  = "not_a_voter"
	reasonOverdue = "deadline"
	reasonStale   = "stale_epoch" // it holds another epoch than the one that was to be given back
)

// HandOver stops what runs and releases the lease, so that the peer can win it at once. It returns when the
// reachable voters know. If that takes too long it cancels the hand-over, unless another call has requested it
// since.
func (k *Keeper) HandOver(ctx context.Context, cmd fleet.HandOverCommand) (fleet.HandOverResult, error) {
	if err := k.mine(cmd.Site); err != nil {
		return fleet.HandOverResult{}, err
	}
	limited, cancel := within(ctx, cmd.DeadlineSeconds)
	defer cancel()
	out := make(chan fleet.HandOverResult, 1)
	if err := k.post(limited, func(now lease.Instant) { k.beginHandOver(limited, now, cmd, out) }); err != nil {
		return fleet.HandOverResult{}, err
	}
	select {
	case r := <-out:
		if r.Reason == reasonStale {
			return r, fleet.Errorf(fleet.Stale, "the node holds epoch %d of the lease, not %d", r.Epoch, cmd.Epoch).
				WithHint("holdfast describe site " + string(cmd.Site) + " shows the epoch; ask again")
		}
		return r, nil
	case <-k.ended:
		return fleet.HandOverResult{}, errEnded
	case <-limited.Done():
	}
	called := make(chan fleet.HandOverResult, 1)
	err := k.post(context.WithoutCancel(ctx), func(now lease.Instant) {
		delete(k.handOvers, out)
		if k.seated && k.candidate.Role() == lease.Releasing && len(k.handOvers) == 0 {
			k.candidate = k.candidate.Stand(now)
		}
		_, holds := k.candidate.Holding(now)
		called <- fleet.HandOverResult{Released: !holds, Epoch: k.candidate.Claim().Epoch, Reason: reasonOverdue}
	})
	if err != nil {
		return fleet.HandOverResult{}, err
	}
	select {
	case r := <-called:
		return r, ctx.Err()
	case <-k.ended:
		return fleet.HandOverResult{}, errEnded
	}
}

func (k *Keeper) beginHandOver(ctx context.Context, now lease.Instant, cmd fleet.HandOverCommand, out chan<- fleet.HandOverResult) {
	if !k.seated {
		out <- fleet.HandOverResult{Released: true}
		return
	}
	t, holds := k.candidate.Holding(now)
	if holds && cmd.Epoch != 0 && cmd.Epoch != t.Epoch {
		out <- fleet.HandOverResult{Epoch: t.Epoch, Reason: reasonStale}
		return
	}
	if holds && cmd.To != "" && cmd.To != k.seat.peer.Node { // without a target: a drain without another place
		out <- fleet.HandOverResult{Epoch: t.Epoch, Reason: reasonNobody}
		return
	}
	if holds {
		c, acts := k.candidate.HandOver(now)
		k.carry(c, acts, now)
	}
	k.handOvers[out] = true
	var patience lease.Instant
	k.waiting = append(k.waiting, func(now lease.Instant) bool {
		if _, holds := k.candidate.Holding(now); holds {
			return ctx.Err() != nil // it was cancelled
		}
		if patience == 0 {
			patience = now.Add(k.opt.Interval)
		}
		if len(k.releases) > 0 && now < patience {
			return false
		}
		clear(k.releases)
		delete(k.handOvers, out)
		out <- fleet.HandOverResult{Released: true, Epoch: t.Epoch} // the channel has room for one
		return true
	})
}

// TakeOver stands for the lease at once, and returns when the node holds it, or at its deadline. When forced,
// the node's own vote favors no other node during the call.
func (k *Keeper) TakeOver(ctx context.Context, cmd fleet.TakeOverCommand) (fleet.TakeOverResult, error) {
	if err := k.mine(cmd.Site); err != nil {
		return fleet.TakeOverResult{}, err
	}
	limited, cancel := within(ctx, cmd.DeadlineSeconds)
	defer cancel()
	out := make(chan fleet.TakeOverResult, 1)
	if err := k.post(limited, func(now lease.Instant) { k.beginTakeOver(limited, now, cmd, out) }); err != nil {
		return fleet.TakeOverResult{}, err
	}
	select {
	case r := <-out:
		return r, ctx.Err()
	case <-k.ended:
		return fleet.TakeOverResult{}, errEnded
	}
}

func (k *Keeper) beginTakeOver(ctx context.Context, now lease.Instant, cmd fleet.TakeOverCommand, out chan<- fleet.TakeOverResult) {
	if !k.seated {
		out <- fleet.TakeOverResult{Reason: reasonNoPart}
		return
	}
	if _, holds := k.candidate.Holding(now); !holds || k.candidate.Role() == lease.Releasing {
		if cmd.Forced {
			v, _ := k.voter.Aim(k.opt.Node, now)
			k.keep(v)
		}
		k.stand(now)
	}
	k.waiting = append(k.waiting, func(now lease.Instant) bool {
		t, holds := k.candidate.Holding(now)
		switch {
		case holds:
			out <- fleet.TakeOverResult{Epoch: t.Epoch}
		case ctx.Err() != nil:
			k.candidate = k.candidate.Rest()
			out <- fleet.TakeOverResult{Reason: k.why()}
		default:
			return false
		}
		return true
	})
}

// stand makes the candidate ask now, although a voter may have made it wait.
func (k *Keeper) stand(now lease.Instant) {
	k.candidate = k.candidate.Stand(now)
	if _, holds := k.candidate.Holding(now); holds {
		return // a hand-over that was cancelled
	}
	cfg := k.config
	cfg.Yield = 0
	c, acts := lease.NewCandidate(cfg, k.candidate.Claim(), now)
	k.life++
	k.carry(c.Stand(now), acts, now)
	k.tick(now)
}

// why gives the last answer of each voter.
func (k *Keeper) why() string {
	said := make([]string, 0, len(k.answers))
	for voter, reason := range k.answers {
		said = append(said, fmt.Sprintf("%s: %s", voter, reason))
	}
	slices.Sort(said)
	if len(said) == 0 {
		return reasonOverdue
	}
	return strings.Join(said, ", ")
}

func (k *Keeper) mine(site fleet.SiteName) error {
	if site != k.opt.Site {
		return fleet.Errorf(fleet.Invalid, "this node belongs to site %s", k.opt.Site).At("/site")
	}
	return nil
}

// longestMove bounds a request without a deadline.
const longestMove = time.Minute

func within(ctx context.Context, seconds int64) (context.Context, context.CancelFunc) {
	limit := longestMove
	if seconds > 0 && seconds < int64(time.Hour/time.Second) {
		limit = time.Duration(seconds) * time.Second
	}
	return context.WithTimeout(ctx, limit)
}
