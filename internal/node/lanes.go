package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// lanes allow one worker at a time for a name. A newer revision pre-empts an older one.
type lanes struct {
	mu   sync.Mutex
	busy map[fleet.InstanceName]*job
}

// job is the worker of a name. A settling job has no command and is never pre-empted: it is short, and the next
// job needs its result.
type job struct {
	cmd    *fleet.RefreshDeploymentCommand
	cancel context.CancelCauseFunc
	ended  func() error // of its context
	done   chan struct{}

	// Written under the lanes' lock before done is closed.
	overruled string // why it was cancelled, if not by its own caller
	abandoned bool   // its own caller gave up; err may be any error of the caller
	resp      fleet.DeploymentStatusResponse
	err       error
}

// enter waits for the name and takes it, with a context that ends when the job is pre-empted. If the same
// revision is being applied already, it waits and returns that finished job without a context, provided that
// its result answers this command too.
func (l *lanes) enter(ctx context.Context, name fleet.InstanceName, cmd *fleet.RefreshDeploymentCommand) (*job, context.Context, error) {
	for {
		l.mu.Lock()
		running := l.busy[name]
		if running == nil {
			mine, jobCtx := l.take(ctx, name, cmd)
			l.mu.Unlock()
			return mine, jobCtx, nil
		}
		joins, err := running.meet(cmd)
		l.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-running.done:
		}
		// A success answers both commands. A failure may be of one attempt only: its caller gave up, or its delivery
		// is closed while this one is open.
		if joins && (running.err == nil || !running.abandoned && running.cmd.DeploymentID == cmd.DeploymentID) {
			return running, nil, nil
		}
	}
}

// entry is the result of an attempt to take a name without waiting: a job, an error, or neither while another
// job has it.
type entry struct {
	job *job
	ctx context.Context //nolint:containedctx // of the job
	err error
}

// enterAll takes those of many names that are free, all at one moment. It does not wait, so concurrent calls
// cannot block each other; it treats a running job as enter does.
func (l *lanes) enterAll(ctx context.Context, cmds []*fleet.RefreshDeploymentCommand) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]entry, len(cmds))
	for i, cmd := range cmds {
		if running := l.busy[cmd.Instance]; running != nil {
			_, all[i].err = running.meet(cmd)
			continue
		}
		all[i].job, all[i].ctx = l.take(ctx, cmd.Instance, cmd)
	}
	return all
}

// take takes a free name. The caller has the lock.
func (l *lanes) take(ctx context.Context, name fleet.InstanceName, cmd *fleet.RefreshDeploymentCommand) (*job, context.Context) {
	if l.busy == nil {
		l.busy = map[fleet.InstanceName]*job{}
	}
	jobCtx, cancel := context.WithCancelCause(ctx)
	mine := &job{cmd: cmd, cancel: cancel, ended: jobCtx.Err, done: make(chan struct{})}
	l.busy[name] = mine
	return mine, jobCtx
}

// meet decides how a command relates to a running job: it joins it, waits for it (and cancels it if newer), or
// is refused.
func (j *job) meet(cmd *fleet.RefreshDeploymentCommand) (joins bool, err error) {
	if cmd == nil || j.cmd == nil {
		return false, nil
	}
	order := cmd.Revision.Compare(j.cmd.Revision.Version)
	switch {
	case cmd.Epoch < j.cmd.Epoch:
		return false, stale(audit.StaleEpoch, "revision %d at epoch %d is being applied",
			j.cmd.Revision.Version.Revision, j.cmd.Epoch)
	case order < 0:
		return false, stale(audit.OlderRevision, "revision %d at epoch %d is being applied",
			j.cmd.Revision.Version.Revision, j.cmd.Epoch)
	case order == 0 && !cmd.Revision.Same(j.cmd.Revision):
		return false, nil // the conflict is detected once the name is free
	case order == 0 && cmd.Epoch == j.cmd.Epoch && cmd.Role == j.cmd.Role:
		return true, nil
	}
	cause := context.Canceled
	if order > 0 {
		cause = errNewer
	}
	j.overrule(fmt.Sprintf("superseded by revision %d", cmd.Revision.Version.Revision), cause)
	return false, nil
}

// errNewer is the cause that ends the context of a job when a newer revision arrives.
var errNewer = errors.New("a newer revision arrived")

func (j *job) overrule(why string, cause error) {
	j.overruled = why
	j.cancel(cause)
}

// revoke cancels the commands that a test picks.
func (l *lanes) revoke(passed func(*fleet.RefreshDeploymentCommand) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.busy {
		if j.cmd != nil && j.overruled == "" && passed(j.cmd) {
			j.overrule("the node's role or lease changed", context.Canceled)
		}
	}
}

// enterIdle takes a name for settling. It waits for a job that is ending; a command that continues keeps its
// name, and settles it itself.
func (l *lanes) enterIdle(ctx context.Context, name fleet.InstanceName) (*job, context.Context, bool) {
	for {
		l.mu.Lock()
		running := l.busy[name]
		if running == nil {
			mine, jobCtx := l.take(ctx, name, nil)
			l.mu.Unlock()
			return mine, jobCtx, true
		}
		goesOn := running.cmd != nil && running.overruled == ""
		l.mu.Unlock()
		if goesOn {
			return nil, nil, false
		}
		select {
		case <-ctx.Done():
			return nil, nil, false
		case <-running.done:
		}
	}
}

// leave frees the name and passes the result to the jobs that joined.
func (l *lanes) leave(name fleet.InstanceName, j *job, resp fleet.DeploymentStatusResponse, err error) (fleet.DeploymentStatusResponse, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.abandoned = err != nil && j.overruled == "" && j.ended() != nil
	j.cancel(nil)
	if err != nil && j.overruled != "" {
		err = &fleet.Error{Kind: fleet.Stale, Message: j.overruled, Err: err}
	}
	j.resp, j.err = resp, err
	delete(l.busy, name)
	close(j.done)
	return resp, err
}

// keyedLocks allow one holder per key.
type keyedLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the key; the returned function unlocks it.
func (k *keyedLocks) lock(ctx context.Context, key string) (func(), error) {
	for {
		k.mu.Lock()
		if k.held == nil {
			k.held = map[string]chan struct{}{}
		}
		other, taken := k.held[key]
		if !taken {
			free := make(chan struct{})
			k.held[key] = free
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				defer k.mu.Unlock()
				delete(k.held, key)
				close(free)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-other:
		}
	}
}
