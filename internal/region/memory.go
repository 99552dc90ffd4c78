package region

import (
	"context"
	"os"
	"runtime/debug"
	gometrics "runtime/metrics"
	"time"
)

// collectAt is how much garbage may accumulate before a collection, in percent of the live heap. The live heap is a
// few MiB, so Go's default of 100 takes a sixth of the processor.
const collectAt = 300

// SaveProcessor trades memory for processor time: the heap may grow to four times its live size, until the process
// has limit bytes. GOGC and GOMEMLIMIT take precedence if they are set.
func SaveProcessor(limit int64) {
	if !operatorSet("GOGC") {
		debug.SetGCPercent(collectAt)
	}
	if !operatorSet("GOMEMLIMIT") {
		debug.SetMemoryLimit(limit)
	}
}

const (
	// roomAbove is how much a process may grow before a collection, however large its live heap: at its limit the
	// collector would take half the processor for ever.
	roomAbove = 64 << 20
	// roomEvery is how often the limit is checked.
	roomEvery = 5 * time.Second
)

// keepRoom raises the limit above the live heap, for example for thousands of connections, and lowers it again,
// until the context ends.
func keepRoom(ctx context.Context, limit int64) error {
	if operatorSet("GOMEMLIMIT") {
		return nil
	}
	tick := time.NewTicker(roomEvery)
	defer tick.Stop()
	for {
		debug.SetMemoryLimit(max(limit, living()+roomAbove))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// living is what the last collection left, plus non-heap memory such as stacks.
func living() int64 {
	const total, minus = 1, -1
	samples := []gometrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		// The heap's part of the total:
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	gometrics.Read(samples)
	bytes := int64(0)
	for i, s := range samples {
		if s.Value.Kind() != gometrics.KindUint64 {
			continue
		}
		v := int64(s.Value.Uint64()) //nolint:gosec // far below
		if i > total {
			v *= minus
		}
		bytes += v
	}
	return bytes
}

func operatorSet(name string) bool {
	return os.Getenv(name) != "" //nolint:forbidigo // the Go runtime's own settings, which this must not override
}
