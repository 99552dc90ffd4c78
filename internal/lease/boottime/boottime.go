// Package boottime reads the clock that times leases: monotonic, and running while
// the machine is suspended.
package boottime

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/lease"
)

// Now reads CLOCK_BOOTTIME. A node cannot keep a lease without it, so it must not start after an error.
func Now() (lease.Instant, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return lease.Instant(t.Nano()), nil
}

// Boot is the id of this boot of the machine: instants of another boot are void.
func Boot() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}
