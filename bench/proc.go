package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/pause"
)

// ticksPerSecond is the unit of CPU time in /proc; Linux fixes it for programs.
const ticksPerSecond = 100

// stat is what we read of /proc/<pid>/stat.
type stat struct {
	parent int
	ticks  int64 // of CPU, with those of children that were waited for
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	const ppid, utime, cstime = 1, 11, 14 // counted from the field after the name
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) <= cstime {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(f))
	}
	s := stat{}
	if s.parent, err = strconv.Atoi(f[ppid]); err != nil {
		return s, err
	}
	for _, field := range f[utime : cstime+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return s, err
		}
		s.ticks += n
	}
	return s, nil
}

// processes of a region are those that run its program, guardians too, and all below them.
func (l *lab) processes() (map[int]stat, error) { return processesOf(l.program) }

func processesOf(programs ...string) (map[int]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all, ours := map[int]stat{}, map[int]stat{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err != nil {
			continue // it has ended
		}
		all[pid] = s
		if exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe")); err == nil && slices.Contains(programs, exe) {
			ours[pid] = s
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, s := range all {
			_, known := ours[pid]
			if _, below := ours[s.parent]; below && !known {
				ours[pid], grown = s, true
			}
		}
	}
	return ours, nil
}

// cpu is the CPU time of a region's processes so far, in seconds.
func (l *lab) cpu() (float64, error) {
	ours, err := l.processes()
	return cpuOf(ours), err
}

func cpuOf(all map[int]stat) float64 {
	var ticks int64
	for _, s := range all {
		ticks += s.ticks
	}
	return float64(ticks) / ticksPerSecond
}

// percents is what processes use of one core in a while.
func percents(ctx context.Context, d time.Duration, pids ...int) ([]float64, error) {
	began, ticks := time.Now(), make([]int64, len(pids))
	for i, pid := range pids {
		s, err := readStat(pid)
		if err != nil {
			return nil, err
		}
		ticks[i] = s.ticks
	}
	if err := pause.For(ctx, d); err != nil {
		return nil, err
	}
	took, out := time.Since(began).Seconds(), make([]float64, len(pids))
	for i, pid := range pids {
		s, err := readStat(pid)
		if err != nil {
			return nil, err
		}
		out[i] = 100 * float64(s.ticks-ticks[i]) / ticksPerSecond / took
	}
	return out, nil
}

// machineCPU is the time that all CPUs were busy or stolen so far, in seconds.
func machineCPU() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read /proc/stat: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	const name, idle, ioWait, steal = 0, 4, 5, 8
	var ticks int64
	for i, field := range strings.Fields(line) {
		if i == name || i == idle || i == ioWait || i > steal { // after steal: guests, which user has
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}

// watcher finds out how busy everybody else is while a figure is measured: without it,
// nobody can tell a slow region from a busy machine.
type watcher struct {
	lab    *lab
	began  time.Time
	others float64 // seconds of CPU
	err    error
}

func (l *lab) watch() *watcher {
	w := &watcher{lab: l, began: time.Now()}
	w.others, w.err = l.othersCPU()
	return w
}

func (l *lab) othersCPU() (float64, error) {
	machine, err := machineCPU()
	self, selfErr := os.Executable()
	ours, oursErr := processesOf(l.program, self)
	return machine - cpuOf(ours), errors.Join(err, selfErr, oursErr)
}

// stamp notes on figures how many cores everybody else used meanwhile.
func (w *watcher) stamp(figures []figure) error {
	now, err := w.lab.othersCPU()
	cores := (now - w.others) / time.Since(w.began).Seconds()
	for i := range figures {
		figures[i].others = max(0, cores)
	}
	return errors.Join(w.err, err)
}

// kilobytes reads a line such as "VmHWM:  123 kB" of a file in /proc/<pid>.
func kilobytes(pid int, file, name string) (int64, error) {
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// pss is the memory of a region's processes, pages that several share counted once.
func (l *lab) pss() (bytes int64, count int, err error) {
	ours, err := l.processes()
	for pid := range ours {
		kb, err := kilobytes(pid, "smaps_rollup", "Pss")
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		bytes += kb << 10
	}
	return bytes, len(ours), err
}

// peak measures how far the resident memory of a process rises.
type peak struct {
	pid  int
	idle int64
}

// rest is the resident memory now, taken as that of the idle process.
func rest(pid int) (peak, error) {
	kb, err := kilobytes(pid, "status", "VmRSS")
	return peak{pid, kb << 10}, err
}

// reset forgets the highest value so far.
func (p peak) reset() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.pid), []byte("5"), 0)
}

// above is the highest value since reset, above idle.
func (p peak) above() (int64, error) {
	kb, err := kilobytes(p.pid, "status", "VmHWM")
	return kb<<10 - p.idle, err
}
