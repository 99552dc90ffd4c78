package guardian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// killMargin is how long after the grace a guardian may take until everything has ended.
const killMargin = 5 * time.Second

// Stop ends an instance and returns when neither processes nor guardian are left; nil if there was nothing. If
// the guardian hangs or has died, the command gets no grace: everything is killed. When the context ends
// earlier, the guardian continues to stop.
func (r *Runtime) Stop(ctx context.Context, name fleet.InstanceName) error {
	return r.StopWithin(ctx, name, 0)
}

// StopWithin is Stop with another grace than the instance was started with; 0 leaves that.
func (r *Runtime) StopWithin(ctx context.Context, name fleet.InstanceName, grace time.Duration) error {
	dir, err := r.dir(name)
	if err != nil {
		return err
	}
	if err := r.stop(ctx, dir, grace); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

func (r *Runtime) stop(ctx context.Context, dir string, grace time.Duration) error {
	held, err := lockHeld(dir)
	if err != nil {
		return err
	}
	if held {
		done, err := r.stopGuardian(ctx, dir, request{Op: opStop, GraceSeconds: grace.Seconds()})
		if done || err != nil {
			return err
		}
	}
	lock, err := takeLock(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist): // no directory
		return nil
	case errors.Is(err, errTaken):
		return fleet.Errorf(fleet.Conflict, "another process is starting or stopping it")
	case err != nil:
		return err
	}
	return errors.Join(cleanUp(ctx, dir), lock.Close())
}

// stopGuardian is done if a guardian stopped everything itself; otherwise no guardian is left.
func (r *Runtime) stopGuardian(ctx context.Context, dir string, in request) (done bool, err error) {
	st, err := r.probe(ctx, dir)
	switch {
	case err == nil:
		if err = stopLive(ctx, dir, st, in); err == nil || ctx.Err() != nil {
			return err == nil, err
		}
	case errors.Is(err, errNone):
		return false, nil
	case !errors.Is(err, errHung):
		return false, err
	}
	held, lockErr := lockHeld(dir)
	if lockErr != nil || !held { // another process stopped or killed it
		return false, lockErr
	}
	r.log().Warn("killing a guardian that did not stop", "dir", dir, "err", err)
	return false, killGuardian(ctx, dir)
}

// stopLive requests the stop and waits for the end of the guardian itself.
func stopLive(ctx context.Context, dir string, st Status, in request) error {
	guardian, err := openPID(st.GuardianPID)
	if err != nil {
		return err
	}
	var asked launch
	err = readJSON(filepath.Join(dir, specFile), &asked)
	ctx, cancel := context.WithTimeout(ctx, in.grace(asked.Spec)+killMargin)
	defer cancel()
	var answer response
	if err == nil {
		answer, err = ask(ctx, dir, in)
	}
	if err == nil {
		err = answer.err()
	}
	if err == nil {
		err = guardian.wait(ctx)
	}
	return errors.Join(err, guardian.close())
}

// killGuardian kills the guardian named in state.json, and waits for its end. Its command dies with it; cleanUp
// handles the rest.
func killGuardian(ctx context.Context, dir string) error {
	st, err := readState(dir)
	if err != nil {
		return err
	}
	guardian, err := st.Guardian.open()
	if errors.Is(err, errGone) {
		return fleet.Errorf(fleet.Unavailable, "an unknown process holds its lock").
			WithHint("end the process that has " + lockFile + " open")
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killMargin)
	defer cancel()
	err = guardian.signal(unix.SIGKILL)
	if err == nil {
		err = guardian.wait(ctx)
	}
	if err = errors.Join(err, guardian.close()); err != nil {
		return fmt.Errorf("kill guardian: %w", err)
	}
	return nil
}

// cleanUp does what a dead guardian did not. The caller holds the lock.
func cleanUp(ctx context.Context, dir string) error {
	st, err := readState(dir)
	if err != nil {
		return err
	}
	if st.BootID == "" || st.Stopped && st.Status.Reason == "" {
		return nil
	}
	if err := sweep(ctx, st); err != nil {
		return err
	}
	return st.settle(dir, "")
}

// settle records, for a dead guardian, that nothing of its instance is left, and the reason.
func (st state) settle(dir, reason string) error {
	st.Stopped, st.Status.Running, st.Status.PID, st.Status.Reason = true, false, 0, reason
	if err := os.Remove(filepath.Join(dir, socketFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove socket: %w", err)
	}
	return writeJSON(filepath.Join(dir, stateFile), st)
}

// Remove deletes the run directory of an instance, output included. It fails with conflict while a guardian
// lives; nil without a directory.
func (r *Runtime) Remove(ctx context.Context, name fleet.InstanceName) error {
	dir, err := r.dir(name)
	if err != nil {
		return err
	}
	lock, err := takeLock(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errTaken):
		return fleet.Errorf(fleet.Conflict, "instance %s still has a guardian", name)
	case err != nil:
		return fmt.Errorf("remove %s: %w", name, err)
	}
	err = cleanUp(ctx, dir)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}
