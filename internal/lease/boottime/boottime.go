// Package boottime reads the clock that leases are timed on: monotonic, and counting while
// the machine is suspended.
package boottime

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/lease"
)

// Now reads CLOCK_BOOTTIME. Without it no lease can be kept, so the error is for the start.
func Now() (lease.Instant, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return lease.Instant(t.Nano()), nil
}

// Boot names this boot of the machine: instants of another one mean nothing.
func Boot() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
