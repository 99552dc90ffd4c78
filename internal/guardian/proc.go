package guardian

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// entry is one row of the process table.
type entry struct {
	process
	Parent, Group, Session int
	// Zombie: every thread has ended and only the parent has not waited yet. If only the main thread ended, the
	// state looks the same.
	Zombie bool
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// processes reads the table. It leaves out processes that end while it reads.
func processes() ([]entry, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}
	names, err := proc.Readdirnames(-1)
	if err = errors.Join(err, proc.Close()); err != nil {
		return nil, fmt.Errorf("read process table: %w", err)
	}
	table := make([]entry, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue // not a process
		}
		e, ok, err := readProcess(pid)
		if err != nil {
			return nil, err
		}
		if ok {
			table = append(table, e)
		}
	}
	return table, nil
}

// readProcess returns false if there is no such process.
func readProcess(pid int) (entry, bool, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return entry{}, false, nil
	}
	if err != nil {
		return entry{}, false, fmt.Errorf("read process: %w", err)
	}
	e, err := parseStat(pid, stat)
	return e, err == nil, err
}

// parseStat reads proc(5) stat. The second field, the program's name, may contain anything, so fields are
// counted from the last parenthesis.
func parseStat(pid int, stat []byte) (entry, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return entry{}, fmt.Errorf("read process %d: %d fields", pid, len(fields))
	}
	var parent, group, session, threads int
	for field, into := range map[int]*int{1: &parent, 2: &group, 3: &session, 17: &threads} {
		n, err := strconv.Atoi(string(fields[field]))
		if err != nil {
			return entry{}, fmt.Errorf("read process %d: %w", pid, err)
		}
		*into = n
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("read process %d: %w", pid, err)
	}
	return entry{
		process: process{PID: pid, Start: start},
		Parent:  parent, Group: group, Session: session,
		Zombie: (fields[0][0] == 'Z' || fields[0][0] == 'X') && threads <= 1,
	}, nil
}

// descendants gives the living processes below the roots, without the roots.
func descendants(table []entry, roots ...int) []entry {
	children := make(map[int][]entry, len(table))
	for _, e := range table {
		children[e.Parent] = append(children[e.Parent], e)
	}
	seen := make(map[int]bool, len(roots))
	for _, root := range roots {
		seen[root] = true
	}
	var found []entry
	for next := slices.Clone(roots); len(next) > 0; next = next[1:] {
		for _, child := range children[next[0]] {
			if seen[child.PID] {
				continue
			}
			seen[child.PID] = true
			next = append(next, child.PID)
			if !child.Zombie {
				found = append(found, child)
			}
		}
	}
	return found
}

// carried is the value of a variable in a process's initial environment, "" without one, and for a process that
// cannot be read (ended, or of another user).
func carried(pid int, name string) string {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	return lookup(strings.Split(string(env), "\x00"), name)
}
