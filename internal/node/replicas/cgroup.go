package replicas

import (
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

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/pause"
)

// Cgroups gives each replica that is a process its own cgroup (version 2), with the limits of its definition. A
// nil Cgroups gives none.
type Cgroups struct {
	base string // the parent directory of the replicas' cgroups
}

var controllers = []string{"cpu", "memory"}

// FindCgroups finds a delegated part of this process's cgroup and makes a directory of that name in it. It
// returns an error where the machine does not allow that; replicas then run without limits.
func FindCgroups(name string) (*Cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "find the cgroups: %w", err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "find the cgroup of this process: %w", err)
	}
	dir, err := ownCgroup(string(mounts), string(own))
	if err != nil {
		return nil, err
	}
	dir, err = divisible(dir, delegated)
	if err != nil {
		return nil, err
	}
	return takeCgroups(dir, name)
}

// ownCgroup gives the directory of this process's cgroup, from the two files of /proc/self.
func ownCgroup(mounts, own string) (string, error) {
	var at string
	for line := range strings.Lines(own) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			at = strings.TrimSpace(path)
		}
	}
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		below, err := filepath.Rel(fields[3], at)
		if at == "" || err != nil || strings.HasPrefix(below, "..") {
			return "", fleet.Errorf(fleet.Precondition, "the cgroup of this process is not visible here")
		}
		return filepath.Join(fields[4], below), nil
	}
	return "", fleet.Errorf(fleet.Precondition, "the machine has no cgroups of version 2")
}

// divisible gives the cgroup below which this process may make others with limits. Apart from the root, a
// cgroup with children must hold no processes, and the service manager puts a restarted agent back into this
// process's cgroup. So the result is the delegated cgroup around it.
func divisible(own string, delegated func(dir string) bool) (string, error) {
	if _, err := os.Stat(filepath.Join(own, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return own, nil // only the root has no type
	}
	if around := filepath.Dir(own); delegated(around) {
		return around, nil
	}
	return "", fleet.Errorf(fleet.Precondition, "the cgroup of this process is not in a delegated cgroup").
		WithHint("under systemd 254 or later set Delegate=yes and DelegateSubgroup=agent in its unit")
}

// delegated tells whether systemd delegated a cgroup to its unit. Kernels before 5.6 have only the attribute
// name that only root can read.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// takeCgroups makes the directory for the replicas' cgroups, with the controllers for their limits.
func takeCgroups(dir, name string) (*Cgroups, error) {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")) //nolint:gosec // of the kernel
	if err != nil {
		return nil, fleet.Errorf(fleet.Precondition, "the cgroup cannot be read: %w", err)
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(has)), c) {
			return nil, fleet.Errorf(fleet.Precondition, "the cgroup has no controller %q", c)
		}
	}
	if err := enable(dir); err != nil {
		return nil, err
	}
	base := filepath.Join(dir, name)
	if err := os.Mkdir(base, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel has them
		return nil, fleet.Errorf(fleet.Precondition, "make a cgroup: %w", err)
	}
	if err := enable(base); err != nil {
		return nil, err
	}
	return &Cgroups{base: base}, nil
}

// enable turns on the controllers for the cgroups below a directory.
func enable(dir string) error {
	return occupied(control(filepath.Join(dir, "cgroup.subtree_control"), "+"+strings.Join(controllers, " +")))
}

// occupied adds advice where processes in the cgroup block the controllers: they were started before systemd
// delegated the unit.
func occupied(err error) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	return fleet.Errorf(fleet.Precondition, "processes from before the delegation are still in the cgroup: %w", err).
		WithHint("end them with systemctl stop and then systemctl kill of the unit, then restart the agent")
}

// control writes to one of the kernel's files.
func control(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // it is there already
		return fleet.Errorf(fleet.Precondition, "set %s: %w", filepath.Base(path), err)
	}
	return nil
}

// cpuPeriod is the period of the CPU limit; cpuLeast is the smallest limit that the kernel accepts, in
// microseconds.
const (
	cpuPeriod = 100_000
	cpuLeast  = 1_000
)

// make creates the cgroup of a replica with its limits, and gives its directory, "" without cgroups.
func (c *Cgroups) make(id fleet.ReplicaID, r fleet.Resources) (string, error) {
	if c == nil {
		return "", nil
	}
	dir := filepath.Join(c.base, string(id))
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as the kernel has them
		return "", fleet.Errorf(fleet.Unavailable, "make the replica's cgroup: %w", err)
	}
	var errs []error
	if r.CPU > 0 {
		errs = append(errs, control(filepath.Join(dir, "cpu.max"), fmt.Sprintf("%d %d", max(int64(r.CPU*cpuPeriod), cpuLeast), cpuPeriod)))
	}
	if r.Memory > 0 {
		errs = append(errs, control(filepath.Join(dir, "memory.max"), strconv.FormatInt(r.Memory, 10)),
			control(filepath.Join(dir, "memory.oom.group"), "1"))
	}
	return dir, errors.Join(errs...)
}

// killed tells whether the kernel killed something of the replica because of its memory limit.
func (c *Cgroups) killed(id fleet.ReplicaID) bool {
	if c == nil {
		return false
	}
	events, err := os.ReadFile(filepath.Join(c.base, string(id), "memory.events"))
	return err == nil && figure(string(events), "oom_kill") > 0
}

// figure gives the number after a name in one of the kernel's files, 0 without one.
func figure(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // 0 if it is not a number
			return n
		}
	}
	return 0
}

// emptied is how long killed processes have to leave a cgroup.
const (
	emptied    = 5 * time.Second
	emptyAgain = 10 * time.Millisecond
)

// remove kills all processes in the cgroup of a replica, whatever their parent, and deletes it with the cgroups
// that the replica made in it.
func (c *Cgroups) remove(ctx context.Context, id fleet.ReplicaID) error {
	if c == nil {
		return nil
	}
	dir := filepath.Join(c.base, string(id))
	ctx, cancel := context.WithTimeout(ctx, emptied)
	defer cancel()
	for {
		err := removeTree(dir)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fleet.Errorf(fleet.Unavailable, "remove the replica's cgroup: %w", err)
		}
		if err := control(filepath.Join(dir, "cgroup.kill"), "1"); err != nil {
			return err
		}
		if pause.For(ctx, emptyAgain) != nil {
			return fleet.Errorf(fleet.Unavailable, "the replica's cgroup still has processes: %w", ctx.Err())
		}
	}
}

// removeTree deletes a cgroup, children first: the kernel deletes no cgroup that has children.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeTree(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ids lists the replicas that have a cgroup.
func (c *Cgroups) ids() ([]fleet.ReplicaID, error) {
	if c == nil {
		return nil, nil
	}
	entries, err := os.ReadDir(c.base)
	if err != nil {
		return nil, fleet.Errorf(fleet.Unavailable, "list cgroups: %w", err)
	}
	var all []fleet.ReplicaID
	for _, e := range entries {
		if e.IsDir() && fleet.ValidReplicaID(e.Name()) {
			all = append(all, fleet.ReplicaID(e.Name()))
		}
	}
	return all, nil
}
