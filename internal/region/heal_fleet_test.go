package region

import (
	"context"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/workflows"
)

// registrar registers activities by name.
func registrar(env *testsuite.TestWorkflowEnvironment) func(name string, f any) {
	return func(name string, f any) { env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
}

// healSitePart is the activity that stands for a child of the entity of a fleet change.
const healSitePart = "SitePart"

// healChild has one site's part of a wave delivered by a run of its own, on the same stack.
func healChild(ctx workflow.Context, in workflows.FleetSiteInput) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	return workflow.ExecuteActivity(ctx, healSitePart, in).Get(ctx, nil)
}

func (e *healEntity) registerFleets(env *testsuite.TestWorkflowEnvironment) {
	as := registrar(env)
	as("SeeFleet", e.seeFleet)
	as("MoveFleet", func(ctx context.Context, in fleet.FleetMove) error {
		return e.served("move on "+string(in.On)+" "+in.Reason, func() error {
			e.failpoint("before_move")
			e.delivers(false)
			return e.world.region.fleets.MoveFleet(context.WithoutCancel(ctx), in)
		})
	})
	as(healSitePart, e.sitePart)
}

// seeFleet is a look. Where it ends in a wait for what only others bring, the run is put aside
// until it is woken, or time has passed: a test environment would skip a day.
func (e *healEntity) seeFleet(ctx context.Context, in fleet.FleetVisit) (out fleet.FleetSeen, err error) {
	w := e.world
	in.Run = e.run
	signals, busy := e.looks()
	defer e.looked(signals)
	if !busy { // else somebody waits for this very look
		w.depth++
		w.meanwhile("before a look of " + e.subject)
		w.depth--
	}
	err = e.step(func() error { out, err = w.region.fleets.SeeFleet(context.WithoutCancel(ctx), in); return err })
	if err != nil {
		w.say("look: %s: %v", e.subject, err)
		return out, err
	}
	next := decide.Fleet(out, decide.FleetRun{})
	w.say("look: %s run %d %s wave %d of %d %+v, then %s", e.subject, out.Run, out.State, out.Wave, out.Waves, out.Counts, next.Rule)
	switch {
	case busy:
	case next.Do == decide.FleetDeliver:
		e.delivers(true)
	case next.Do == decide.FleetWait:
		e.parked = true
		e.env.CancelWorkflow()
	}
	return out, nil
}

// looks begins a look: it knows of the signals until now. Busy is an entity that has a part of
// a site delivered, or is about to.
func (e *healEntity) looks() (signals int, busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.looking++
	return e.signals, e.busy
}

func (e *healEntity) looked(signals int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard = signals
	e.looking--
	e.cond.Broadcast()
}

func (e *healEntity) delivers(busy bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = busy
}

// sitePart delivers one site's part of a wave to its end. It begins after the look that a
// signal from before asked for.
func (e *healEntity) sitePart(_ context.Context, in workflows.FleetSiteInput) error {
	e.enter()
	defer e.leave()
	defer e.delivers(false)
	defer e.setChild(nil)
	e.awaitLook()
	w := e.world
	for !e.dead {
		c := w.newEntity(workflows.FleetSiteID(in.Fleet, in.Run, in.Wave, in.Site), in)
		e.setChild(c)
		w.execute(c)
		switch w.runs[c.run] { //nolint:exhaustive // the others are failures
		case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
			return nil
		case enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
			continue
		}
		break
	}
	return temporal.NewApplicationError("it was terminated", string(fleet.Internal))
}

func (e *healEntity) setChild(c *healEntity) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.child = c
}

// signalFleet returns when the look that it asks for is over: it happens beside the part of a
// site that is at work.
func (e *healEntity) signalFleet(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signals++
	e.env.SignalWorkflow(name, nil)
	for e.child != nil && e.heard != e.signals {
		e.cond.Wait()
	}
}

func (e *healEntity) awaitLook() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.heard != e.signals {
		e.cond.Wait()
	}
}

// unpark has the entities of fleet changes look again, as their timers would.
func (w *healWorld) unpark() {
	for i := range healFleets {
		if e := w.entities[fleet.FleetSubject(healFleet(i))]; e != nil && e.parked && e.env == nil {
			e.parked = false
			w.queue = append(w.queue, e)
		}
	}
}

// healWindows are the windows of all sites: they open and close as it is drawn.
type healWindows struct {
	*store.Store
	region *healRegion
}

// SeeFleet is a look in which sites may be outside of their windows.
func (f *healWindows) SeeFleet(ctx context.Context, in fleet.FleetVisit) (fleet.FleetSeen, error) {
	seen, err := f.Store.SeeFleet(ctx, in)
	if f.region.now.shut {
		for i := range seen.Sites {
			seen.Sites[i].Closed, seen.Sites[i].Opens = true, seen.At.Add(time.Hour)
		}
	}
	return seen, err
}
