package guardian

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/decide"
)

// Enforce kills, whatever happened to the guardians, what still runs when the lease is about to end: see
// decide.LeaseEnd. It returns when the context ends.
func (r *Runtime) Enforce(ctx context.Context) (err error) {
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, alarm.close()) }()
	for {
		if err := alarm.set(r.enforce()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-alarm.rang:
		case <-r.enforcing.changed():
		}
	}
}

// checkEvery is how soon the agent notices a damaged lease file.
const checkEvery = time.Second

// enforce does what is due and returns when to check again.
func (r *Runtime) enforce() time.Duration {
	r.enforcing.mu.Lock()
	defer r.enforcing.mu.Unlock()
	l, err := r.lease()
	if errors.Is(err, errNoRight) {
		err = nil // the zero lease has ended
	}
	if now, force := SinceBoot(), l.end(0).Force; err == nil && now < force {
		return min(force, now+checkEvery)
	}
	clean := false
	if err == nil {
		clean, err = r.endAll()
	}
	switch {
	case err != nil:
		r.log().Error("enforce the lease, retrying", "err", err)
		return SinceBoot() + checkEvery/10
	case !clean: // at once, but rarely if a process hangs in the kernel
		return SinceBoot() + min(time.Duration(r.enforcing.passes)*again/4, checkEvery)
	}
	return decide.NoDeadline // nothing runs, and nothing starts before the next Lease
}

// ward is an instance that may have running processes.
type ward struct {
	dir   string
	state state
}

// endAll kills all guardians and then their processes; clean means that nothing was left. It reads the process
// table once for all of them: time is short.
func (r *Runtime) endAll() (clean bool, err error) {
	wards, err := r.wards()
	if len(wards) == 0 {
		return err == nil, err
	}
	errs := []error{err} // an instance that cannot be read must not save the others
	table, err := processes()
	if err != nil {
		return false, errors.Join(append(errs, err)...)
	}
	killed, err := killBelongings(table, wards)
	if errs = append(errs, err); killed > 0 {
		if r.enforcing.passes++; r.enforcing.passes == 1 {
			r.log().Warn("the lease ends; killed processes that guardians did not stop", "instances", len(wards), "processes", killed)
		}
		return false, errors.Join(errs...)
	}
	for _, w := range wards {
		errs = append(errs, w.end())
	}
	return true, errors.Join(errs...)
}

func (r *Runtime) wards() ([]ward, error) {
	names, err := r.Names()
	if err != nil {
		return nil, err
	}
	boot, err := r.bootID()
	if err != nil {
		return nil, err
	}
	var wards []ward
	var errs []error
	for _, name := range names {
		dir := filepath.Join(r.Root, string(name))
		st, err := readState(dir)
		if err == nil && st.BootID == boot && !st.Stopped {
			wards = append(wards, ward{dir, st})
		}
		errs = append(errs, err)
	}
	return wards, errors.Join(errs...)
}

// killBelongings kills the guardians and all below them, which is fast, and then searches for what dead
// guardians left, by reading environments.
func killBelongings(table []entry, wards []ward) (killed int, err error) {
	guardians := make(map[process]bool, len(wards))
	states := make([]state, len(wards))
	for i, w := range wards {
		guardians[w.state.Guardian], states[i] = true, w.state
	}
	var found []entry
	var pids []int
	for _, e := range table {
		if guardians[e.process] && !e.Zombie {
			found, pids = append(found, e), append(pids, e.PID)
		}
	}
	found = append(found, descendants(table, pids...)...)
	done := make(map[process]bool, len(found))
	var errs []error
	for _, e := range found {
		done[e.process] = true
		errs = append(errs, e.signal(unix.SIGKILL))
	}
	left := leftovers(slices.DeleteFunc(table, func(e entry) bool { return done[e.process] }), states...)
	for _, e := range left {
		errs = append(errs, e.signal(unix.SIGKILL))
	}
	return len(found) + len(left), errors.Join(errs...)
}

// end records that nothing is left, unless another process has the lock.
func (w ward) end() error {
	lock, err := takeLock(w.dir)
	if errors.Is(err, errTaken) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	st, err := readState(w.dir)
	if err == nil && st.Guardian == w.state.Guardian && !st.Stopped {
		err = st.settle(w.dir, ReasonLeaseEnded)
	}
	return errors.Join(err, lock.Close())
}
