package link

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// turnedAfter gathers nodes that come and go: when all of a server reconnect, their deployments are
// woken a few times and not by each.
const turnedAfter = 200 * time.Millisecond

// waiting are names that somebody is to take, each once.
type waiting[K comparable] struct {
	mu    sync.Mutex
	names map[K]bool
	news  chan struct{}
}

func newWaiting[K comparable]() *waiting[K] {
	return &waiting[K]{names: map[K]bool{}, news: make(chan struct{}, 1)}
}

func (w *waiting[K]) add(names []K) {
	if len(names) == 0 {
		return
	}
	w.mu.Lock()
	for _, n := range names {
		w.names[n] = true
	}
	w.mu.Unlock()
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// take gives all that waits, and forgets it.
func (w *waiting[K]) take() []K {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Collect(maps.Keys(w.names))
	clear(w.names)
	return out
}

// turned notes that nodes were lost or came back: what runs there is to be looked at. What this
// server forgets when it ends is found by the sweep.
func (s *Server) turned(nodes ...fleet.NodeName) {
	if s.o.Replicas != nil && s.o.Wake != nil {
		s.turns.add(slices.DeleteFunc(nodes, func(n fleet.NodeName) bool { return n == "" }))
	}
}

// wakeTurned has the deployments looked at that have replicas on nodes which came or went.
func (s *Server) wakeTurned(ctx context.Context) error {
	pause := turnedAfter
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.turns.news:
		}
		gather := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			gather.Stop()
			return ctx.Err()
		case <-gather.C:
		}
		err := s.lookAtTurned(ctx)
		if err != nil && pause != saveAgain && ctx.Err() == nil {
			s.o.Log.Warn("trying on", "what", "wake the deployments of nodes that came or went", "error", err)
		}
		pause = turnedAfter
		if err != nil {
			pause = saveAgain
		}
	}
}

// lookAtTurned keeps the nodes for the next time when it fails.
func (s *Server) lookAtTurned(ctx context.Context) error {
	ctx, cancel := within(ctx)
	defer cancel()
	nodes := s.turns.take()
	subjects, err := s.o.Replicas.WakeDeploymentsOn(ctx, nodes)
	if err != nil {
		s.turns.add(nodes)
		return err
	}
	s.wakes.add(subjects)
	return nil
}

// wakeLimit bounds one round of wakes.
const wakeLimit = 10 * time.Second

// wakeSubjects wakes what reports and nodes that turned are about, while more of them gather. It is
// the hurry: each has an outbox row, which wakes it otherwise.
func (s *Server) wakeSubjects(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wakes.news:
		}
		subjects := s.wakes.take()
		if s.o.Wake == nil || len(subjects) == 0 {
			continue
		}
		round, cancel := context.WithTimeout(ctx, wakeLimit)
		if err := s.o.Wake(round, subjects); err != nil && ctx.Err() == nil {
			s.o.Log.Warn("some are woken later", "subjects", len(subjects), "error", err)
		}
		cancel()
	}
}
