package replicas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
)

// Process runs replicas as processes of this machine. Each has its own guardian, which is bound to no lease and
// restarts nothing.
type Process struct {
	runtime  *guardian.Runtime
	cgroups  *Cgroups
	confines confiner

	mu        sync.Mutex
	guardians map[fleet.ReplicaID]int // of replicas whose command runs
}

var _ Driver = (*Process)(nil)

// confiner gives the isolation of a project's commands; isolation_missing where the node may not run them.
type confiner interface {
	User(project fleet.ProjectName) (guardian.Confinement, error)
}

// NewProcess makes the driver of a runtime whose guardians are bound to no lease. Without cgroups replicas have
// no limits; without a confiner they run as the agent's user.
func NewProcess(runtime *guardian.Runtime, cgroups *Cgroups, confines confiner) *Process {
	return &Process{runtime: runtime, cgroups: cgroups, confines: confines, guardians: map[fleet.ReplicaID]int{}}
}

func nameOf(id fleet.ReplicaID) fleet.InstanceName { return fleet.InstanceName(id) }

// List asks every guardian.
func (p *Process) List(ctx context.Context) ([]Found, error) {
	names, err := p.runtime.Names()
	if err != nil {
		return nil, err
	}
	live, err := p.runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	states := make(map[fleet.InstanceName]guardian.Status, len(live))
	for _, st := range live {
		states[st.Instance] = st
	}
	all := make([]Found, 0, len(names))
	for _, name := range names {
		if fleet.ValidReplicaID(string(name)) {
			all = append(all, p.note(fleet.ReplicaID(name), states[name]))
		}
	}
	return all, nil
}

// Sweep removes the cgroups of replicas of which nothing else is left. It kills processes in them, also of a
// start under way: call it before the first start.
func (p *Process) Sweep(ctx context.Context) error {
	names, err := p.runtime.Names()
	if err != nil {
		return err
	}
	ids, err := p.cgroups.ids()
	errs := []error{err}
	for _, id := range ids {
		if !slices.Contains(names, nameOf(id)) {
			errs = append(errs, p.cgroups.remove(ctx, id))
		}
	}
	return errors.Join(errs...)
}

// note records which guardian runs the program. A guardian that is paused, or slow to answer, still guards it;
// without its guardian a program does not count as running.
func (p *Process) note(id fleet.ReplicaID, st guardian.Status) Found {
	p.mu.Lock()
	defer p.mu.Unlock()
	if st.Guardian != guardian.Live && (st.Guardian != guardian.Hung || !st.Running) {
		delete(p.guardians, id)
		return Found{ID: id}
	}
	p.guardians[id] = st.GuardianPID
	return Found{ID: id, Running: true, PID: st.PID, Preparing: st.Preparing}
}

// Guardian is the process below which a replica runs, 0 if it does not run.
func (p *Process) Guardian(id fleet.ReplicaID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guardians[id]
}

// Prepare does nothing: a program needs no preparation.
func (*Process) Prepare(context.Context, Launch) error { return nil }

// settle is how long a program without probes must live to count as running.
const (
	settle    = 0.2
	notLonger = 0.001
)

// Start runs the command under a new guardian.
func (p *Process) Start(ctx context.Context, l Launch) (Found, error) {
	spec := guardian.Spec{
		Instance: nameOf(l.ID), Once: true, PreStart: l.Process.PreStart, Dir: l.Dir, OutputFrom: l.OutputFrom,
		Labels: guardian.Labels{Hash: l.Definition, Epoch: l.Epoch},
		Run:    fleet.Run{Command: l.Process.Argv(), StartSeconds: notLonger, StopSeconds: float64(l.Process.StopSeconds)},
	}
	if l.Process.Health == nil || l.Process.Health.Type == fleet.HealthNone {
		spec.Run.StartSeconds = settle
	}
	err := p.confine(&spec, l)
	if err != nil {
		return Found{}, err
	}
	spec.Env = environment(spec.Home(l.Base), l.Env)
	if spec.Cgroup, err = p.cgroups.make(l.ID, l.Resources); err != nil {
		return Found{}, errors.Join(err, p.cgroups.remove(ctx, l.ID))
	}
	st, err := p.runtime.Start(ctx, spec)
	if err != nil {
		return Found{}, errors.Join(notStarted(st, err), p.cgroups.remove(context.WithoutCancel(ctx), l.ID))
	}
	return p.note(l.ID, st), nil
}

// confine runs a replica as its project's user, who becomes the owner of its directory.
func (p *Process) confine(spec *guardian.Spec, l Launch) (err error) {
	if p.confines == nil {
		return nil
	}
	if spec.Confinement, err = p.confines.User(l.Project); err != nil {
		if fleet.KindOf(err) == fleet.IsolationMissing {
			err = &Failure{fleet.ReasonIsolationMissing, err}
		}
		return err
	}
	files := make([]string, len(l.Process.Files))
	for i, f := range l.Process.Files {
		files[i] = f.Path
	}
	return isolation.Give(l.Dir, spec.UID, files...)
}

// notStarted distinguishes a program that could not run from one that ended soon.
func notStarted(st guardian.Status, err error) error {
	how, never := strings.CutPrefix(st.LastExit, "not started: ")
	switch {
	case fleet.KindOf(err) == fleet.ApplyFailed && never:
		return &Failure{fleet.ReasonNotStarted, fleet.Errorf(fleet.ApplyFailed, "the program could not be run: %s", how)}
	case fleet.KindOf(err) == fleet.ApplyFailed:
		return &Failure{fleet.ReasonExited, fleet.Errorf(fleet.ApplyFailed, "it ended at once: %s", st.LastExit)}
	}
	return err
}

// environment lets later entries override earlier ones.
func environment(base, env []string) []string {
	all := slices.Clone(base)
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		all = slices.DeleteFunc(all, func(other string) bool { return strings.HasPrefix(other, name+"=") })
		all = append(all, entry)
	}
	return all
}

// Look asks the guardian.
func (p *Process) Look(ctx context.Context, id fleet.ReplicaID) (Found, error) {
	st, _, err := p.runtime.Status(ctx, nameOf(id))
	if err != nil {
		return Found{}, err
	}
	return p.note(id, st), nil
}

// Await waits for the guardian's end through the kernel, and then kills what a killed guardian left.
func (p *Process) Await(ctx context.Context, id fleet.ReplicaID) (Exit, error) {
	if err := p.runtime.Await(ctx, nameOf(id)); err != nil {
		return Exit{}, err
	}
	st, left, err := p.runtime.Status(ctx, nameOf(id))
	if err != nil || !left {
		return Exit{}, err
	}
	p.note(id, st)
	starved := p.cgroups.killed(id)
	switch st.Guardian {
	case guardian.Ended:
		err = p.cgroups.remove(ctx, id)
	case guardian.Dead:
		err = p.Stop(ctx, id, 0)
	case guardian.Live, guardian.Hung:
		return Exit{}, fleet.Errorf(fleet.Conflict, "replica %s was started by another process", id)
	}
	switch {
	case starved:
		return Exit{Reason: fleet.ReasonOutOfMemory, Message: "it exceeded its memory limit: " + st.LastExit}, err
	case st.Guardian == guardian.Dead:
		return Exit{Reason: fleet.ReasonExited, Message: "its guardian was killed, and it with it"}, err
	}
	return Exit{Reason: fleet.ReasonExited, Message: "it ended by itself: " + st.LastExit}, err
}

// Stop ends the command through its guardian, or directly.
func (p *Process) Stop(ctx context.Context, id fleet.ReplicaID, within time.Duration) error {
	err := p.runtime.StopWithin(ctx, nameOf(id), within)
	if err == nil {
		p.note(id, guardian.Status{})
		err = p.cgroups.remove(ctx, id)
	}
	return err
}

// Remove deletes the guardian's directory.
func (p *Process) Remove(ctx context.Context, id fleet.ReplicaID) error {
	return errors.Join(p.Stop(ctx, id, 0), p.runtime.Remove(ctx, nameOf(id)))
}

// Output reads the output that the guardian stored.
func (p *Process) Output(_ context.Context, id fleet.ReplicaID, from int64) (guardian.Output, error) {
	return p.runtime.ReadOutput(nameOf(id), from)
}

// Usage reads the process table once for all replicas.
func (p *Process) Usage(context.Context) (map[fleet.ReplicaID]Usage, error) {
	p.mu.Lock()
	pids := make([]int, 0, len(p.guardians))
	of := make(map[int]fleet.ReplicaID, len(p.guardians))
	for id, pid := range p.guardians {
		pids, of[pid] = append(pids, pid), id
	}
	p.mu.Unlock()
	used, err := guardian.UsageBelow(pids)
	all := make(map[fleet.ReplicaID]Usage, len(used))
	for pid, u := range used {
		all[of[pid]] = Usage{CPU: u.CPU, Memory: u.Memory}
	}
	return all, err
}
