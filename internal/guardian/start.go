package guardian

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Start starts an instance under a new guardian and returns once the command has lived for Run.StartSeconds. It
// fails with conflict while another guardian has the name. If the command ends earlier, nothing stays running; an
// early exit is apply_failed with the exit code as the reason. If the context ends earlier, the start goes on
// under the lease, and Started waits for its result; Unleased, nothing stays running. Without a lease that
// lasts long enough it fails with stale, here and in the guardian itself. The calling process should live on as
// the guardian's parent, or end: a goroutine waits for the guardian's end.
func (r *Runtime) Start(ctx context.Context, spec Spec) (Status, error) {
	if err := spec.validate(); err != nil {
		return Status{}, err
	}
	dir, err := r.dir(spec.Instance)
	if err != nil {
		return Status{}, err
	}
	if !r.Unleased {
		if err := r.mayStart(spec); err != nil {
			return Status{}, err
		}
	}
	lock, err := claim(dir)
	if errors.Is(err, errTaken) {
		return Status{}, fleet.Errorf(fleet.Conflict, "instance %s already has a guardian", spec.Instance)
	}
	if err != nil {
		return Status{}, fmt.Errorf("start %s: %w", spec.Instance, err)
	}
	st, err := r.start(ctx, dir, lock, spec)
	if err != nil {
		return st, fmt.Errorf("start %s: %w", spec.Instance, err)
	}
	return st, nil
}

// Started waits for the result of a start whose caller no longer does, and gives it as Start would. It fails with
// conflict if no guardian has the name.
func (r *Runtime) Started(ctx context.Context, name fleet.InstanceName) (Status, error) {
	dir, err := r.dir(name)
	if err != nil {
		return Status{}, err
	}
	var asked launch
	if err := readJSON(filepath.Join(dir, specFile), &asked); err != nil {
		return Status{}, err
	}
	limited, cancel := context.WithTimeout(ctx, asked.startWindow()+r.answerTimeout()+killMargin)
	defer cancel()
	answer, err := ask(limited, dir, request{Op: opStart})
	if err == nil {
		err = answer.err()
	} else if ctx.Err() == nil {
		err = fleet.Errorf(fleet.Conflict, "its guardian did not report the start: %w", err)
	}
	if err != nil {
		return answer.Status, fmt.Errorf("wait for the start of %s: %w", name, err)
	}
	return answer.Status, nil
}

// claim locks the run directory of a name, which a concurrent Remove may delete.
func claim(dir string) (*os.File, error) {
	for {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make run directory: %w", err)
		}
		lock, err := takeLock(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return lock, err
	}
}

func (r *Runtime) start(ctx context.Context, dir string, lock *os.File, spec Spec) (Status, error) {
	if ctx.Err() != nil {
		return Status{}, errors.Join(fmt.Errorf("start the command: %w", context.Cause(ctx)), lock.Close())
	}
	asked := launch{Spec: spec, Backoff: r.Backoff, OutputLimit: r.OutputLimit, Leased: !r.Unleased, OwnName: r.OwnName}
	if err := writeJSON(filepath.Join(dir, specFile), asked); err != nil {
		return Status{}, errors.Join(err, lock.Close())
	}
	g, err := r.spawn(dir, lock)
	// From here on only the guardian holds the lock: it is free when the guardian ends.
	if err = errors.Join(err, lock.Close()); err != nil {
		return Status{}, err
	}
	answer, err := g.outcome(ctx)
	if err == nil && answer.Kind == "" {
		return answer.Status, nil
	}
	if err == nil { // refused: it is about to end
		return answer.Status, errors.Join(answer.err(), g.ended(ctx), abandon(ctx, dir))
	}
	if ctx.Err() != nil && !r.Unleased {
		return Status{}, err
	}
	// The guardian gave no result of the start: make sure that nothing runs.
	killErr := g.cmd.Process.Kill()
	if errors.Is(killErr, os.ErrProcessDone) {
		killErr = nil
	}
	code := <-g.exited
	if ctx.Err() == nil {
		err = fleet.Errorf(fleet.Internal, "its guardian ended without an answer (%s); see %s", code, logFile)
	}
	return Status{}, errors.Join(err, killErr, abandon(context.WithoutCancel(ctx), dir))
}

// ended waits for the end of a guardian that has answered.
func (g *spawned) ended(ctx context.Context) error {
	select {
	case <-g.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the guardian's end: %w", context.Cause(ctx))
	}
}

// abandon kills what a start left, unless another guardian has the name by now: it has done that, and is not
// ours to stop.
func abandon(ctx context.Context, dir string) error {
	lock, err := takeLock(dir)
	if errors.Is(err, errTaken) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(cleanUp(ctx, dir), lock.Close())
}

// spawned is a guardian as its parent sees it.
type spawned struct {
	cmd    *exec.Cmd
	ready  *os.File
	exited chan string // how it ended, once
}

// spawn runs the guardian in its own session, with an empty environment, the lock as descriptor 3 and the ready
// pipe as 4.
func (r *Runtime) spawn(dir string, lock *os.File) (_ *spawned, err error) {
	path := filepath.Join(dir, logFile)
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600) //nolint:gosec // below the runtime's root
	if err != nil {
		return nil, fmt.Errorf("open guardian log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	ready, said, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make ready pipe: %w", err)
	}
	defer func() { err = errors.Join(err, said.Close()) }()
	args := []string{Command, "--dir", dir, "--lock-fd", "3", "--ready-fd", "4"}
	if r.LifetimePID > 0 {
		args = append(args, "--lifetime-pid", strconv.Itoa(r.LifetimePID))
	}
	cmd := exec.Command(r.Executable, args...) //nolint:gosec // the agent's own program; must outlive any context
	cmd.Env, cmd.Dir, cmd.Stderr = []string{}, "/", log
	cmd.ExtraFiles = []*os.File{lock, said}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("run guardian: %w", err), ready.Close())
	}
	g := &spawned{cmd: cmd, ready: ready, exited: make(chan string, 1)}
	go g.collect()
	return g, nil
}

// collect ends with the guardian, or with this process. It first waits in the poller: the wait system call
// would keep one thread for each instance.
func (g *spawned) collect() {
	if h, err := openPID(g.cmd.Process.Pid); err == nil {
		_ = h.wait(context.Background()) // without it, only no thread is saved
		_ = h.close()
	}
	if err := g.cmd.Wait(); err != nil {
		g.exited <- err.Error()
		return
	}
	g.exited <- g.cmd.ProcessState.String()
}

// outcome waits for the guardian's result of the start.
func (g *spawned) outcome(ctx context.Context) (answer response, err error) {
	defer func() { err = errors.Join(err, g.ready.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = g.ready.SetReadDeadline(time.Unix(1, 0)) }) // ends the read below
	defer stop()
	err = json.NewDecoder(io.LimitReader(g.ready, maxMessage)).Decode(&answer)
	if ctx.Err() != nil {
		return response{}, fmt.Errorf("wait for the command: %w", context.Cause(ctx))
	}
	if err != nil {
		return response{}, fmt.Errorf("read the guardian's answer: %w", err)
	}
	return answer, nil
}
