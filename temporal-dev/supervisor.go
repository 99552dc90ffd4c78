package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// supervisor owns the child processes of a region. It is the source of truth: what it spawned and has not seen end
// is running; everything else (dev.json, ps) is a view of that.
type supervisor struct {
	trouble func(format string, args ...any)

	mu        sync.Mutex
	processes []*process // by rank, then in the order in which they were added
	changed   func()
}

func newSupervisor(trouble io.Writer) *supervisor {
	var mu sync.Mutex
	return &supervisor{
		trouble: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			_, _ = fmt.Fprintf(trouble, "! "+format+"\n", args...)
		},
		changed: func() {},
	}
}

// onChange sets a callback for changes, one call at a time.
func (s *supervisor) onChange(tell func([]processView)) {
	var mu sync.Mutex
	s.mu.Lock()
	s.changed = func() {
		mu.Lock()
		defer mu.Unlock()
		tell(s.views()) // read inside the lock, so that the last call gets the newest
	}
	s.mu.Unlock()
	s.tell()
}

func (s *supervisor) tell() {
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	changed()
}

// add registers a process, stopped at first.
func (s *supervisor) add(sp spec) *process {
	p := newProcess(sp, s.trouble, s.tell)
	s.mu.Lock()
	s.processes = append(s.processes, p)
	slices.SortStableFunc(s.processes, func(a, b *process) int { return cmp.Compare(a.spec.rank, b.spec.rank) })
	s.mu.Unlock()
	s.tell()
	return p
}

func (s *supervisor) list() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*process(nil), s.processes...)
}

func (s *supervisor) views() []processView {
	var views []processView
	for _, p := range s.list() {
		views = append(views, p.snapshot())
	}
	return views
}

func (s *supervisor) find(name string) (*process, error) {
	var names []string
	for _, p := range s.list() {
		if p.spec.name == name {
			return p, nil
		}
		names = append(names, p.spec.name)
	}
	return nil, fleet.Errorf(fleet.NotFound, "process %.80q not found", name).
		WithHint("use one of " + strings.Join(names, ", "))
}

func (s *supervisor) start(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	return p.start(ctx)
}

func (s *supervisor) stop(ctx context.Context, name string) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	return p.stop(ctx)
}

// close ends the processes for good, in reverse order of rank. Those of one rank end together.
func (s *supervisor) close(hurry <-chan struct{}) {
	for r := rankNode; r >= rankPostgres; r-- {
		var all sync.WaitGroup
		for _, p := range s.list() {
			if p.spec.rank == r {
				all.Go(func() { p.close(hurry) })
			}
		}
		all.Wait()
	}
}
