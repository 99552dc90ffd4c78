package guardian

import (
	"bytes"
	"os"
	"strconv"
)

// Usage is the resources that the processes below a guardian use.
type Usage struct {
	// CPU is their CPU time so far in seconds, including ended ones.
	CPU float64
	// Memory is their resident memory, in bytes; shared memory counts for each.
	Memory int64
}

// ticks per second in /proc, which Linux has fixed for programs.
const ticks = 100

// UsageBelow measures what runs below each of the guardians, in one read of the process table. It leaves out
// guardians that have ended.
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
		sum := Usage{CPU: own.reaped} // the guardian's own use does not count
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

// spent is /proc/PID/stat of one process: its own time and that of the children that it has waited for.
type spent struct {
	own, reaped float64
	memory      int64
}

func usageOf(pid int) (spent, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil { // it has ended
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
