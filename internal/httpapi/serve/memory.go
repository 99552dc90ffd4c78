package serve

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Memory bounds the memory that bodies take while they are read and worked on. What a body takes is
// reserved as its bytes arrive, so that one that is only announced takes nothing from others, and no
// caller has more than its share. When there is no room, bodies wait where they are; the one that
// began first never waits, so that there is always one that ends.
type Memory struct {
	total, share int64
	patience     time.Duration

	mu     sync.Mutex
	used   int64
	by     map[string]int64
	bodies list.List     // that hold something, the one that began first at the front
	freed  chan struct{} // closed when something was given back
}

// NewMemory has so many bytes for all bodies, and a share of them for each caller. A body waits for its part as
// long as patience.
func NewMemory(total, share int64, patience time.Duration) *Memory {
	return &Memory{total: total, share: share, patience: patience, by: map[string]int64{}, freed: make(chan struct{})}
}

// Held is what one body has reserved.
type Held struct {
	of    *Memory
	who   string
	bytes int64
	place *list.Element
}

// Begin is a body of a caller, which has reserved nothing yet.
func (m *Memory) Begin(who string) *Held { return &Held{of: m, who: who} }

// Grow reserves more, and waits for it if it must.
func (h *Held) Grow(ctx context.Context, bytes int64) error {
	over := time.NewTimer(h.of.patience)
	defer over.Stop()
	for {
		freed, granted := h.take(bytes)
		if granted {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fleet.Errorf(fleet.Unavailable, "wait for memory to read the body: %w", ctx.Err())
		case <-over.C:
			return fleet.Errorf(fleet.Unavailable, "no memory to read the body: the limit is %d bytes at once, %d of one caller", h.of.total, h.of.share).
				WithHint("try again later")
		}
	}
}

func (h *Held) take(bytes int64) (freed <-chan struct{}, granted bool) {
	m := h.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.place == nil {
		h.place = m.bodies.PushBack(h)
	}
	fits := m.used+bytes <= m.total && m.by[h.who]+bytes <= m.share
	if !fits && m.bodies.Front() != h.place {
		return m.freed, false
	}
	h.bytes += bytes
	m.used += bytes
	m.by[h.who] += bytes
	return nil, true
}

// End gives all of it back.
func (h *Held) End() {
	m := h.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.place == nil {
		return
	}
	m.bodies.Remove(h.place)
	h.place = nil
	m.used -= h.bytes
	if m.by[h.who] -= h.bytes; m.by[h.who] == 0 {
		delete(m.by, h.who)
	}
	h.bytes = 0
	close(m.freed)
	m.freed = make(chan struct{})
}
