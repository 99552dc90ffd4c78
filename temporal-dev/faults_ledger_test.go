//go:build slow

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger keeps what a campaign measured.
type ledger struct {
	mu     sync.Mutex
	order  []string // kinds
	rounds map[string]int
	moves  map[string]int // the other node took over though it did not have to
	times  map[[2]string][]time.Duration
	seen   [][2]string
}

func newLedger() *ledger {
	return &ledger{rounds: map[string]int{}, moves: map[string]int{}, times: map[[2]string][]time.Duration{}}
}

func (l *ledger) round(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rounds[kind] == 0 {
		l.order = append(l.order, kind)
	}
	l.rounds[kind]++
}

func (l *ledger) moved(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moves[kind]++
}

func (l *ledger) note(kind, what string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := [2]string{kind, what}
	if l.times[at] == nil {
		l.seen = append(l.seen, at)
	}
	l.times[at] = append(l.times[at], took)
}

// table is the campaign as docs/faults.md shows it.
func (l *ledger) table() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.order)
	var b strings.Builder
	b.WriteString("| Fault | Rounds | Moved unasked | Measured | p50 | p99 | max |\n|---|---|---|---|---|---|---|\n")
	for _, kind := range l.order {
		head := fmt.Sprintf("| %s | %d | %d |", kind, l.rounds[kind], l.moves[kind])
		for _, at := range l.seen {
			if at[0] != kind {
				continue
			}
			times := slices.Clone(l.times[at])
			slices.Sort(times)
			fmt.Fprintf(&b, "%s %s | %s | %s | %s |\n", head, at[1], rank100(times, 50), rank100(times, 99), rank100(times, 100))
			head = "| | | |"
		}
	}
	return b.String()
}

// rank100 is the nearest rank of a percentile.
func rank100(sorted []time.Duration, percent int) string {
	at := (len(sorted)*percent + 99) / 100
	return fmt.Sprintf("%.2f s", sorted[max(at, 1)-1].Seconds())
}
