//go:build slow

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
)

// life is one run of an instance, as its witness left it: from when until when it was alive.
type life struct {
	alone      string
	pid        int
	node       string
	epoch      int64
	number     int
	from, last lease.Instant
}

func (r life) String() string {
	return fmt.Sprintf("run %d of number %d on %s, epoch %d, from %d to %d (%v)", r.pid, r.number, r.node, r.epoch, r.from, r.last, r.last.Sub(r.from))
}

// lives are all runs of one instance.
type lives struct {
	dir string

	mu    sync.Mutex
	ended map[string]life // files that change no more
}

// all gives the runs in the order in which they began.
func (w *lives) all() ([]life, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names, err := filepath.Glob(filepath.Join(w.dir, "*.run"))
	if err != nil {
		return nil, err
	}
	all := make([]life, 0, len(names))
	for _, name := range names { // in the order of their names, which begin with the instant
		r, ok := w.ended[name]
		if !ok {
			if r, ok, err = w.read(name); err != nil {
				return nil, err
			}
		}
		if ok {
			all = append(all, r)
		}
	}
	return all, nil
}

// read is not ok for a run that has not said anything yet.
func (w *lives) read(name string) (r life, ok bool, err error) {
	var pid int
	if _, err := fmt.Sscanf(filepath.Base(name), "%d-%d.run", new(int64), &pid); err != nil {
		return r, false, err
	}
	lives := alive(pid) // asked first: what is read later is then its last word
	text, err := os.ReadFile(name)
	if err != nil || len(text) == 0 {
		return r, false, err
	}
	_, err = fmt.Sscanf(string(text), "%s %d %s %d %d %d %d\n", &r.alone, &r.pid, &r.node, &r.epoch, &r.number, &r.from, &r.last)
	if err != nil {
		return r, false, fmt.Errorf("%s is torn: %w: %q", name, err, text)
	}
	if !lives {
		w.ended[name] = r
	}
	return r, true, nil
}

// ack is a revision of which an operation said that it is deployed (and replicated, for sync).
type ack struct {
	number int
	at     lease.Instant // seen by who asked, so not before it was so
}

// broken gives every way in which the runs of an instance contradict the promise: two at once,
// an epoch that falls, and (sync) a run without a revision that was acknowledged before it began.
func broken(all []life, acks []ack) []string {
	var found []string
	var before life // of those so far, the one that lived longest
	var epoch int64
	for _, r := range all {
		if r.alone != "alone" {
			found = append(found, fmt.Sprintf("began while another ran: %v", r))
		}
		if r.from <= before.last {
			found = append(found, fmt.Sprintf("%v overlap: %v and %v", before.last.Sub(r.from), before, r))
		}
		if r.epoch < epoch {
			found = append(found, fmt.Sprintf("its epoch fell from %d: %v", epoch, r))
		}
		epoch = max(epoch, r.epoch)
		if r.last > before.last {
			before = r
		}
		if i := slices.IndexFunc(acks, func(a ack) bool { return a.at < r.from && a.number > r.number }); i >= 0 {
			found = append(found, fmt.Sprintf("lacks number %d, acknowledged at %d: %v", acks[i].number, acks[i].at, r))
		}
	}
	return found
}

// bootNow is the clock of the witnesses.
func bootNow() lease.Instant {
	now, err := boottime.Now()
	if err != nil {
		panic(err) //nolint:forbidigo // a machine without that clock runs no node either
	}
	return now
}

func since(at lease.Instant) time.Duration { return bootNow().Sub(at) }
