package node

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// runtime runs instances. No name ever runs twice: Start fails while a guardian has it.
type runtime interface {
	// List gives every guardian, also one that died without stopping its instance.
	List(ctx context.Context) ([]guardian.Status, error)
	// Status gives the status of one instance; ok is false if List has none.
	Status(ctx context.Context, name fleet.InstanceName) (guardian.Status, bool, error)
	// Start returns once the command counts as started; an earlier exit is apply_failed. If the context ends
	// earlier, the start goes on as long as the lease.
	Start(ctx context.Context, spec guardian.Spec) (guardian.Status, error)
	// Started waits for the result of a start that goes on without its caller, and gives it as Start does.
	Started(ctx context.Context, name fleet.InstanceName) (guardian.Status, error)
	// Stop returns when nothing of the name is left, nil also if nothing was there.
	Stop(ctx context.Context, name fleet.InstanceName) error
	// Remove deletes what is left of a stopped name, including its output; nil also if nothing was there.
	Remove(ctx context.Context, name fleet.InstanceName) error
	// Signal sends a signal and stores the labels that the command has from now on.
	Signal(ctx context.Context, name fleet.InstanceName, sig string, labels guardian.Labels) error
}

// confiner gives the isolation of a project's commands; isolation_missing where the node may not run them.
type confiner interface {
	User(project fleet.ProjectName) (guardian.Confinement, error)
}

// opener opens tokens that are sealed for this node.
type opener interface {
	Open(sealed string) (string, error)
}

// The phases of a delivery, as progress reports them.
const (
	PhaseFetching  = "fetching"
	PhaseStarting  = "starting"
	PhaseSwitching = "switching"
)

// Progress reports how far a delivery is on this node.
type Progress func(phase string, done, total int64)

// ApplierOptions configure an Applier. All but the last group are required.
type ApplierOptions struct {
	Site    fleet.SiteName
	Node    fleet.NodeName
	Dir     string // parent of instances/<name>/; absolute
	Store   *sqlite.Store
	Fetcher *Fetcher
	Keys    opener
	Runtime runtime
	Log     *slog.Logger

	// Isolation is called before a command starts; nil runs all as the agent's user.
	Isolation confiner
	// BaseEnv is the environment of commands besides the HOLDFAST_ variables.
	BaseEnv []string
	// MayRun tells whether the node holds its lease; nil means always. Without the lease nothing runs.
	MayRun func() bool
	// Changed is called for every instance whose state may have changed.
	Changed func(name fleet.InstanceName)
	// Begun is called when a command was started or signalled.
	Begun func()
	// Fetched is called when bytes arrive.
	Fetched func(deployment string, done, total int64)
	// Told is called with what the region already knows, so that no report repeats it.
	Told func([]fleet.NodeInstance)
	// Telling is called with names whose outcome the region gets in the results of a batch. It returns a function
	// to call once they are sent, or will not be.
	Telling func([]fleet.InstanceName) (done func())
	// Answered is called before the success of a delivery is answered.
	Answered func(deployment string)
	// Refused is called for each action that was refused as stale.
	Refused func(audit.Refusal)
	// Failpoint is called at named places of Apply; tests kill the process there.
	Failpoint func(name string)
	// SettleEvery is the interval of the sweep that compares what runs with the store (default 10 s).
	SettleEvery time.Duration
	// ClaimLimit is how long a start that was cut off waits for the next attempt once the region has closed its
	// delivery (default 10 s).
	ClaimLimit time.Duration
	// CollectEvery is how long unreferenced content may stay, so that many deliveries share one collection
	// (default 5 s).
	CollectEvery time.Duration
}

// Applier carries out deliveries, and makes what runs match the store.
type Applier struct {
	opt      ApplierOptions
	counters *Counters
	files    *projection
	lanes    lanes
	bodies   keyedLocks
	settle   chan struct{} // a role changed: settle all
	garbage  chan struct{} // contents may be unreferenced
	unsure   chan struct{} // a start that was cut off may be due

	mu      sync.Mutex
	reasons map[fleet.InstanceName]string
	stopped map[fleet.InstanceName]fleet.Version // what the region has already deleted or disabled
	cut     map[fleet.InstanceName]cutStart      // what waits for its next attempt
}

// NewApplier makes an applier; call Recover before the first Apply.
func NewApplier(opt ApplierOptions) *Applier {
	if opt.MayRun == nil {
		opt.MayRun = func() bool { return true }
	}
	if opt.Changed == nil {
		opt.Changed = func(fleet.InstanceName) {}
	}
	if opt.Begun == nil {
		opt.Begun = func() {}
	}
	if opt.Fetched == nil {
		opt.Fetched = func(string, int64, int64) {}
	}
	if opt.Told == nil {
		opt.Told = func([]fleet.NodeInstance) {}
	}
	if opt.Telling == nil {
		opt.Telling = func([]fleet.InstanceName) func() { return func() {} }
	}
	if opt.Answered == nil {
		opt.Answered = func(string) {}
	}
	if opt.Refused == nil {
		opt.Refused = func(audit.Refusal) {}
	}
	if opt.Failpoint == nil {
		opt.Failpoint = func(string) {}
	}
	return &Applier{
		opt: opt, counters: opt.Fetcher.Counters,
		files:   &projection{root: filepath.Join(opt.Dir, "instances"), store: opt.Store},
		settle:  make(chan struct{}, 1),
		garbage: make(chan struct{}, 1),
		unsure:  make(chan struct{}, 1),
		reasons: map[fleet.InstanceName]string{},
		stopped: map[fleet.InstanceName]fleet.Version{},
		cut:     map[fleet.InstanceName]cutStart{},
	}
}

// Apply carries out one notify. Calls may repeat a command, also concurrently: the second waits for the first
// or finds it done.
func (a *Applier) Apply(ctx context.Context, cmd fleet.RefreshDeploymentCommand, progress func(phase string, done, total int64)) (fleet.DeploymentStatusResponse, error) {
	return a.applyWith(ctx, cmd, nil, progress)
}

// applyWith is Apply for callers that may have the verified run section already.
func (a *Applier) applyWith(ctx context.Context, cmd fleet.RefreshDeploymentCommand, run []byte, progress Progress) (fleet.DeploymentStatusResponse, error) {
	var none fleet.DeploymentStatusResponse
	if err := a.checkFor(cmd); err != nil {
		return none, err
	}
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	// A refusal must not disturb what runs, so it comes before the lane is entered.
	if err := a.admit(ctx, cmd); err != nil {
		return none, err
	}
	j, jobCtx, err := a.lanes.enter(ctx, cmd.Instance, &cmd)
	if err != nil {
		return none, a.count(cmd, err)
	}
	if jobCtx == nil {
		return j.resp, j.err
	}
	resp, err := a.carryOut(jobCtx, cmd, run, progress)
	resp, err = a.lanes.leave(cmd.Instance, j, resp, err)
	a.opt.Changed(cmd.Instance)
	poke.Once(a.garbage)
	if err == nil {
		a.opt.Answered(cmd.DeploymentID)
		a.opt.Failpoint("before_reply")
	}
	return resp, a.count(cmd, err)
}

// checkFor is check, and verifies that the command is for this node.
func (a *Applier) checkFor(cmd fleet.RefreshDeploymentCommand) error {
	if err := check(cmd); err != nil {
		return err
	}
	if cmd.Site != a.opt.Site {
		return fleet.Errorf(fleet.Invalid, "this node belongs to site %s", a.opt.Site).At("/site")
	}
	return nil
}

// admit adopts the epoch of a command and refuses a stale command.
func (a *Applier) admit(ctx context.Context, cmd fleet.RefreshDeploymentCommand) error {
	if err := a.Adopt(ctx, sqlite.Right{Role: cmd.Role, Epoch: cmd.Epoch}, ""); err != nil {
		return a.count(cmd, err)
	}
	_, err := a.decide(ctx, cmd)
	return a.count(cmd, err)
}

// decision is a verdict with its inputs.
type decision struct {
	verdict
	held sqlite.Instance
	meta sqlite.Meta
}

func (a *Applier) decide(ctx context.Context, cmd fleet.RefreshDeploymentCommand) (decision, error) {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return decision{}, err
	}
	held, err := a.opt.Store.Instance(ctx, cmd.Instance)
	if err != nil {
		return decision{}, err
	}
	v, err := a.judge(cmd, held, meta)
	return decision{v, held, meta}, err
}

// judge is accept, and logs an alarm if one revision has two contents.
func (a *Applier) judge(cmd fleet.RefreshDeploymentCommand, held sqlite.Instance, meta sqlite.Meta) (verdict, error) {
	v := accept(cmd, held, meta)
	if v.Step == stepConflict {
		a.counters.Conflicts.Add(1)
		a.opt.Log.Error("one revision arrived with two contents", "alarm", true, "rule", v.Rule,
			"instance", cmd.Instance, "era", cmd.Revision.Era, "revision", cmd.Revision.Version.Revision)
	}
	return v, v.err(cmd, held, meta)
}

// count counts how a command ended, once.
func (a *Applier) count(cmd fleet.RefreshDeploymentCommand, err error) error {
	log := a.opt.Log.With("instance", cmd.Instance, "era", cmd.Revision.Era,
		"revision", cmd.Revision.Version.Revision, "epoch", cmd.Epoch)
	switch {
	case err == nil:
	case fleet.KindOf(err) == fleet.Stale:
		a.counters.StaleRefused.Add(1)
		log.Info("refused as stale", "err", err)
		a.refused(fmt.Sprintf("deliver %s %d.%d as %s at epoch %d", cmd.Instance, cmd.Revision.Era, cmd.Revision.Version.Revision, cmd.Role, cmd.Epoch), err)
	case fleet.KindOf(err) == fleet.ApplyFailed:
		a.counters.ApplyFailed.Add(1)
		log.Warn("apply failed; the previous revision stays", "err", err)
	default:
		// Temporal gets only the kind of an internal error, so the log has the rest.
		log.Warn("not applied", "kind", fleet.KindOf(err), "err", err)
	}
	return err
}

// Adopt takes a role at a higher epoch, from a command or the region. Only the lease makes a node active, so a
// role of active without it is refused.
func (a *Applier) Adopt(ctx context.Context, right sqlite.Right, holder fleet.NodeName) error {
	if right.Role == fleet.RoleActive && !a.opt.MayRun() {
		return stale(audit.NoLease, "active at epoch %d: this node does not hold the lease of its site", right.Epoch)
	}
	return a.adopted(a.opt.Store.AdoptTold(ctx, right, holder))
}

// adoptFor is Adopt for an action that carries a right; a stale one is counted and reported.
func (a *Applier) adoptFor(ctx context.Context, right sqlite.Right, action string) error {
	return a.countStale(action, a.Adopt(ctx, right, ""))
}

// countStale counts an action that was refused as stale, and reports it to the region.
func (a *Applier) countStale(action string, err error) error {
	if fleet.KindOf(err) == fleet.Stale {
		a.counters.StaleRefused.Add(1)
		a.opt.Log.Info("refused as stale", "action", action, "err", err)
		a.refused(action, err)
	}
	return err
}

// adopt takes the role and epoch that the votes decided.
func (a *Applier) adopt(ctx context.Context, right sqlite.Right, holder fleet.NodeName) error {
	return a.adopted(a.opt.Store.Adopt(ctx, right, holder))
}

// adopted records a change of role; Run then applies it.
func (a *Applier) adopted(before, after sqlite.Meta, err error) error {
	if err != nil {
		return err
	}
	if before.Role != after.Role {
		a.opt.Log.Info("role changed", "from", before.Role, "to", after.Role, "epoch", after.Epoch)
		a.Settle()
	}
	return nil
}

// Settle makes Run compare everything with the store now, for example after the lease was won or lost.
func (a *Applier) Settle() { poke.Once(a.settle) }

// wholeEvery is how many ticks pass between two checks of every name; other ticks check only names that can
// change by themselves.
const wholeEvery = 6

// Run settles on request and on a schedule, and removes unreferenced content.
func (a *Applier) Run(ctx context.Context) error {
	tick := time.NewTicker(orDefault(a.opt.SettleEvery, 10*time.Second))
	defer tick.Stop()
	var due <-chan time.Time
	for ticks := 1; ; {
		held := a.opt.Store.Instances
		select {
		case <-ctx.Done():
			return nil
		case <-a.settle:
		case <-a.unsure:
			a.checkCut(ctx)
			continue
		case <-tick.C:
			if ticks++; ticks%wholeEvery != 0 {
				held = a.uneasy
			}
		case <-a.garbage:
			if due == nil {
				due = time.After(orDefault(a.opt.CollectEvery, 5*time.Second))
			}
			continue
		case <-due:
			due = a.collect(ctx)
			continue
		}
		if err := a.settleSome(ctx, held); err != nil && ctx.Err() == nil {
			a.opt.Log.Error("settle instances", "err", err)
		}
	}
}

// collect removes one limited part, and gives when to remove the next, so that a settle can run in between; nil
// when nothing is left.
func (a *Applier) collect(ctx context.Context) <-chan time.Time {
	more, err := a.opt.Store.Collect(ctx)
	if err != nil && ctx.Err() == nil {
		a.opt.Log.Error("collect contents", "err", err)
	}
	if more && err == nil {
		return time.After(0)
	}
	return nil
}
