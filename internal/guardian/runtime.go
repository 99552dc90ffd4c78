package guardian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Runtime is an agent's view of the guardians of one node. Its methods may be called concurrently, also by
// several agents; the lock of a name orders decisions about it.
type Runtime struct {
	// Root has a run directory for each instance. Its file system must be local.
	Root string
	// Executable is the program that calls Main when its first argument is Command.
	Executable string
	// OwnName is the name by which a command runs Executable, if no folder of its PATH has such a program; "" for none.
	OwnName string
	// LifetimePID makes guardians stop when that process ends; with 0 they outlive all others.
	LifetimePID int
	// Unleased runs without a lease: neither Start nor the guardians check one.
	Unleased bool
	// AnswerTimeout is how long a guardian may take to answer before it counts as hung (default 3 s).
	AnswerTimeout time.Duration
	// Backoff and OutputLimit (of one of two files, default 1 MiB) are passed to the guardians.
	Backoff     Backoff
	OutputLimit int64
	Log         *slog.Logger

	enforcing enforcing
}

const (
	defaultAnswer = 3 * time.Second
	// lookAgain is the pause while a guardian holds its lock but does not listen yet, or no longer: no event
	// announces the end of that.
	lookAgain = 5 * time.Millisecond
	listers   = 16
)

// errHung: a process holds the lock and does not answer. errNone: no process holds it.
var (
	errHung = errors.New("the guardian does not answer")
	errNone = errors.New("no guardian")
)

// Names lists the instances that have a directory here, in order: they run, or ran and may have output left.
func (r *Runtime) Names() ([]fleet.InstanceName, error) {
	entries, err := os.ReadDir(r.Root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list guardians: %w", err)
	}
	names := make([]fleet.InstanceName, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() && fleet.ValidateName("", e.Name()) == nil {
			names = append(names, fleet.InstanceName(e.Name()))
		}
	}
	return names, nil
}

// List gives every guardian that lives or hangs. It also gives those that died without stopping their instance
// (Dead: something of it may still run, so stop or start it), and those that stopped it because the lease or
// its only command ended (Ended, until it is stopped or started). It leaves out directories of stopped
// instances. The order is by name.
func (r *Runtime) List(ctx context.Context) ([]Status, error) {
	names, err := r.Names()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var found []Status
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listers)
	for _, name := range names {
		group.Go(func() error {
			st, ok, err := r.Status(ctx, name)
			if ok {
				mu.Lock()
				found = append(found, st)
				mu.Unlock()
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("list guardians: %w", err)
	}
	slices.SortFunc(found, func(a, b Status) int { return strings.Compare(string(a.Instance), string(b.Instance)) })
	return found, nil
}

// Status gives the status of one instance; ok is false if List has none.
func (r *Runtime) Status(ctx context.Context, name fleet.InstanceName) (Status, bool, error) {
	dir, err := r.dir(name)
	if err != nil {
		return Status{}, false, err
	}
	st, err := r.probe(ctx, dir)
	if err == nil {
		return st, true, nil
	}
	if !errors.Is(err, errHung) && !errors.Is(err, errNone) {
		return Status{}, false, fmt.Errorf("ask guardian of %s: %w", name, err)
	}
	last, readErr := readState(dir)
	if readErr != nil {
		return Status{}, false, readErr
	}
	last.Status.Instance, last.Status.GuardianPID = name, last.Guardian.PID
	if errors.Is(err, errHung) {
		return last.hung()
	}
	return last.dead()
}

// hung is the status of a guardian that does not answer.
func (st state) hung() (Status, bool, error) {
	seen := st.Status
	seen.Guardian = Hung
	var err error
	if seen.Running, err = st.Command.alive(); !seen.Running {
		seen.PID = 0
	}
	return seen, true, err
}

// dead is the status without a guardian; not ok if all of it was stopped on request.
func (st state) dead() (Status, bool, error) {
	boot, err := bootID()
	seen := st.Status
	seen.Guardian, seen.Running, seen.PID = Dead, false, 0
	if st.Stopped {
		seen.Guardian = Ended
	}
	return seen, err == nil && st.BootID == boot && (!st.Stopped || seen.Reason != ""), err
}

// probe asks for the status, and distinguishes a hung guardian from none.
func (r *Runtime) probe(ctx context.Context, dir string) (Status, error) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, r.answerTimeout())
	defer cancel()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		answer, err := ask(ctx, dir, request{Op: opStatus})
		if err == nil {
			return answer.Status, answer.err()
		}
		if ours(err) {
			return Status{}, err
		}
		if ctx.Err() == nil {
			if held, lockErr := lockHeld(dir); lockErr != nil || !held {
				return Status{}, errors.Join(lockErr, errNone)
			}
		}
		select {
		case <-ctx.Done():
			if outer.Err() != nil {
				return Status{}, fmt.Errorf("ask guardian: %w", context.Cause(outer))
			}
			return Status{}, errHung
		case <-tick.C:
		}
	}
}

// ours tells whether a request failed for a reason that is not the guardian's; the guardian must not count as
// hung then.
func ours(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, fs.ErrPermission)
}

func (r *Runtime) answerTimeout() time.Duration {
	if r.AnswerTimeout <= 0 {
		return defaultAnswer
	}
	return r.AnswerTimeout
}

func (r *Runtime) log() *slog.Logger {
	if r.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Log
}

// dir is the absolute run directory of a name; the name must not lead anywhere else.
func (r *Runtime) dir(name fleet.InstanceName) (string, error) {
	if err := fleet.ValidateName("/instance", string(name)); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Join(r.Root, string(name)))
	if err != nil {
		return "", fmt.Errorf("find run directory: %w", err)
	}
	return dir, nil
}
