package executors

import (
	"container/list"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// slot is the right to one execution at an executor.
type slot struct {
	member fleet.ModuleMember
	line   *line
}

var errLookAgain = errors.New("an executor that was waited for has gone")

// waiter waits for a slot at any of some executors. The pool's lock guards it.
type waiter struct {
	members  []fleet.ModuleMember
	lines    []*line
	elements []*list.Element
	given    chan *slot // one is sent, nil when it is to look again
}

// settle takes a waiter out of all queues and gives it what it waited for.
func (w *waiter) settle(s *slot) {
	w.leave()
	w.given <- s
}

func (w *waiter) leave() {
	for i, e := range w.elements {
		w.lines[i].waiting.Remove(e)
	}
	w.elements = nil
}

// acquire takes a slot at the first of the members that has one free; those that could not be
// reached just now come last. With none free it waits, first come first served.
func (p *Pool) acquire(ctx context.Context, of fleet.ModuleRef, among []fleet.ModuleMember) (*slot, error) {
	s, w, err := p.tryAcquire(among)
	if s != nil || err != nil {
		return s, err
	}
	patience := time.NewTimer(p.o.Wait)
	defer patience.Stop()
	select {
	case s = <-w.given:
		if s == nil {
			return nil, errLookAgain
		}
	case <-ctx.Done():
		s = p.giveUp(w)
	case <-patience.C:
		s = p.giveUp(w)
	}
	if s == nil {
		return nil, fleet.Errorf(fleet.Unavailable, "all %d executors of %s are busy", len(among), of).
			WithHint("send it again later, or start more providers")
	}
	return s, nil
}

func (p *Pool) tryAcquire(among []fleet.ModuleMember) (*slot, *waiter, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &waiter{members: among, given: make(chan *slot, 1)}
	failing := -1
	for i, m := range among {
		l, err := p.add(m.Connection, placeOf(m))
		if err != nil {
			return nil, nil, err
		}
		w.lines = append(w.lines, l)
		if l.busy >= p.o.InFlight {
			continue
		}
		if l.conn.GetState() != connectivity.TransientFailure {
			l.busy++
			return &slot{m, l}, nil, nil
		}
		if failing < 0 {
			failing = i
		}
	}
	if failing >= 0 {
		l := w.lines[failing]
		l.busy++
		return &slot{among[failing], l}, nil, nil
	}
	for _, l := range w.lines {
		w.elements = append(w.elements, l.waiting.PushBack(w))
	}
	return nil, w, nil
}

// giveUp takes a waiter out; it gives the slot that came at the same moment.
func (p *Pool) giveUp(w *waiter) *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.leave()
	select {
	case s := <-w.given:
		return s
	default:
		return nil
	}
}

// release gives a slot back: to who waits the longest for it, if anybody does.
func (p *Pool) release(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := s.line
	if front := l.waiting.Front(); front != nil && !p.closed && l.users > 0 {
		w, _ := front.Value.(*waiter)
		for i, other := range w.lines {
			if other == l {
				w.settle(&slot{w.members[i], l})
				return
			}
		}
	}
	l.busy--
	p.closeUnused(l)
}
