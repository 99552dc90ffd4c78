package guardian

import (
	"bytes"
	"os"
	"strconv"
)

// Usage is what the processes below a guardian take.
type Usage struct {
	// CPU is the time that they used so far in seconds, those included that have ended.
	CPU float64
	// Memory is what they have resident, in bytes; what they share counts for each.
	Memory int64
}

// ticks per second in /proc, which Linux has fixed for programs.
const ticks = 100

// UsageBelow measures what runs below each of some guardians, by one look at the process table.
// Those that have ended are left out.
func UsageBelow(guardians []int) (map[int]Usage, error) {
	if len(guardians) == 0 {
		return nil, nil
	}
	table, err := processes()
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int, len(table))
	for _, e := range table {
		children[e.Parent] = append(children[e.Parent], e.PID)
	}
	all := make(map[int]Usage, len(guardians))
	for _, guardian := range guardians {
		own, ok := usageOf(guardian)
		if !ok {
			continue
		}
		sum := Usage{CPU: own.reaped} // of what the guardian itself does, nothing counts
		for next := children[guardian]; len(next) > 0; next = next[1:] {
			if u, ok := usageOf(next[0]); ok {
				sum.CPU += u.own + u.reaped
				sum.Memory += u.memory
			}
			next = append(next, children[next[0]]...)
		}
		all[guardian] = sum
	}
	return all, nil
}

// spent is what /proc/PID/stat says of one process: its own time and that of children that it
// has waited for.
type spent struct {
	own, reaped float64
	memory      int64
}

func usageOf(pid int) (spent, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil { // it has ended meanwhile
		return spent{}, false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 22 {
		return spent{}, false
	}
	at := func(i int) float64 {
		n, err := strconv.ParseFloat(string(fields[i]), 64)
		if err != nil {
			return 0
		}
		return n
	}
	return spent{
		own: (at(11) + at(12)) / ticks, reaped: (at(13) + at(14)) / ticks, memory: int64(at(21)) * int64(os.Getpagesize()),
	}, true
}
