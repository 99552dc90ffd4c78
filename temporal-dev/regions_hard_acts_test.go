//go:build slow

package main

import (
	"context"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// hardAct is what happens to a region, or between it and another one. What is returned undoes it.
type hardAct struct {
	name string
	do   func(h *hard, at, other *hardRegion) (undo func())
}

// hardActs all happen before one of them happens again.
var hardActs = []hardAct{
	{"link cut", func(h *hard, at, other *hardRegion) func() { return h.wire.cut(both(at.name, other.name)...) }},
	{"link cut one way", func(h *hard, at, other *hardRegion) func() { return h.wire.cut(way{at.name, other.name}) }},
	{"region cut off", func(h *hard, at, _ *hardRegion) func() { return h.wire.cut(h.around(at)...) }},
	{"region receives nothing", func(h *hard, at, _ *hardRegion) func() { return h.wire.cut(h.towards(at)...) }},
	{"server killed", func(_ *hard, at, _ *hardRegion) func() { return at.strike(serverName) }},
	{"postgres killed", func(_ *hard, at, _ *hardRegion) func() { return at.strike(postgresName) }},
	{"temporal killed", func(_ *hard, at, _ *hardRegion) func() { return at.strike(temporalName) }},
	{"server paused", func(_ *hard, at, _ *hardRegion) func() { return at.freeze(serverName) }},
	{"postgres paused", func(_ *hard, at, _ *hardRegion) func() { return at.freeze(postgresName) }},
	{"temporal paused", func(_ *hard, at, _ *hardRegion) func() { return at.freeze(temporalName) }},
	{"handed over", func(h *hard, at, other *hardRegion) func() { h.handOver(at, other, false); return func() {} }},
	{hardForced, func(h *hard, at, other *hardRegion) func() { h.handOver(at, other, true); return func() {} }},
	{hardRestored, func(h *hard, at, _ *hardRegion) func() { h.backUpOrRestore(at); return func() {} }},
}

const (
	hardForced   = "claimed by force"
	hardRestored = "backed up, or restored"
)

// hardLongest is how long a fault lasts at most: longer than a stream's silence, and than the time without a run.
const hardLongest = 25 * time.Second

// fault does one to a random region, waits, and undoes it.
func (h *hard) fault(ctx context.Context, draw *mathrand.Rand, act hardAct) {
	i := draw.IntN(len(h.names))
	other := (i + 1 + draw.IntN(len(h.names)-1)) % len(h.names)
	at, peer := h.regions[h.names[i]], h.regions[h.names[other]]
	if act.name == hardRestored { // the versions that come from the last one never fall
		at = h.regions[h.names[i%(len(h.names)-1)]]
	} else {
		at.alone.RLock()
		defer at.alone.RUnlock()
	}
	lasts := time.Duration(draw.Int64N(int64(hardLongest)))
	h.t.Logf("%s %s (%s) for %v", at.name, act.name, peer.name, lasts.Round(time.Millisecond))
	h.count(h.faults, act.name)
	undo := act.do(h, at, peer)
	defer undo()
	_ = pause.For(ctx, lasts) // the end of the run ends it too
}

// towards are the ways to a region, around those from it too.
func (h *hard) towards(at *hardRegion) (ways []way) {
	for _, name := range h.names {
		if name != at.name {
			ways = append(ways, way{name, at.name})
		}
	}
	return ways
}

func (h *hard) around(at *hardRegion) (ways []way) {
	for _, in := range h.towards(at) {
		ways = append(ways, both(in.from, in.to)...)
	}
	return ways
}

// strike kills a process, if it runs; its supervisor starts another.
func (r *hardRegion) strike(name string) (undo func()) {
	if pid := r.running(name); pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	return func() {}
}

// freeze has a process and all below it stand still.
func (r *hardRegion) freeze(name string) (undo func()) {
	var stopped []int
	if pid := r.running(name); pid != 0 {
		stopped = below(pid)
	}
	for _, pid := range stopped {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // some may have ended
	}
	return func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
}

// running is the process id of a child, 0 while none runs.
func (r *hardRegion) running(name string) int {
	var doc devDoc
	if readJSON(filepath.Join(r.data, devFile), &doc) != nil {
		return 0
	}
	for _, p := range doc.Processes {
		if p.Name == name && p.Running {
			return p.PID
		}
	}
	return 0
}

// below is a process and what it started, each before its children.
func below(pid int) []int {
	all := []int{pid}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	parents := map[int][]int{}
	for _, e := range entries {
		if child, err := strconv.Atoi(e.Name()); err == nil {
			parents[parentOf(child)] = append(parents[parentOf(child)], child)
		}
	}
	for i := 0; i < len(all); i++ {
		all = append(all, parents[all[i]]...)
	}
	return all
}

// parentOf is 0 for a process that has ended.
func parentOf(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(f[1]) // a number, says proc(5)
	return parent
}
