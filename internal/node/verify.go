package node

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// verifyFiles hashes every delivered file, and writes again from the store what differs; a command that runs is not
// disturbed. The sweep only compares size and modification time, which an editor can keep. A name whose worker is busy
// is left to it: a delivery verifies what it writes.
func (a *Applier) verifyFiles(ctx context.Context, restored func(name fleet.InstanceName, why string, err error)) error {
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil || meta.Role != fleet.RoleActive || !a.opt.MayRun() {
		return err // only an active node has files
	}
	held, err := a.opt.Store.Instances(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(settlers)
	for _, in := range held {
		if in.Current == nil || in.Current.Deleted() || in.Staged != nil {
			continue
		}
		group.Go(func() error {
			if why, err := a.verifyFile(ctx, in.Name); why != "" || err != nil {
				restored(in.Name, why, err)
			}
			return ctx.Err()
		})
	}
	return group.Wait()
}

func (a *Applier) verifyFile(ctx context.Context, name fleet.InstanceName) (why string, err error) {
	j, jobCtx, idle := a.lanes.enterIdle(ctx, name)
	if !idle {
		return "", nil
	}
	defer func() { _, err = a.lanes.leave(name, j, fleet.DeploymentStatusResponse{}, err) }()
	in, err := a.opt.Store.Instance(jobCtx, name)
	if err != nil || in.Current == nil || in.Current.Deleted() || !a.opt.MayRun() {
		return "", err
	}
	if why, err = a.files.differs(name, in.Current.Content); why == "" || err != nil {
		return "", err
	}
	a.opt.Log.Warn("a delivered file differs; writing it again", "instance", name, "why", why)
	a.files.forget(name)
	return why, a.settleOne(jobCtx, name)
}
