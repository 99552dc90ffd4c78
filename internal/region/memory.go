package region

import (
	"os"
	"runtime/debug"
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

func operatorSet(name string) bool {
	return os.Getenv(name) != "" //nolint:forbidigo // the Go runtime's own settings, which this must not override
}
