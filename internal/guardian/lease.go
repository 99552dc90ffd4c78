package guardian

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// leaseFile is in the root; the dot keeps it apart from the directories of instances.
const leaseFile = "node.lease"

// lookEvery is how often a guardian reads the lease though nothing is due: it does not wake for renewals, and
// the agent reports an earlier deadline. This finds a damaged file, and a change that a killed agent could not
// report.
const lookEvery = 30 * time.Second

// Lease is a node's right to run the commands of its guardians.
type Lease struct {
	// Deadline is an instant of SinceBoot, decide.NoDeadline for none.
	Deadline time.Duration
	// TTL is how far a renewal moves the deadline; it bounds how early a stop begins.
	TTL time.Duration
	// Patient delays a graceful stop as long as possible: the node removes the deadline when it is isolated, so a
	// near deadline means that its agent has just restarted.
	Patient bool
}

// NoDeadline lets instances run until a later lease ends them.
func NoDeadline() Lease { return Lease{Deadline: decide.NoDeadline} }

// SinceBoot reads CLOCK_BOOTTIME, the clock of deadlines: it counts suspend and is the same for every process
// of a boot.
func SinceBoot() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		return math.MaxInt64 - 1 // documented as impossible; every deadline has passed then
	}
	return time.Duration(at.Nano())
}

func (l Lease) validate() error {
	if l.Deadline < 0 || l.TTL < 0 || l.TTL == 0 && l.Deadline != decide.NoDeadline {
		return fleet.Errorf(fleet.Invalid, "invalid lease: want a deadline after the boot, and a TTL")
	}
	return nil
}

func (l Lease) end(grace time.Duration) decide.LeaseEnd {
	end := decide.EndOfLease(l.Deadline, l.TTL, grace)
	if l.Patient {
		return end.Patient()
	}
	return end
}

// errNoRight: there is no valid lease of this boot.
var errNoRight = errors.New("no lease")

const (
	leaseFormat = "holdfast-lease 1 %36s %019d %019d %7s"
	leaseSize   = 17 + 36 + 1 + 19 + 1 + 19 + 1 + 7 + 1 + 8 + 1

	hurried = "hurried"
	patient = "patient"
)

// encode gives one line of leaseSize bytes, which ends in the checksum of the rest.
func (l Lease) encode(boot string) []byte {
	temper := hurried
	if l.Patient {
		temper = patient
	}
	line := fmt.Sprintf(leaseFormat, boot, int64(l.Deadline), int64(l.TTL), temper)
	return fmt.Appendf(nil, "%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
}

func parseLease(line []byte, boot string) (Lease, error) {
	var l Lease
	var of, temper string
	if _, err := fmt.Sscanf(string(line), leaseFormat, &of, (*int64)(&l.Deadline), (*int64)(&l.TTL), &temper); err != nil {
		return Lease{}, fmt.Errorf("%w: damaged lease file", errNoRight)
	}
	l.Patient = temper == patient
	switch {
	case string(l.encode(of)) != string(line) || l.validate() != nil:
		return Lease{}, fmt.Errorf("%w: damaged lease file", errNoRight)
	case of != boot:
		return Lease{}, fmt.Errorf("%w: lease of another boot", errNoRight)
	}
	return l, nil
}

// readLease returns errNoRight without a valid lease of this boot; any other error means nothing about the
// lease.
func readLease(root, boot string) (l Lease, err error) {
	for range 3 { // a read during a write may get half of it, once
		var line []byte
		if line, err = readWhole(filepath.Join(root, leaseFile)); err != nil {
			return Lease{}, err
		}
		if l, err = parseLease(line, boot); err == nil {
			return l, nil
		}
	}
	return Lease{}, err
}

func readWhole(path string) (line []byte, err error) {
	file, err := os.Open(path) //nolint:gosec // in the runtime's root
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: lease file not found", errNoRight)
	}
	if err != nil {
		return nil, fmt.Errorf("open lease: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	line = make([]byte, leaseSize)
	n, err := file.ReadAt(line, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read lease: %w", err)
	}
	return line[:n], nil
}

// writeLease overwrites the line in one system call, which a kill does not cut. The first one is renamed into
// place. Nothing is synced: a lease is void after the next boot.
func writeLease(root, boot string, l Lease) (err error) {
	path := filepath.Join(root, leaseFile)
	file, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // in the runtime's root
	if errors.Is(err, fs.ErrNotExist) {
		return createLease(path, l.encode(boot))
	}
	if err != nil {
		return fmt.Errorf("open lease: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.WriteAt(l.encode(boot), 0); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	return nil
}

func createLease(path string, line []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	if err := os.WriteFile(path+".new", line, 0o600); err != nil {
		return fmt.Errorf("write lease: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("place lease: %w", err)
	}
	return nil
}
