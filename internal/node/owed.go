package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// askOwed asks the region which of the instances that this node is about to start were deleted or disabled
// while it did not run, and applies that before any start. What it cannot apply in time does not start until
// its own delivery arrives, or the region withdraws it.
func (a *Agent) askOwed(ctx context.Context) error {
	if a.Key().Region() == "" {
		return nil // nothing was ever delivered to this node
	}
	done, err := a.asking.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	starts, err := a.starts(ctx)
	if err != nil {
		return err
	}
	var owed []fleet.RefreshDeploymentCommand
	for _, page := range pages(starts, fleet.MaxComparedNames) { // later fetches get the time that is left
		err = a.insist(ctx, "ask for owed deletes and disables", func() error {
			more, err := a.askFor(ctx, page, false)
			owed = append(owed, more...)
			return err
		})
		if err != nil {
			break
		}
	}
	a.refrainAll(ctx, owed)
	return cmp.Or(err, ctx.Err())
}

// starts gives the instances that the node would start.
func (a *Agent) starts(ctx context.Context) ([]fleet.Extra, error) {
	all, err := a.Store.Instances(ctx)
	var starts []fleet.Extra
	for _, in := range all {
		if cur := in.Current; cur != nil && cur.Enabled {
			starts = append(starts, fleet.Extra{Instance: in.Name, Version: cur.Version, Hash: cur.Content.Hash})
		}
	}
	return starts, err
}

// askFor asks about some names, and gives those that must not start. A name that is not in the answer may
// start, whatever an earlier answer was.
func (a *Agent) askFor(ctx context.Context, page []fleet.Extra, again bool) ([]fleet.RefreshDeploymentCommand, error) {
	owed, err := a.client.Owed(ctx, page, again)
	if err != nil {
		return nil, err
	}
	stops := make(map[fleet.InstanceName]bool, len(owed))
	for _, cmd := range owed {
		stops[cmd.Instance] = true
	}
	var free []fleet.InstanceName
	for _, s := range page {
		if !stops[s.Instance] {
			free = append(free, s.Instance)
		}
	}
	a.Applier.letGo(ctx, free)
	a.Applier.holdBack(ctx, owed)
	return owed, nil
}

// askAgainLimit bounds askAgain: a node that becomes active must not wait for it.
const askAgainLimit = time.Second

// askAgain asks again about instances that are held back: a disable may have been cancelled, and no delivery
// reports that. It fetches nothing.
func (a *Agent) askAgain(ctx context.Context) {
	if !a.Applier.holdsBack() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askAgainLimit)
	defer cancel()
	err := a.askHeldBack(ctx)
	a.Applier.Settle()
	if err != nil && !errors.Is(err, context.Canceled) {
		a.opt.Log.Warn("ask the region whether held-back instances may start", "err", err)
	}
}

func (a *Agent) askHeldBack(ctx context.Context) error {
	done, err := a.asking.lock(ctx, "")
	if err != nil {
		return err
	}
	defer done()
	starts, err := a.starts(ctx)
	if err != nil {
		return err
	}
	for _, page := range pages(a.Applier.onlyHeldBack(starts), fleet.MaxComparedNames) {
		if _, err := a.askFor(ctx, page, true); err != nil {
			return err
		}
	}
	return nil
}

// refrainAll applies what is held back.
func (a *Agent) refrainAll(ctx context.Context, owed []fleet.RefreshDeploymentCommand) {
	var group errgroup.Group
	group.SetLimit(fetchers)
	for _, cmd := range owed {
		group.Go(func() error {
			if err := a.Applier.refrain(ctx, cmd); err != nil {
				a.opt.Log.Warn("apply an owed delete or disable; the instance does not start until its delivery arrives",
					"instance", cmd.Instance, "err", err)
			}
			return nil // one failure must not stop the others
		})
	}
	_ = group.Wait() // no error is ever returned
}

// Owed asks which of the instances that a node would start are deleted or disabled by now, in revisions above
// those that it holds. With again it asks only for the fact, not how to fetch them.
func (c *Client) Owed(ctx context.Context, starts []fleet.Extra, again bool) ([]fleet.RefreshDeploymentCommand, error) {
	var out struct {
		Commands []fleet.RefreshDeploymentCommand `json:"commands"`
	}
	if err := c.signed(ctx, "owed", map[string]any{"instances": starts, "again": again}, &out); err != nil {
		return nil, err
	}
	asked := make(map[fleet.InstanceName]fleet.Version, len(starts))
	for _, s := range starts {
		asked[s.Instance] = s.Version
	}
	for i, cmd := range out.Commands {
		held, is := asked[cmd.Instance]
		if !is || cmd.Revision.Enabled || !cmd.Revision.Version.Newer(held) {
			return nil, fleet.Errorf(fleet.Communication, "the region's answer names an instance that was not requested")
		}
		out.Commands[i].CentralFetchBaseURL = c.API
	}
	return out.Commands, nil
}

// holdBack keeps older revisions of some names from starting, also under a later agent.
func (a *Applier) holdBack(ctx context.Context, owed []fleet.RefreshDeploymentCommand) {
	if len(owed) == 0 {
		return
	}
	names := make(map[fleet.InstanceName]fleet.Version, len(owed))
	for _, cmd := range owed {
		names[cmd.Instance] = cmd.Revision.Version
	}
	a.bar(names)
	if err := a.opt.Store.HoldBack(context.WithoutCancel(ctx), names); err != nil {
		a.opt.Log.Warn("store which instances are held back", "count", len(names), "err", err)
	}
}

// remember loads what an earlier agent held back.
func (a *Applier) remember(ctx context.Context) error {
	names, err := a.opt.Store.HeldBack(ctx)
	if err != nil {
		return err
	}
	a.bar(names)
	if err := a.opt.Store.ForgetHeldBack(ctx); err != nil {
		a.opt.Log.Warn("remove stored entries of held-back instances; the next start retries", "err", err)
	}
	return nil
}

// bar never lowers a version.
func (a *Applier) bar(names map[fleet.InstanceName]fleet.Version) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, v := range names {
		if at, is := a.stopped[name]; !is || v.Newer(at) {
			a.stopped[name] = v
		}
	}
}

// letGo allows names to start again.
func (a *Applier) letGo(ctx context.Context, free []fleet.InstanceName) {
	a.mu.Lock()
	free = slices.DeleteFunc(free, func(name fleet.InstanceName) bool { _, held := a.stopped[name]; return !held })
	for _, name := range free {
		delete(a.stopped, name)
	}
	a.mu.Unlock()
	if len(free) == 0 {
		return
	}
	a.opt.Log.Info("the region cancelled deletes or disables", "count", len(free), "first", free[0])
	if err := a.opt.Store.LetGo(context.WithoutCancel(ctx), free); err != nil {
		a.opt.Log.Warn("store which instances may start again", "count", len(free), "err", err)
	}
}

func (a *Applier) holdsBack() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.stopped) > 0
}

// onlyHeldBack gives those of some starts that are held back; only those need a question.
func (a *Applier) onlyHeldBack(starts []fleet.Extra) []fleet.Extra {
	a.mu.Lock()
	defer a.mu.Unlock()
	still := map[fleet.InstanceName]fleet.Version{}
	starts = slices.DeleteFunc(starts, func(e fleet.Extra) bool {
		at, is := a.stopped[e.Instance]
		if is = is && at.Newer(e.Version); is {
			still[e.Instance] = at
		}
		return !is
	})
	a.stopped = still
	return starts
}

// heldBack tells whether the region has deleted or disabled a name since the held revision.
func (a *Applier) heldBack(name fleet.InstanceName, cur fleet.Version) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, is := a.stopped[name]
	if is && !at.Newer(cur) {
		delete(a.stopped, name)
		return false
	}
	return is
}

// refrain applies a delete or a disable while the node may not run anything yet.
func (a *Applier) refrain(ctx context.Context, cmd fleet.RefreshDeploymentCommand) error {
	j, jobCtx, free := a.lanes.enterIdle(ctx, cmd.Instance)
	if !free {
		return fleet.Errorf(fleet.Unavailable, "instance %s is busy with another operation", cmd.Instance)
	}
	err := a.takeIn(jobCtx, cmd)
	_, err = a.lanes.leave(cmd.Instance, j, fleet.DeploymentStatusResponse{}, err)
	a.opt.Changed(cmd.Instance)
	return err
}

// takeIn makes a revision current at once, as on a standby, under the node's right. The caller has the lane.
func (a *Applier) takeIn(ctx context.Context, cmd fleet.RefreshDeploymentCommand) error {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return err
	}
	cmd.Role, cmd.Epoch = meta.Role, meta.Epoch
	if err := a.checkFor(cmd); err != nil {
		return err
	}
	d, err := a.decide(ctx, cmd)
	if err != nil {
		return err
	}
	attempt := attemptOf(cmd)
	if d.Step == stepRenumber {
		err = a.opt.Store.Renumber(ctx, attempt)
	}
	if d.Step == stepRenumber || d.Step == stepConfirm { // a delivery may have been faster
		return errors.Join(err, a.settleOne(ctx, cmd.Instance))
	}
	if cmd.Revision.Action != fleet.ActionDelete && cmd.FetchToken == "" {
		return fleet.Errorf(fleet.Unavailable, "its content comes with its delivery")
	}
	cmd.Role = fleet.RoleStandby // nothing of it may start
	_, err = a.install(ctx, cmd, attempt, d.held, func(string, int64, int64) {})
	return err
}
