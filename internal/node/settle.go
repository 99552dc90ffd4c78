package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// settlers bounds how many instances are started or stopped at once.
const settlers = 8

// Recover settles what a kill left half done, and starts what should run. It needs neither the region nor a
// peer. What cannot be started is reported, and Run retries it.
func (a *Applier) Recover(ctx context.Context) error {
	if err := a.remember(ctx); err != nil {
		return fmt.Errorf("recover instances: %w", err)
	}
	if err := errors.Join(a.files.tidyAll(), a.settleAll(ctx)); err != nil {
		return fmt.Errorf("recover instances: %w", err)
	}
	poke.Once(a.garbage)
	return nil
}

// settleAll compares every name of the store and of the runtime.
func (a *Applier) settleAll(ctx context.Context) error {
	return a.settleSome(ctx, a.opt.Store.Instances)
}

// settleSome compares some names of the store and of the runtime. It leaves a name to its worker if that has a
// valid right, and ends work under an outdated right.
func (a *Applier) settleSome(ctx context.Context, held listing) error {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return err
	}
	names, err := a.names(ctx, meta, held)
	if err != nil {
		return err
	}
	a.lanes.revoke(func(c *fleet.RefreshDeploymentCommand) bool {
		return meta.Right != sqlite.Right{Role: c.Role, Epoch: c.Epoch} || c.Role == fleet.RoleActive && !a.opt.MayRun()
	})
	var group errgroup.Group
	group.SetLimit(settlers)
	for _, name := range names {
		group.Go(func() error {
			a.settleIdle(ctx, name)
			return nil // one failure must not stop the others; its reason is recorded
		})
	}
	return group.Wait()
}

// listing reads instances of the store, ordered by name.
type listing func(context.Context) ([]sqlite.Instance, error)

// uneasy lists instances that may need work without a request, and those whose last check failed.
func (a *Applier) uneasy(ctx context.Context) ([]sqlite.Instance, error) {
	return a.opt.Store.Uneasy(ctx, a.allBlamed())
}

// names gives the names of a listing that are not at rest, those whose last check failed, and guardians that
// the store does not know or that should not exist.
func (a *Applier) names(ctx context.Context, meta sqlite.Meta, list listing) ([]fleet.InstanceName, error) {
	held, err := list(ctx)
	if err != nil {
		return nil, err
	}
	seen, err := a.opt.Runtime.List(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]fleet.InstanceName, 0, len(held))
	known, runs := make(map[fleet.InstanceName]bool, len(held)), make(map[fleet.InstanceName]bool, len(seen))
	for _, st := range seen {
		runs[st.Instance] = true
	}
	for _, in := range held {
		if a.blamed(in.Name) || runs[in.Name] || !a.atRest(in, meta) {
			names, known[in.Name] = append(names, in.Name), true
		}
	}
	for _, st := range seen {
		if !known[st.Instance] {
			names = append(names, st.Instance)
		}
	}
	return names, nil
}

// atRest tells, by one look at the file of a name that runs nothing, whether conform would change nothing. This
// holds for most of thousands of names each time. When in doubt the answer is false.
func (a *Applier) atRest(in sqlite.Instance, meta sqlite.Meta) bool {
	cur := in.Current
	switch {
	case in.Staged != nil || meta.Role == "":
		return false
	case meta.Role != fleet.RoleActive || cur.Deleted():
		return a.files.none(in.Name)
	}
	return cur != nil && a.opt.MayRun() && !needsProcess(*cur) && a.files.asSeen(in.Name, cur.Content)
}

func (a *Applier) settleIdle(ctx context.Context, name fleet.InstanceName) {
	j, jobCtx, ok := a.lanes.enterIdle(ctx, name)
	if !ok {
		return
	}
	err := a.files.tidy(name)
	if err == nil {
		err = a.settleOne(jobCtx, name)
	}
	if _, err = a.lanes.leave(name, j, fleet.DeploymentStatusResponse{}, err); err != nil && ctx.Err() == nil {
		a.opt.Log.Error("settle instance", "instance", name, "err", err)
	}
}

// settleOne makes one name's reality match the store. The caller has its lane.
func (a *Applier) settleOne(ctx context.Context, name fleet.InstanceName) error {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return err
	}
	held, waits, err := a.resolve(ctx, name, meta)
	if err != nil || waits {
		return err
	}
	if err := a.conform(ctx, held, meta); err != nil {
		a.blame(name, err)
		return err
	}
	a.forgive(name)
	return nil
}

// resolve ends a half-done switch as decide.Staged says. While a start waits, waits is true, and the name is not
// touched.
func (a *Applier) resolve(ctx context.Context, name fleet.InstanceName, meta sqlite.Meta) (held sqlite.Instance, waits bool, err error) {
	held, err = a.opt.Store.Instance(ctx, name)
	if err != nil || held.Staged == nil {
		a.claimed(name)
		return held, false, err
	}
	then, err := a.courseOfHeld(ctx, held, meta)
	if err != nil {
		return held, false, err
	}
	attempt := sqlite.Attempt{Instance: name, Revision: held.Staged.Revision, Run: held.Staged.Run, Right: meta.Right}
	switch then {
	case decide.CourseWait:
		a.checkCutSoon()
		return held, true, nil
	case decide.CourseForward:
		err = a.opt.Store.Promote(ctx, attempt)
	case decide.CourseBack:
		err = a.retreat(ctx, attempt)
	}
	if err != nil {
		return held, false, err
	}
	a.opt.Changed(name)
	held, err = a.opt.Store.Instance(ctx, name)
	return held, false, err
}

// conform starts, stops and projects the current slot as the node's role requires.
func (a *Applier) conform(ctx context.Context, held sqlite.Instance, meta sqlite.Meta) error {
	cur := held.Current
	switch {
	case meta.Role == "":
		return nil // a lost store: nothing is known yet, and nothing is changed
	case meta.Role != fleet.RoleActive, cur.Deleted():
		return errors.Join(a.stop(ctx, held.Name), a.files.remove(held.Name))
	case !a.opt.MayRun():
		return a.stop(ctx, held.Name)
	case cur == nil:
		return nil // a guardian of an unknown name is kept until the region answers
	case a.heldBack(held.Name, cur.Version):
		stale := fleet.Errorf(fleet.Stale, "revision %d was deleted or disabled while this node was disconnected", cur.Version.Revision)
		return errors.Join(a.stop(ctx, held.Name), stale)
	}
	return a.bring(ctx, held.Name, *cur)
}

// clear removes the runtime's directory of a deleted instance. A busy one is retried later.
func (a *Applier) clear(ctx context.Context, name fleet.InstanceName) error {
	j, jobCtx, ok := a.lanes.enterIdle(ctx, name)
	if !ok {
		return fleet.Errorf(fleet.Unavailable, "instance %s is busy with another operation", name)
	}
	held, err := a.opt.Store.Instance(jobCtx, name)
	if err == nil && held.Current.Deleted() && held.Staged == nil {
		err = a.opt.Runtime.Remove(jobCtx, name)
	}
	_, err = a.lanes.leave(name, j, fleet.DeploymentStatusResponse{}, err)
	return err
}

// bring makes an instance run a revision with the least disturbance: none if it runs it already, a signal if
// that is how it learns of changes, else a restart.
func (a *Applier) bring(ctx context.Context, name fleet.InstanceName, slot sqlite.Slot) error {
	if !needsProcess(slot) {
		if err := a.stop(ctx, name); err != nil || slot.Deleted() {
			return err
		}
		return a.files.ensure(ctx, name, slot.Content, 0)
	}
	section, err := parseRun(slot.Run)
	if err != nil {
		return err
	}
	run := section.Run
	seen, err := a.look(ctx, name)
	if err != nil {
		return err
	}
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return err
	}
	want := labels(slot)
	want.Epoch = meta.Epoch // a process keeps the epoch that it was started with
	switch {
	case live(seen) && runs(seen, slot) && (seen.Running || seen.Labels.Version == slot.Version):
		if err := a.awaitStart(ctx, seen); err != nil {
			return err
		}
		return a.files.ensure(ctx, name, slot.Content, seen.UID) // it keeps the user that it was started as
	case live(seen) && seen.Labels.RunHash == slot.RunHash && run.OnChange == fleet.OnChangeSignal:
		if told, err := a.signal(ctx, slot, guardian.Spec{Instance: name, Run: run, Labels: want, Confinement: guardian.Confinement{UID: seen.UID}}); err != nil {
			return err
		} else if told {
			return a.awaitStart(ctx, seen)
		}
	}
	confined, err := a.confinement(section.Project)
	if err != nil {
		return err
	}
	return a.restart(ctx, seen, slot, guardian.Spec{Instance: name, Run: run, Labels: want, Confinement: confined})
}

// awaitStart waits for the result of a start that an earlier attempt began.
func (a *Applier) awaitStart(ctx context.Context, seen *guardian.Status) error {
	if !seen.Starting {
		return nil
	}
	if _, err := a.opt.Runtime.Started(ctx, seen.Instance); err != nil {
		return fmt.Errorf("start instance: %w", err)
	}
	return nil
}

// signal notifies a running command of its new config. A command that cannot be notified is restarted.
func (a *Applier) signal(ctx context.Context, slot sqlite.Slot, spec guardian.Spec) (told bool, err error) {
	name := spec.Instance
	if err := a.files.ensure(ctx, name, slot.Content, spec.UID); err != nil {
		return false, err
	}
	sig := spec.Run.Signal
	if sig == "" {
		sig = "SIGHUP"
	}
	err = a.opt.Runtime.Signal(ctx, name, sig, spec.Labels)
	if err == nil {
		a.opt.Begun()
	}
	if err == nil || ctx.Err() != nil {
		return err == nil, err
	}
	a.opt.Log.Warn("signal failed, restarting instead", "instance", name, "err", err)
	return false, nil
}

// restart stops what runs under the name before the new config is put in place, so that no process reads
// another revision's config, and never two run.
func (a *Applier) restart(ctx context.Context, seen *guardian.Status, slot sqlite.Slot, spec guardian.Spec) error {
	name := spec.Instance
	place := func() error { return nil }
	right, err := a.files.matches(name, slot.Content, spec.UID)
	if err != nil {
		return err
	}
	if !right {
		d, err := a.files.prepare(ctx, name, slot.Content, spec.UID)
		if err != nil {
			return err
		}
		defer func() { _ = d.drop() }() // a no-op once it was placed
		place = d.place
	}
	if err := a.end(ctx, name, seen); err != nil {
		return err
	}
	if err := place(); err != nil {
		return err
	}
	if !a.opt.MayRun() {
		return stale(audit.NoLease, "the node lost the lease of its site")
	}
	if spec.OutputFrom, err = a.opt.Store.LogOffset(ctx, name); err != nil {
		return err
	}
	spec.Dir = a.files.dir(name)
	if err := isolation.Give(spec.Dir, spec.UID); err != nil {
		return err
	}
	spec.Env = a.environment(slot, spec)
	a.opt.Begun()
	if _, err := a.opt.Runtime.Start(ctx, spec); err != nil {
		return fmt.Errorf("start instance: %w", err)
	}
	a.opt.Changed(name)
	return nil
}

// confinement is the confinement of a project's commands.
func (a *Applier) confinement(project fleet.ProjectName) (guardian.Confinement, error) {
	if a.opt.Isolation == nil {
		return guardian.Confinement{}, nil
	}
	return a.opt.Isolation.User(project)
}

func (a *Applier) environment(slot sqlite.Slot, spec guardian.Spec) []string {
	env := spec.Home(a.opt.BaseEnv)
	return append(env,
		"HOLDFAST_INSTANCE="+string(spec.Instance), "HOLDFAST_NODE="+string(a.opt.Node), "HOLDFAST_SITE="+string(a.opt.Site),
		"HOLDFAST_EPOCH="+strconv.FormatInt(spec.Labels.Epoch, 10), "HOLDFAST_CONFIG="+a.files.path(spec.Instance, slot.Content.Kind))
}

// stop ends whatever has the name, also the processes of a dead guardian.
func (a *Applier) stop(ctx context.Context, name fleet.InstanceName) error {
	seen, err := a.look(ctx, name)
	if err != nil {
		return err
	}
	return a.end(ctx, name, seen)
}

func (a *Applier) end(ctx context.Context, name fleet.InstanceName, seen *guardian.Status) error {
	if seen == nil {
		return nil
	}
	if err := a.opt.Runtime.Stop(ctx, name); err != nil {
		return fmt.Errorf("stop instance: %w", err)
	}
	a.opt.Changed(name)
	return nil
}

// look asks the runtime about one name; nil if nothing has it.
func (a *Applier) look(ctx context.Context, name fleet.InstanceName) (*guardian.Status, error) {
	st, ok, err := a.opt.Runtime.Status(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("ask runtime: %w", err)
	}
	if !ok {
		return nil, nil
	}
	return &st, nil
}

func needsProcess(s sqlite.Slot) bool { return s.Enabled && len(s.Run) > 0 }

func live(seen *guardian.Status) bool { return seen != nil && seen.Guardian == guardian.Live }

// runs compares by content: a renumbered revision was not restarted.
func runs(seen *guardian.Status, s sqlite.Slot) bool {
	return seen.Labels.Hash == s.Content.Hash && seen.Labels.RunHash == s.RunHash && needsProcess(s)
}
