package link

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// turnedAfter collects nodes that connect and disconnect: when all nodes of a server reconnect, their deployments
// are woken a few times, not once per node.
const turnedAfter = 200 * time.Millisecond

// waiting are names to process, each once.
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

// take returns all that waits, and clears it.
func (w *waiting[K]) take() []K {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Collect(maps.Keys(w.names))
	clear(w.names)
	return out
}

// turned records that nodes disconnected or reconnected, so that their deployments are checked. The sweep finds
// what this server loses when it ends.
func (s *Server) turned(nodes ...fleet.NodeName) {
	if s.o.Replicas != nil && s.o.Wake != nil {
		s.turns.add(slices.DeleteFunc(nodes, func(n fleet.NodeName) bool { return n == "" }))
	}
}

// wakeTurned wakes deployments with replicas on nodes that connected or disconnected.
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
			s.o.Log.Warn("failed, retrying", "what", "wake the deployments of nodes that connected or disconnected", "error", err)
		}
		pause = turnedAfter
		if err != nil {
			pause = saveAgain
		}
	}
}

// lookAtTurned keeps the nodes for the next attempt if it fails.
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

// wakeLimit limits one round of wakes.
const wakeLimit = 10 * time.Second

// wakeSubjects wakes the subjects of reports and of nodes that turned, while more of them collect. It only speeds
// things up: each has an outbox row that wakes it otherwise.
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
			s.o.Log.Warn("cannot wake subjects; the outbox wakes them later", "subjects", len(subjects), "error", err)
		}
		cancel()
	}
}
