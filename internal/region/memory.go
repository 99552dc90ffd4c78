package region

import (
	"context"
	"os"
	"runtime/debug"
	gometrics "runtime/metrics"
	"time"
)

// collectAt is how much garbage, in percent of what lives, is gathered before it is
// collected. What lives is a few MiB, so that Go's own 100 spends a sixth of the processor
// on it.
const collectAt = 300

// SaveProcessor trades memory for processor time: the heap may grow to four times what
// lives, until the process has limit bytes. GOGC and GOMEMLIMIT are obeyed where they are set.
func SaveProcessor(limit int64) {
	if !operatorSet("GOGC") {
		debug.SetGCPercent(collectAt)
	}
	if !operatorSet("GOMEMLIMIT") {
		debug.SetMemoryLimit(limit)
	}
}

const (
	// roomAbove is what a process may grow by before it is collected, however much lives: at its
	// limit the collector would take half the processor for ever.
	roomAbove = 64 << 20
	// roomEvery is how often the limit is looked at.
	roomEvery = 5 * time.Second
)

// keepRoom raises the limit above what lives, for example thousands of connections, and takes
// it back, until the context ends.
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

// living is what the last collection left, with all that is no heap, such as stacks.
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
