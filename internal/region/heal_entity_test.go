package region

import (
	"context"
	"errors"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

type healQuiet struct{}

func (healQuiet) Debug(string, ...any) {}
func (healQuiet) Info(string, ...any)  {}
func (healQuiet) Warn(string, ...any)  {}
func (healQuiet) Error(string, ...any) {}

// execute runs the real workflow of an entity to its end, with virtual timers. What happens
// to other subjects meanwhile happens inside its activities, on one stack.
func (w *healWorld) execute(e *healEntity) {
	if e.dead {
		return
	}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(healQuiet{})
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: time.Minute}) // a machine that is busy is no deadlock
	name := e.workflow()
	for known, f := range workers.Workflows() {
		if name == workflows.TypeFleet && known == workflows.TypeFleetSite {
			f = healChild
		}
		env.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: known})
	}
	e.register(env)
	e.registerBatches(env)
	e.registerFleets(env)
	e.env = env
	if e.short = w.chance(20); e.short {
		env.SetContinueAsNewSuggested(true)
	}
	w.say("run: %s (%s)", e.subject, e.run)
	env.ExecuteWorkflow(name, e.input)
	e.rest()
	e.env = nil
	w.concluded(e, env.GetWorkflowError())
}

// workflow is the type that runs under the entity's id.
func (e *healEntity) workflow() string {
	if _, is := e.input.(workflows.FleetSiteInput); is {
		return workflows.TypeFleetSite
	}
	switch kind, _, _ := fleet.ParseSubject(e.subject); kind {
	case fleet.EntityNode:
		return workflows.TypeNode
	case fleet.EntityFleet:
		return workflows.TypeFleet
	case fleet.EntityDeliver:
		return workflows.TypeDeliverSite
	}
	return workflows.TypeInstance
}

// concluded is what follows from how a run ended.
func (w *healWorld) concluded(e *healEntity, err error) {
	var again *workflow.ContinueAsNewError
	switch {
	case e.dead:
	case errors.As(err, &again):
		e.close(enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW)
		if w.entities[e.subject] == nil && e.workflow() != workflows.TypeFleetSite { // its parent goes on with that
			w.enqueue(e.subject, e.input)
		}
	case e.parked:
		if e.parked = e.heard == e.signals; !e.parked {
			w.queue = append(w.queue, e)
		}
	case err != nil:
		w.fail("%s fails: %v", e.subject, err)
		e.close(enumspb.WORKFLOW_EXECUTION_STATUS_FAILED)
	default:
		e.close(enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED)
	}
}

func (e *healEntity) register(env *testsuite.TestWorkflowEnvironment) {
	work := &e.world.region.work
	as := registrar(env)
	as("Visit", e.visitStore)
	as("Begin", func(ctx context.Context, in activities.BeginReconcile) (out activities.BegunReconcile, err error) {
		in.Run = e.run
		err = e.step(func() error { out, err = work.Begin(ctx, in); return err })
		return out, err
	})
	as("Page", func(ctx context.Context, in activities.ReconcilePage) (out activities.ReconciledPage, err error) {
		err = e.step(func() error { out, err = work.Page(ctx, in); return err })
		return out, err
	})
	as("Serve", func(ctx context.Context, in activities.OwedPage) (out activities.ServedPage, err error) {
		err = e.step(func() error { out, err = work.Serve(ctx, in); return err })
		return out, err
	})
	as("End", func(ctx context.Context, in fleet.ReconcileEnd) error {
		return e.step(func() error { return work.End(ctx, in) })
	})
	as("RefreshDeployment", func(ctx context.Context, cmd fleet.RefreshDeploymentCommand) (out fleet.DeploymentStatusResponse, err error) {
		err = e.tell(ctx, "deploy "+string(cmd.Instance), func(ctx context.Context, l *healLife) error {
			out, err = l.work.RefreshDeployment(ctx, cmd)
			return err
		})
		return out, err
	})
	as("QueryDeployment", func(ctx context.Context, name fleet.InstanceName) (out fleet.Held, err error) {
		err = e.tell(ctx, "query "+string(name), func(ctx context.Context, l *healLife) error { out, err = l.work.QueryDeployment(ctx, name); return err })
		return out, err
	})
	as("Reconcile", func(ctx context.Context, cmd fleet.ReconcileCommand) (out fleet.ReconcileReport, err error) {
		err = e.tell(ctx, "reconcile", func(ctx context.Context, l *healLife) error {
			l.comparing.Store(true)
			defer l.comparing.Store(false)
			out, err = l.work.Reconcile(ctx, cmd)
			return err
		})
		return out, err
	})
}

// step is one of a workflow at the store.
func (e *healEntity) step(f func() error) error {
	if e.dead {
		return temporal.NewNonRetryableApplicationError("the run was terminated", string(fleet.IllegalState), nil)
	}
	return f()
}

// healVisits is more than any run needs.
const healVisits = 150

// visitStore gives the visit the id of this run, for a test environment has but one. The
// server may die between the commit and the answer.
func (e *healEntity) visitStore(ctx context.Context, in activities.Visit) (out activities.Visited, err error) {
	in.Subject.Run = e.run
	switch {
	case in.Step.Record != nil:
		in.Step.Record.Subject.Run = e.run
	case in.Step.Miss != nil:
		in.Step.Miss.Subject.Run = e.run
	case in.Step.Settle != nil:
		in.Step.Settle.Subject.Run = e.run
	}
	if e.visits++; e.visits == healVisits && !e.dead {
		e.world.fail("%s takes steps without end", e.subject)
		e.dead = true
	}
	before := e.world.deployedBy(ctx, in)
	err = e.step(func() error { out, err = e.world.region.visits.Visit(ctx, in); return err })
	if after := e.world.deployedBy(ctx, in); after != before && strings.HasSuffix(after, "false") {
		e.world.fail("%s: what a node applied without the right to is deployed (%s)", e.subject, after)
	}
	if err == nil && e.retries < 2 && !e.waitedFor() && e.world.chance(25) {
		e.retries++
		e.world.say("visit: %s %v, its answer is lost", e.subject, out.Steps)
		return out, temporal.NewApplicationError("the server died", string(fleet.Unavailable))
	}
	if err != nil {
		e.world.say("visit: %s %s: %v", e.subject, in.Step.Name(), err)
		e.visited(nil)
		return out, err
	}
	e.world.say("visit: %s %v, then %s", e.subject, out.Steps, out.Next.Rule)
	e.visited(&out)
	return out, nil
}

// deployedBy is the revision that the delivery of a record deployed, and whether the lease is
// still the one that it was delivered under.
func (w *healWorld) deployedBy(ctx context.Context, in activities.Visit) string {
	if in.Step.Record == nil || in.Step.Record.Delivery == "" {
		return ""
	}
	var out string
	err := w.region.pool.QueryRow(ctx, `SELECT p.revision || ' ' || (p.epoch = l.epoch)::text FROM snapshots p JOIN site_leases l USING (site)
		WHERE p.delivery_id = $1 AND NOT l.dropped`, in.Step.Record.Delivery).Scan(&out)
	if err != nil {
		return "" // it is not deployed
	}
	return out
}

func (e *healEntity) waitedFor() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.awaits
}

// tell brings a task to the node of its queue, or does not, or loses what it answers.
func (e *healEntity) tell(ctx context.Context, what string, do func(ctx context.Context, l *healLife) error) error {
	e.enter()
	defer e.leave()
	w := e.world
	n := w.node(fleet.NodeName(strings.TrimPrefix(activity.GetInfo(ctx).TaskQueue, workflows.NodeQueue(""))))
	what += " on " + string(n.name)
	w.meanwhile("task " + what)
	l := n.life
	if l == nil || n.cut || l.busy > 0 || w.chance(20) {
		w.say("task: %s is not taken", what)
		return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil)
	}
	if w.chance(8) {
		w.say("task: %s is taken and late", what)
		w.late = append(w.late, func() {
			if n.life == l && !n.cut && l.busy == 0 {
				w.say("late: %s: %v", what, l.at(func() error { return do(context.WithoutCancel(ctx), l) }))
			}
		})
		return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
	}
	err := l.at(func() error { return do(ctx, l) })
	w.say("task: %s: %v", what, err)
	w.meanwhile("answer of " + what)
	if l.dead.Load() || n.cut || w.chance(12) {
		w.say("task: the answer of %s is lost", what)
		return temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil)
	}
	return err
}

// at is a task at work: a second one meanwhile would wait for the first, which waits for it.
func (l *healLife) at(f func() error) error {
	l.busy++
	defer func() {
		l.busy--
		l.node.world.level(l.node)
	}()
	return f()
}
