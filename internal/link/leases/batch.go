package leases

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

const (
	// batchEvery is how long renewals are collected.
	batchEvery = 200 * time.Millisecond
	// batchMost limits one statement.
	batchMost = 5000
)

// renewing is a renewal under way, and its result. A site is in a batch at most once, because its booth is held.
type renewing struct {
	change  nodes.VoteChange
	written bool
	err     error
	done    chan struct{}
}

// batch collects the renewals of this server.
type batch struct {
	mu      sync.Mutex
	waiting []*renewing
	news    chan struct{}
}

func newBatch() *batch { return &batch{news: make(chan struct{}, 1)} }

func (b *batch) add(r *renewing) {
	b.mu.Lock()
	b.waiting = append(b.waiting, r)
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
}

func (b *batch) take() []*renewing {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), batchMost)
	out := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return out
}

// renew waits until the change is written with others, or was found to be outdated. One that was skipped because
// its row was locked is written separately.
func (s *Service) renew(ctx context.Context, c nodes.VoteChange, actor string) (bool, error) {
	r := &renewing{change: c, done: make(chan struct{})}
	s.batch.add(r)
	select {
	case <-r.done:
	case <-ctx.Done(): // it may still be written; the next call finds out
		return false, fleet.Errorf(fleet.Unavailable, "renew the lease of %s: %w", c.Site, ctx.Err())
	}
	if r.err != nil || r.written {
		return r.written, r.err
	}
	return s.o.Store.CastVote(ctx, c, actor)
}

// writeBatches writes collected renewals, until the context ends.
func (s *Service) writeBatches(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-ctx.Done():
			s.answerAll(ctx)
			return
		case <-s.batch.news:
		}
		pause.Reset(batchEvery)
		select {
		case <-ctx.Done():
			s.answerAll(ctx)
			return
		case <-pause.C:
		}
		for all := s.batch.take(); len(all) > 0; all = s.batch.take() {
			s.writeBatch(ctx, all)
		}
	}
}

// answerAll fails all waiting renewals when the server stops.
func (s *Service) answerAll(ctx context.Context) {
	for all := s.batch.take(); len(all) > 0; all = s.batch.take() {
		for _, r := range all {
			r.err = fleet.Errorf(fleet.Unavailable, "this server is stopping: %w", context.Cause(ctx))
			close(r.done)
		}
	}
}

func (s *Service) writeBatch(ctx context.Context, all []*renewing) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	changes := make([]nodes.VoteChange, len(all))
	of := make(map[fleet.SiteName]*renewing, len(all))
	for i, r := range all {
		changes[i], of[r.change.Site] = r.change, r
	}
	begun := s.o.Now()
	written, err := s.o.Store.RenewVotes(ctx, changes)
	s.metrics.batch.Observe(s.o.Now().Sub(begun).Seconds())
	s.metrics.batched.Observe(float64(len(all)))
	for _, site := range written {
		of[site].written = true
	}
	for _, r := range all {
		r.err = err
		close(r.done)
	}
}
