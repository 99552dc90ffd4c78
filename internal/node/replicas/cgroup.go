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
)

// Cgroups gives each replica that is a process a cgroup (version 2) of its own, with the limits that
// it asks for. A nil one gives none.
type Cgroups struct {
	base string // the directory in which those of replicas are
}

var controllers = []string{"cpu", "memory"}

// FindCgroups takes a part of the cgroup of this process under a name. It fails, and says why, where
// the machine does not let it: replicas run without limits then.
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

// ownCgroup is the directory of this process's cgroup, by the two files of /proc/self.
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
			return "", fleet.Errorf(fleet.Precondition, "the cgroup of this process is not to be seen from here")
		}
		return filepath.Join(fields[4], below), nil
	}
	return "", fleet.Errorf(fleet.Precondition, "the machine has no cgroups of version 2")
}

// divisible is the cgroup in which this process may make others that the kernel bounds. What is divided
// may hold no processes, the root aside, and whoever starts the agent again puts it where this one is:
// so it is not its own that is divided but the delegated one around it.
func divisible(own string, delegated func(dir string) bool) (string, error) {
	if _, err := os.Stat(filepath.Join(own, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return own, nil // only the root has no type
	}
	if around := filepath.Dir(own); delegated(around) {
		return around, nil
	}
	return "", fleet.Errorf(fleet.Precondition, "the cgroup of this process is in none that is its own to divide").
		WithHint("under systemd 254 or later set Delegate=yes and DelegateSubgroup=agent in its unit")
}

// delegated says that systemd left a cgroup to the unit that it is of. Kernels before 5.6 have only the
// name that root alone can read.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// takeCgroups makes a directory for those of replicas below a cgroup, which may bound them.
func takeCgroups(dir, name string) (*Cgroups, error) {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers")) //nolint:gosec // of the kernel
	if err != nil {
		return nil, fleet.Errorf(fleet.Precondition, "the cgroup cannot be read: %w", err)
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(has)), c) {
			return nil, fleet.Errorf(fleet.Precondition, "the cgroup has no controller for %s", c)
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

// enable has the cgroups below one bounded.
func enable(dir string) error {
	return occupied(control(filepath.Join(dir, "cgroup.subtree_control"), "+"+strings.Join(controllers, " +")))
}

// occupied says what to do where processes keep a cgroup from being divided: they are of an agent of
// before the unit was delegated.
func occupied(err error) error {
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	return fleet.Errorf(fleet.Precondition, "what runs since before the cgroup was delegated is still in it: %w", err).
		WithHint("once it has ended, restart the agent; systemctl stop and then systemctl kill of its unit end all of it")
}

// control writes to one of the kernel's files.
func control(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // it is there already
		return fleet.Errorf(fleet.Precondition, "set %s: %w", filepath.Base(path), err)
	}
	return nil
}

// cpuPeriod is over which time the use of processors is bounded, cpuLeast the least of it that the
// kernel takes for a bound, in microseconds.
const (
	cpuPeriod = 100_000
	cpuLeast  = 1_000
)

// make gives the cgroup of a replica with its limits, "" where there are none to be had.
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

// killed says that the kernel killed something of the replica for its memory.
func (c *Cgroups) killed(id fleet.ReplicaID) bool {
	if c == nil {
		return false
	}
	events, err := os.ReadFile(filepath.Join(c.base, string(id), "memory.events"))
	return err == nil && figure(string(events), "oom_kill") > 0
}

// figure is the number behind a name in one of the kernel's files, 0 without one.
func figure(text, name string) int64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64) // 0 as said
			return n
		}
	}
	return 0
}

// emptied is how long killed processes may take to leave a cgroup.
const (
	emptied    = 5 * time.Second
	emptyAgain = 10 * time.Millisecond
)

// remove kills what is left in the cgroup of a replica, whoever its parent is and whatever it did to
// hide, and deletes it with those that the replica made in it.
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
		if pause(ctx, emptyAgain); ctx.Err() != nil {
			return fleet.Errorf(fleet.Unavailable, "something is left in the replica's cgroup: %w", ctx.Err())
		}
	}
}

// removeTree deletes a cgroup, those below it first: the kernel deletes none that has others.
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
