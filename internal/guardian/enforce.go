package guardian

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// enforcing is the agent's half of keeping the deadline.
type enforcing struct {
	// mu is held while the lease is written and while what runs without one is killed, so
	// that nothing which a new lease allowed is killed for the old one.
	mu   sync.Mutex
	boot string
	once sync.Once
	news chan struct{} // has an item when the lease was written
}

func (e *enforcing) changed() chan struct{} {
	e.once.Do(func() { e.news = make(chan struct{}, 1) })
	return e.news
}

// lease reads what is written; mu is held, or nobody else has the Runtime yet.
func (r *Runtime) lease() (Lease, error) {
	boot, err := r.bootID()
	if err != nil {
		return Lease{}, err
	}
	return readLease(r.Root, boot)
}

func (r *Runtime) bootID() (string, error) {
	if r.enforcing.boot == "" {
		boot, err := bootID()
		if err != nil {
			return "", err
		}
		r.enforcing.boot = boot
	}
	return r.enforcing.boot, nil
}

// Lease tells all guardians until when they may run; before the first call after a boot
// nothing may be started. A later deadline counts at once. An earlier one, or the first after
// none, counts for Enforce at once and for the guardians within a second. It outlives the
// agent: the next one finds the deadline that was written last in force.
func (r *Runtime) Lease(l Lease) error {
	if err := l.validate(); err != nil {
		return err
	}
	e := &r.enforcing
	e.mu.Lock()
	defer e.mu.Unlock()
	boot, err := r.bootID()
	if err != nil {
		return err
	}
	if err := writeLease(r.Root, boot, l); err != nil {
		return err
	}
	select {
	case e.changed() <- struct{}{}:
	default: // one is waiting there
	}
	return nil
}

// mayStart refuses what would have to be stopped at once.
func (r *Runtime) mayStart(spec Spec) error {
	r.enforcing.mu.Lock()
	defer r.enforcing.mu.Unlock()
	l, err := r.lease()
	if errors.Is(err, errNoRight) || err == nil && l.end(spec.stopGrace()).Step(SinceBoot()) != decide.LeaseRun {
		return errLeaseEnded()
	}
	return err
}

func errLeaseEnded() error {
	return fleet.Errorf(fleet.Stale, "the node's right to run instances has ended").WithHint("it starts them when it has the lease again")
}

// Enforce kills, whatever became of the guardians, what still runs when the lease is about to
// end: see decide.LeaseEnd. It returns when the context ends.
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

// enforce does what is due and says when to look again.
func (r *Runtime) enforce() time.Duration {
	r.enforcing.mu.Lock()
	defer r.enforcing.mu.Unlock()
	l, err := r.lease()
	which := everyWard
	if errors.Is(err, errNoRight) {
		err, which = nil, leasedWard
	}
	if now, force := SinceBoot(), l.end(0).Force; err == nil && now < force {
		return min(force, now+lookEvery)
	}
	clean := false
	if err == nil {
		clean, err = r.endAll(which)
	}
	switch {
	case err != nil:
		r.log().Error("lease not enforced, trying again", "err", err)
		return SinceBoot() + lookEvery/10
	case !clean:
		return SinceBoot() + again/4
	}
	return decide.NoDeadline // nothing runs, and nothing starts before the next Lease
}

// ward is an instance of which something may run.
type ward struct {
	dir   string
	state state
}

func everyWard(state) bool { return true }

// leasedWard leaves out what an agent of before the lease started, as long as no agent has
// said anything of a lease.
func leasedWard(st state) bool { return st.Status.Leased }

// endAll kills everything of all guardians, those first, and is clean when nothing was left.
// It reads the process table once for all of them: time is short.
func (r *Runtime) endAll(which func(state) bool) (clean bool, err error) {
	wards, err := r.wards(which)
	if len(wards) == 0 {
		return err == nil, err
	}
	errs := []error{err} // one that cannot be read must not save the others
	table, err := processes()
	if err != nil {
		return false, errors.Join(append(errs, err)...)
	}
	left := belongings(table, wards)
	for _, e := range left {
		errs = append(errs, e.signal(unix.SIGKILL))
	}
	if len(left) > 0 {
		r.log().Warn("the lease ends: killed what its guardians did not stop", "instances", len(wards), "processes", len(left))
		return false, errors.Join(errs...)
	}
	for _, w := range wards {
		errs = append(errs, w.end())
	}
	return true, errors.Join(errs...)
}

func (r *Runtime) wards(which func(state) bool) ([]ward, error) {
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
		if err == nil && st.BootID == boot && !st.Stopped && which(st) {
			wards = append(wards, ward{dir, st})
		}
		errs = append(errs, err)
	}
	return wards, errors.Join(errs...)
}

// belongings are the living guardians and then all that runs below or was left by any.
func belongings(table []entry, wards []ward) []entry {
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
	return append(found, leftovers(table, states...)...)
}

// end writes down that nothing is left, unless somebody else is at it.
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
