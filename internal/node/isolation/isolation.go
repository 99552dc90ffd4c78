package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
)

// Range is the uids from First to Last.
type Range struct{ First, Last int }

// DefaultRange is unused in systemd's table of uids (1879048192 to 2147483647), and above shadow's subordinate
// uids (to 600100000), so no login user, service or container has one of them.
func DefaultRange() Range { return Range{First: 2_000_000_000, Last: 2_000_065_535} }

// maxUID is the highest signed 32-bit number; some programs fail above it.
const maxUID = 1<<31 - 1

// String is the range as the flag reads it: FIRST-LAST.
func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Set parses the format of String.
func (r *Range) Set(text string) error {
	first, last, _ := strings.Cut(text, "-")
	a, errA := strconv.Atoi(first)
	b, errB := strconv.Atoi(last)
	if errA != nil || errB != nil || a < 1 || b < a || b > maxUID {
		return fleet.Errorf(fleet.Invalid, "want FIRST-LAST, both from 1 to %d", maxUID)
	}
	*r = Range{a, b}
	return nil
}

// Type is the name of the type in the help.
func (*Range) Type() string { return "FIRST-LAST" }

// Options configure Isolation.
type Options struct {
	// Dir is the node's data directory, absolute. Commands see only their working directories of it.
	Dir string
	// Off runs all commands as the agent's user.
	Off bool
	// Range is DefaultRange if it is zero.
	Range Range
}

// Isolation decides as which user the commands of a project run.
type Isolation struct {
	// Site gives the project of the node's site, "" before the region sent it; set it before the node runs
	// anything.
	Site func() fleet.ProjectName

	opt Options
	why string // why commands are not isolated, "" if they are

	mu    sync.Mutex
	uids  map[fleet.ProjectName]int
	taken map[int]bool // in use, or found to own something
}

// New makes an Isolation; call Begin before use.
func New(opt Options) *Isolation {
	if opt.Range == (Range{}) {
		opt.Range = DefaultRange()
	}
	return &Isolation{opt: opt, why: "the agent has not started", uids: map[fleet.ProjectName]int{}, taken: map[int]bool{}}
}

// Begin checks whether the machine allows isolation, and reads the map of uids. The caller holds the lock of
// the data directory.
func (i *Isolation) Begin() error {
	if i.why = i.obstacle(); i.why != "" {
		return nil
	}
	return errors.Join(i.load(), i.foundOwners())
}

// Separation is what the node reports about its isolation.
func (i *Isolation) Separation() fleet.Separation {
	if i.why == "" {
		return fleet.SeparationUID
	}
	return fleet.SeparationNone
}

// Why is the reason why commands are not isolated, "" if they are.
func (i *Isolation) Why() string { return i.why }

// User gives the confinement of a project's commands, or an error where the node may not run them.
func (i *Isolation) User(project fleet.ProjectName) (guardian.Confinement, error) {
	if i.why != "" {
		if !fleet.SeparationNone.Admits(project, i.Site()) {
			return guardian.Confinement{}, fleet.NoSeparation(project)
		}
		return guardian.Confinement{}, nil
	}
	uid, err := i.uid(project)
	return guardian.Confinement{UID: uid, Hide: i.opt.Dir}, err
}

// uid gives a project's uid, and stores it before use.
func (i *Isolation) uid(project fleet.ProjectName) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if uid, has := i.uids[project]; has {
		return uid, nil
	}
	for uid := i.opt.Range.First; uid <= i.opt.Range.Last; uid++ {
		if i.taken[uid] {
			continue
		}
		i.uids[project] = uid
		if err := i.save(); err != nil {
			delete(i.uids, project)
			return 0, err
		}
		i.taken[uid] = true
		return uid, nil
	}
	return 0, fleet.Errorf(fleet.IsolationMissing, "isolation_missing: all %d uids of --uid-range %s are used by other projects",
		i.opt.Range.Last-i.opt.Range.First+1, i.opt.Range).WithHint("start the agent with a wider --uid-range")
}

// foundOwners adds the uids that own something in the node's directories, whatever uids.json contains.
func (i *Isolation) foundOwners() error {
	for _, dir := range []string{"instances", "replicas"} {
		found, err := filepath.Glob(filepath.Join(i.opt.Dir, dir, "*"))
		if err != nil {
			return fmt.Errorf("look for owners of directories: %w", err)
		}
		for _, path := range found {
			if uid, ok := ownerOf(path); ok {
				i.taken[uid] = true
			}
		}
	}
	return nil
}

func ownerOf(path string) (int, bool) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// obstacle is the reason why commands cannot be isolated here, "" if they can.
func (i *Isolation) obstacle() string {
	switch {
	case i.opt.Off:
		return "isolation is turned off (--isolation=none)"
	case os.Geteuid() != 0:
		return "the agent is not root"
	}
	if err := i.probe(); err != nil {
		return "the machine does not allow it: " + err.Error()
	}
	return ""
}

// probe tests isolation with the range's last uid, which is used last.
func (i *Isolation) probe() (err error) {
	dir, err := os.MkdirTemp(i.opt.Dir, "probe-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(dir); err == nil && e != nil {
			err = fmt.Errorf("remove %s: %w", dir, e)
		}
	}()
	own, file, secret := filepath.Join(dir, "own"), filepath.Join(dir, "own", "file"), filepath.Join(dir, "secret")
	if err := os.Mkdir(own, 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	for _, path := range []string{file, secret} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return fmt.Errorf("write a file: %w", err)
		}
	}
	uid := i.opt.Range.Last
	if err := Give(own, uid); err != nil {
		return err
	}
	return guardian.Probe(guardian.Confinement{UID: uid, Hide: i.opt.Dir}, own, file, secret)
}
