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

var errLookAgain = errors.New("an awaited executor is gone")

// waiter waits for a slot at any of some executors. The pool's lock guards it.
type waiter struct {
	members  []fleet.ModuleMember
	lines    []*line
	elements []*list.Element
	given    chan *slot // gets one slot, nil to look again
}

// settle removes a waiter from all queues and sends its result.
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

// acquire takes a free slot at the first possible member; recently unreachable ones come last. If none is free it
// waits, first come first served.
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
			WithHint("retry later, or start more providers")
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

// giveUp removes a waiter; it returns a slot that arrived at the same moment.
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

// release returns a slot: to the longest waiting caller, if there is one.
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
