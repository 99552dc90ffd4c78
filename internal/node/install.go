package node

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// restoreTimeout bounds a restore, in addition to the stop and start times of the instance.
const restoreTimeout = 30 * time.Second

// carryOut applies the verdict. The caller has the instance's lane.
func (a *Applier) carryOut(ctx context.Context, cmd fleet.RefreshDeploymentCommand, run []byte, progress Progress) (fleet.DeploymentStatusResponse, error) {
	var resp fleet.DeploymentStatusResponse
	d, err := a.decide(ctx, cmd)
	if err != nil {
		return resp, err
	}
	attempt := attemptOf(cmd)
	attempt.Run = run
	if attempt.Right != d.meta.Right {
		return resp, stale(audit.StaleEpoch, "the node is %s at epoch %d", d.meta.Role, d.meta.Epoch)
	}
	switch d.Step {
	case stepConfirm:
		resp.Already = true
		err = a.confirm(ctx, cmd.Instance)
	case stepRenumber:
		resp.Already = true
		if err = a.opt.Store.Renumber(ctx, attempt); err == nil {
			err = a.confirm(ctx, cmd.Instance)
		}
	case stepApply, stepRefuse, stepConflict: // refusals returned as errors above
		resp.Fetched, err = a.install(ctx, cmd, attempt, d.held, progress)
	}
	if err != nil {
		return resp, err
	}
	a.counters.outcome(resp.Already).Add(1)
	resp.Held, err = a.Held(ctx, cmd.Instance)
	return resp, err
}

// confirm makes sure that the current revision also runs, without touching what already does.
func (a *Applier) confirm(ctx context.Context, name fleet.InstanceName) error {
	return applyFailed(ctx, a.settleOne(ctx, name))
}

// install takes a new revision from acceptance to the switch.
func (a *Applier) install(ctx context.Context, cmd fleet.RefreshDeploymentCommand, attempt sqlite.Attempt, held sqlite.Instance, progress Progress) (fetched int64, err error) {
	if err := a.opt.Store.Accept(ctx, attempt); err != nil {
		return 0, err
	}
	a.opt.Failpoint("before_fetch")
	if attempt.Run == nil {
		if attempt.Run, err = a.runSection(ctx, cmd, held); err != nil {
			return 0, err
		}
	}
	if fetched, err = a.persist(ctx, cmd, attempt, progress); err != nil {
		return fetched, err
	}
	if cmd.Role == fleet.RoleActive {
		return fetched, a.switchOver(ctx, cmd, attempt, progress)
	}
	return fetched, a.settleOne(ctx, cmd.Instance) // stops what it still ran as the active
}

// persist stores a revision and its body in a slot: staged, or on a standby, which starts nothing, directly
// current.
func (a *Applier) persist(ctx context.Context, cmd fleet.RefreshDeploymentCommand, attempt sqlite.Attempt, progress Progress) (fetched int64, err error) {
	if cmd.Revision.Action != fleet.ActionDelete {
		// If two instances want one body, the second must find it stored.
		unlock, err := a.bodies.lock(ctx, string(cmd.Revision.Content.Hash))
		if err != nil {
			return 0, err
		}
		defer unlock()
		if attempt.Body, fetched, err = a.obtain(ctx, cmd, progress); err != nil {
			return fetched, err
		}
	}
	a.opt.Failpoint("after_fetch")
	if cmd.Role != fleet.RoleActive {
		return fetched, a.opt.Store.Commit(ctx, attempt)
	}
	if !a.opt.MayRun() {
		return fetched, stale(audit.NoLease, "the node does not hold the lease of its site")
	}
	return fetched, a.opt.Store.Stage(ctx, attempt)
}

// obtain makes a body ready to store, and downloads what is missing of it.
func (a *Applier) obtain(ctx context.Context, cmd fleet.RefreshDeploymentCommand, progress Progress) (*sqlite.Staging, int64, error) {
	want := cmd.Revision.Content
	staging, err := a.opt.Store.OpenStaging(ctx, want)
	if err != nil || staging.Complete() {
		return staging, 0, err
	}
	req, err := a.fetchRequest(cmd)
	if err != nil {
		return nil, 0, err
	}
	fetched, err := a.opt.Fetcher.Fetch(ctx, req, staging, func(done int64) {
		progress(PhaseFetching, done, want.Size)
		a.opt.Fetched(cmd.DeploymentID, done, want.Size)
		if staging.Received() > 0 {
			a.opt.Failpoint("during_fetch")
		}
	})
	return staging, fetched, err
}

func (a *Applier) fetchRequest(cmd fleet.RefreshDeploymentCommand) (FetchRequest, error) {
	token, err := a.opt.Keys.Open(cmd.FetchToken)
	if err != nil {
		return FetchRequest{}, fmt.Errorf("open fetch token: %w", err)
	}
	return FetchRequest{
		BaseURL: cmd.CentralFetchBaseURL, DeploymentID: cmd.DeploymentID, Token: token,
		Want: cmd.Revision.Content, IdleTimeout: cmd.IdleTimeout,
	}, nil
}

// runSection uses the run section of any slot that has it, else fetches it.
func (a *Applier) runSection(ctx context.Context, cmd fleet.RefreshDeploymentCommand, held sqlite.Instance) ([]byte, error) {
	if cmd.Revision.RunHash == "" {
		return nil, nil
	}
	if run := heldRun(held, cmd.Revision.RunHash); run != nil {
		return run, nil
	}
	req, err := a.fetchRequest(cmd)
	if err != nil {
		return nil, err
	}
	return a.opt.Fetcher.FetchRun(ctx, req, cmd.Revision.RunHash)
}

// heldRun is a stored run section with that hash, nil without one.
func heldRun(held sqlite.Instance, want fleet.Hash) []byte {
	for _, slot := range []*sqlite.Slot{held.Current, held.Staged, held.Previous} {
		if slot != nil && slot.RunHash == want {
			return slot.Run
		}
	}
	return nil
}

func attemptOf(cmd fleet.RefreshDeploymentCommand) sqlite.Attempt {
	return sqlite.Attempt{
		Instance: cmd.Instance, Revision: cmd.Revision, Right: sqlite.Right{Role: cmd.Role, Epoch: cmd.Epoch},
	}
}

// switchOver starts a staged revision next to the store's current one and then switches. After an error in
// between it restores the current one, unless the start goes on for the next attempt.
func (a *Applier) switchOver(ctx context.Context, cmd fleet.RefreshDeploymentCommand, attempt sqlite.Attempt, progress Progress) error {
	a.claimed(attempt.Instance)
	a.opt.Failpoint("before_start")
	progress(PhaseStarting, 0, 0)
	slot := sqlite.Slot{Revision: attempt.Revision, Run: attempt.Run, Epoch: attempt.Right.Epoch}
	err := a.bring(ctx, attempt.Instance, slot)
	if err == nil {
		a.opt.Failpoint("after_start")
		progress(PhaseSwitching, 0, 0)
		a.opt.Failpoint("before_switch")
		err = a.promote(ctx, attempt)
	}
	if err != nil {
		if ctx.Err() != nil && a.goesOn(context.WithoutCancel(ctx), attempt, context.Cause(ctx)) {
			a.leaveStart(cmd)
			return err
		}
		return a.restore(ctx, attempt, err)
	}
	a.opt.Failpoint("after_switch")
	a.forgive(attempt.Instance)
	if slot.Deleted() {
		// The switch is already made, so this error does not fail it: the sweep removes the file.
		if err := a.files.remove(attempt.Instance); err != nil {
			a.opt.Log.Warn("remove the config of a deleted instance; the sweep retries", "instance", attempt.Instance, "err", err)
		}
	}
	return nil
}

// promote checks the lease again: the start may have taken long.
func (a *Applier) promote(ctx context.Context, attempt sqlite.Attempt) error {
	if !a.opt.MayRun() {
		return stale(audit.NoLease, "the node lost the lease of its site")
	}
	return a.opt.Store.Promote(ctx, attempt)
}

// restore makes the current revision current and running again after a failed or cancelled switch. It does not
// end with the caller's context: no half-done switch may stay.
func (a *Applier) restore(ctx context.Context, attempt sqlite.Attempt, cause error) error {
	cause = applyFailed(ctx, cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout+a.patience(ctx, attempt.Instance))
	defer cancel()
	if held, err := a.opt.Store.Instance(ctx, attempt.Instance); err == nil && holds(held, attempt) {
		return nil // the switch was committed; only its answer was lost
	}
	err := a.retreat(ctx, attempt)
	if err == nil {
		err = a.settleOne(ctx, attempt.Instance)
	}
	if err != nil {
		a.blame(attempt.Instance, err)
		return fmt.Errorf("%w; the previous revision could not be restored: %w", cause, err)
	}
	return cause
}

func holds(held sqlite.Instance, attempt sqlite.Attempt) bool {
	return held.Current != nil && held.Current.Version == attempt.Revision.Version
}

// retreat stops what the attempt started before it removes the staged revision: after a kill in between, either
// the staged revision is still there or nothing of it runs.
func (a *Applier) retreat(ctx context.Context, attempt sqlite.Attempt) error {
	held, err := a.opt.Store.Instance(ctx, attempt.Instance)
	if err != nil {
		return err
	}
	seen, err := a.look(ctx, attempt.Instance)
	if err != nil {
		return err
	}
	if seen != nil && (held.Current == nil || !runs(seen, *held.Current)) {
		if err := a.opt.Runtime.Stop(ctx, attempt.Instance); err != nil {
			return fmt.Errorf("stop the failed revision: %w", err)
		}
	}
	if held.Current == nil || held.Current.Deleted() {
		if err := a.files.remove(attempt.Instance); err != nil {
			return err
		}
	}
	return a.opt.Store.Unstage(ctx, attempt.Instance)
}

// patience is how long the current revision may take to stop and start.
func (a *Applier) patience(ctx context.Context, name fleet.InstanceName) time.Duration {
	held, err := a.opt.Store.Instance(context.WithoutCancel(ctx), name)
	if err != nil || held.Current == nil || len(held.Current.Run) == 0 {
		return 0
	}
	run, err := parseRun(held.Current.Run)
	if err != nil {
		return 0
	}
	return time.Duration((run.StartSeconds + run.StopSeconds) * float64(time.Second))
}

// applyFailed makes the deployment error of N43: no prefix, and a reason. An error that is not the revision's
// fault keeps its kind: a newer command overtook it, or its caller gave up.
func applyFailed(ctx context.Context, err error) error {
	kind := fleet.KindOf(err)
	if err == nil || ctx.Err() != nil || kind == fleet.Stale || kind == fleet.ApplyFailed || kind == fleet.IsolationMissing {
		return err
	}
	return fleet.Errorf(fleet.ApplyFailed, "apply failed: %w", err)
}

func labels(s sqlite.Slot) guardian.Labels {
	return guardian.Labels{Version: s.Version, Hash: s.Content.Hash, RunHash: s.RunHash, Epoch: s.Epoch}
}
