package node

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/poke"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// cutStart is a start that goes on without its attempt: the caller gave up, the epoch rose, or the agent was
// restarted.
type cutStart struct {
	cmd *fleet.RefreshDeploymentCommand // nil: of an earlier agent
	at  time.Duration                   // on the clock of SinceBoot
}

const (
	defaultClaimLimit = 10 * time.Second
	// checkCutEvery is the pause between two checks of a start that was cut off.
	checkCutEvery = time.Second
	// askClosedLimit bounds the question whether the region has closed a delivery.
	askClosedLimit = 5 * time.Second
)

// goesOn tells whether what an attempt started may run on after the attempt was cut off. Otherwise the attempt
// restores the current revision.
func (a *Applier) goesOn(ctx context.Context, attempt sqlite.Attempt, cause error) bool {
	if errors.Is(cause, errNewer) {
		return false
	}
	meta, err := a.opt.Store.Meta(ctx)
	if err != nil {
		return false
	}
	held, err := a.opt.Store.Instance(ctx, attempt.Instance)
	if err != nil || held.Staged == nil || held.Staged.Version != attempt.Revision.Version {
		return false
	}
	seen, err := a.look(ctx, attempt.Instance)
	return err == nil && a.keptLease(meta, seen, *held.Staged)
}

// keptLease tells whether a revision runs, and the node has held the lease since it was started: the guardian
// ends what it runs when the lease ends, so the epoch may have risen, but no other node was active.
func (a *Applier) keptLease(meta sqlite.Meta, seen *guardian.Status, slot sqlite.Slot) bool {
	return meta.Role == fleet.RoleActive && a.opt.MayRun() &&
		live(seen) && seen.Running && seen.Reason == "" && runs(seen, slot)
}

// leaveStart leaves a start to the next attempt.
func (a *Applier) leaveStart(cmd fleet.RefreshDeploymentCommand) {
	a.opt.Log.Info("the attempt was cut off; its start goes on", "instance", cmd.Instance,
		"era", cmd.Revision.Era, "revision", cmd.Revision.Version.Revision)
	a.mu.Lock()
	a.cut[cmd.Instance] = cutStart{&cmd, guardian.SinceBoot()}
	a.mu.Unlock()
	a.checkCutSoon()
}

// cutOff gives the start of a name that was cut off. One of an earlier agent is entered now.
func (a *Applier) cutOff(name fleet.InstanceName) cutStart {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, is := a.cut[name]
	if !is {
		c = cutStart{at: guardian.SinceBoot()}
		a.cut[name] = c
	}
	return c
}

// claimed ends the wait for the next attempt.
func (a *Applier) claimed(name fleet.InstanceName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.cut, name)
}

func (a *Applier) checkCutSoon() {
	time.AfterFunc(checkCutEvery, func() { poke.Once(a.unsure) })
}

// checkCut settles the names of starts that were cut off, unless an attempt has them.
func (a *Applier) checkCut(ctx context.Context) {
	a.mu.Lock()
	names := make([]fleet.InstanceName, 0, len(a.cut))
	for name := range a.cut {
		names = append(names, name)
	}
	a.mu.Unlock()
	for _, name := range names {
		a.settleIdle(ctx, name)
	}
}

// closed tells whether the region has closed the delivery of a cut-off start. Without an answer it has not.
func (a *Applier) closed(ctx context.Context, c cutStart) bool {
	if c.cmd == nil {
		return false
	}
	req, err := a.fetchRequest(*c.cmd)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askClosedLimit)
	defer cancel()
	_, err = a.opt.Fetcher.FetchRun(ctx, req, c.cmd.Revision.RunHash)
	return fleet.KindOf(err) == fleet.Stale && err != nil
}

// courseOfHeld observes what the course of a name's staged revision depends on, and decides.
func (a *Applier) courseOfHeld(ctx context.Context, held sqlite.Instance, meta sqlite.Meta) (decide.Course, error) {
	seen, err := a.look(ctx, held.Name)
	if err != nil {
		return decide.CourseWait, err
	}
	staged := *held.Staged
	c := decide.StagedSeen{
		InForce: meta.Right == sqlite.Right{Role: fleet.RoleActive, Epoch: staged.Epoch} && a.opt.MayRun(),
		Process: needsProcess(staged), Superseded: held.HighWater.Newer(staged.Version),
		Runs: a.keptLease(meta, seen, staged), Starting: seen != nil && seen.Starting,
	}
	if c.Process && c.Runs {
		cut := a.cutOff(held.Name)
		c.Closed = a.closed(ctx, cut)
		c.Late = guardian.SinceBoot()-cut.at > orDefault(a.opt.ClaimLimit, defaultClaimLimit)
	}
	rule, then := decide.Staged(c)
	if then != decide.CourseWait {
		a.claimed(held.Name)
	}
	a.opt.Log.Debug("staged revision without an attempt", "instance", held.Name, "rule", rule, "course", then)
	return then, nil
}
