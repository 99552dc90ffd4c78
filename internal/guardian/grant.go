package guardian

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// enforcing is the agent's part in enforcing the deadline.
type enforcing struct {
	// mu is held while the lease is written and while processes without a lease are killed, so that nothing is
	// killed for the old lease that the new one allows.
	mu   sync.Mutex
	boot string
	last *Lease // as this Runtime wrote it
	// passes counts the passes that found something since the lease was written.
	passes int
	once   sync.Once
	news   chan struct{} // has an item when the lease was written
}

func (e *enforcing) changed() chan struct{} {
	e.once.Do(func() { e.news = make(chan struct{}, 1) })
	return e.news
}

// lease reads the current lease; mu is held.
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

// Lease sets until when all guardians may run; before the first call after a boot nothing may start. A renewal
// is one small write, which guardians read when they would have to stop. Lease sends an earlier deadline, and
// the first one of this Runtime, to each guardian before it returns; a guardian that does not answer within a
// second is left to Enforce. The deadline outlives the agent: it is valid until the next agent's first call.
func (r *Runtime) Lease(ctx context.Context, l Lease) error {
	if err := l.validate(); err != nil {
		return err
	}
	nearer, err := r.writeLease(l)
	if err != nil || !nearer {
		return err
	}
	return r.tellAll(ctx)
}

func (r *Runtime) writeLease(l Lease) (nearer bool, err error) {
	e := &r.enforcing
	e.mu.Lock()
	defer e.mu.Unlock()
	boot, err := r.bootID()
	if err != nil {
		return false, err
	}
	if err := writeLease(r.Root, boot, l); err != nil {
		return false, err
	}
	nearer = e.last == nil || l.Deadline < e.last.Deadline || l.TTL != e.last.TTL || e.last.Patient && !l.Patient
	e.last, e.passes = &l, 0
	select {
	case e.changed() <- struct{}{}:
	default: // one is queued already
	}
	return nearer, nil
}

// tellLimit bounds how long hung guardians delay Lease; tellers is how many are called at once.
const (
	tellLimit = time.Second
	tellers   = 64
)

// tellAll makes every guardian check the lease. It fails only if it cannot list them.
func (r *Runtime) tellAll(ctx context.Context) error {
	names, err := r.Names()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(tellers)
	for _, name := range names {
		group.Go(func() error {
			r.tell(ctx, filepath.Join(r.Root, string(name)))
			return nil // a guardian that cannot be reached has ended, or Enforce ends it
		})
	}
	return group.Wait()
}

func (r *Runtime) tell(ctx context.Context, dir string) {
	held, err := lockHeld(dir)
	if err == nil && held {
		_, err = ask(ctx, dir, request{Op: opLease})
	}
	if err != nil {
		r.log().Warn("send the lease to a guardian", "dir", dir, "err", err)
	}
}

// mayStart refuses an instance that would have to stop at once.
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
	return fleet.Errorf(fleet.Stale, "the node's right to run instances has ended").WithHint("the node starts them when it has the lease again")
}
