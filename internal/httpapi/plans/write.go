package plans

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decode"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// writesAtOnce is how many instances or deployments of an apply are written at the same time.
const writesAtOnce = 8

// applying is one apply under way.
type applying struct {
	*Calls
	*planner
	bound   bool            // to a plan
	request []byte          // hash of the request
	failed  map[string]bool // templates that are not as planned; written between groups only
}

// apply carries out a plan, each object in a separate transaction through the
// one write path. One that fails does not stop those that do not refer to it.
func (a *applying) apply(ctx context.Context, plan api.Plan) *applyOutput {
	all := a.all()
	out := api.Applied{Digest: plan.Digest, Objects: make([]api.AppliedObject, len(all))}
	for from := 0; from < len(all); {
		to := from + 1
		if kind := all[from].key.Kind; a.Kinds[kind].unreferred {
			for to < len(all) && all[to].key.Kind == kind {
				to++
			}
		}
		var group errgroup.Group
		group.SetLimit(writesAtOnce)
		for i := from; i < to; i++ {
			group.Go(func() error {
				out.Objects[i] = a.one(ctx, all[i])
				return nil
			})
		}
		_ = group.Wait() // none gives an error
		from = to
	}
	status := http.StatusOK
	for _, o := range out.Objects {
		if o.Operation != nil {
			status = http.StatusAccepted
		}
		if o.Problem != nil {
			out.Failed++
		}
	}
	return &applyOutput{Status: status, Body: out}
}

func (a *applying) one(ctx context.Context, o *planned) api.AppliedObject {
	if o.action == api.PlanUnchanged && !o.seen {
		view := &api.Object{Generation: o.now.Generation, ResourceVersion: strconv.FormatInt(o.now.ResourceVersion, 10)}
		return resultOf(o, &api.Accepted{Object: view}, nil)
	}
	out, err := a.write(ctx, o)
	if o.key.Kind == fleet.KindTemplate && o.action != api.PlanDelete && !o.seen && err == nil {
		err = a.asPlanned(o, out)
	}
	if o.key.Kind == fleet.KindTemplate && err != nil {
		a.failed[o.key.Name] = true
	}
	if err != nil {
		err = a.Problem(serve.CallOf(ctx).Request, err)
	}
	return resultOf(o, out, err)
}

// asPlanned looks whether a template was written with the generations that were planned for
// it and its compositions, because instances pin them.
func (a *applying) asPlanned(o *planned, out *api.Accepted) error {
	now := out.Object
	if now.Generation == o.next && o.isSpec(now.Spec) {
		return nil
	}
	return fleet.Errorf(fleet.Conflict, "%s was written, but another write came between: it is at generation %d", o.key, now.Generation).
		WithHint("apply again")
}

func (a *applying) write(ctx context.Context, o *planned) (*api.Accepted, error) {
	for _, t := range o.refers() {
		if a.failed[a.templateKey(fleet.TemplateName(t)).Name] {
			return nil, fleet.Errorf(fleet.Conflict, "template %s, which it refers to, was not written as planned", t).At("/spec/template").
				WithHint("apply again")
		}
	}
	w := a.writeOf(o)
	part := a.Kinds[o.key.Kind]
	switch {
	case o.action == api.PlanDelete && part.remove != nil:
		return part.remove(a, ctx, w)
	case o.action == api.PlanDelete:
		return a.written(ctx)(a.Store.DeleteDeclared(ctx, w))
	case part.write != nil:
		return part.write(a, ctx, o, w)
	}
	return a.written(ctx)(a.Store.Declare(ctx, w, o.plain))
}

func (a *applying) putTemplateOf(ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error) {
	if err := a.Maker.KeepBase(ctx, o.project, &o.template); err != nil {
		return nil, decode.Below("/spec", err)
	}
	return a.written(ctx)(a.Store.Declare(ctx, w, o.template.Spec))
}

// writeOf makes the store's write; bound to a plan it is also bound to what was planned from.
func (a *applying) writeOf(o *planned) postgres.Write {
	w := postgres.Write{Key: o.key, Service: o.service, Labels: o.labels, AllProjects: a.caller.Project == "", Request: postgres.Request{Project: o.project, Actor: a.caller.Actor, Limit: a.OperationLimit}}
	if o.key.Kind.Declared().Shared { // not what took its name since
		w.Region = cmp.Or(o.region(), a.Maker.Region)
	}
	switch {
	case o.action == api.PlanDelete || a.bound && o.now != nil:
		w.IfMatch = o.now.ResourceVersion
	case a.bound:
		w.IfMatch = postgres.NoVersion
	}
	if a.key != "" {
		w.Idempotency = postgres.Idempotency{Key: partKey(a.key, o.key), Hash: a.request}
	}
	return w
}

// started answers a write that may have started work.
func (a *applying) started(ctx context.Context) func(postgres.Started, error) (*api.Accepted, error) {
	return func(st postgres.Started, err error) (*api.Accepted, error) {
		if err != nil {
			return nil, err
		}
		return a.Answer(ctx, st), nil
	}
}

// written answers a write that started nothing.
func (a *applying) written(ctx context.Context) func(postgres.Written, error) (*api.Accepted, error) {
	return func(w postgres.Written, err error) (*api.Accepted, error) {
		return a.started(ctx)(postgres.Started{Written: w}, err)
	}
}

func (a *applying) putInstanceOf(ctx context.Context, o *planned, w postgres.Write) (*api.Accepted, error) {
	err := a.Maker.Resolve(ctx, a.of(o), &o.instance) // what it refers to may be gone by now
	if err == nil {
		err = a.Maker.Fill(ctx, w.Project, &o.instance)
	}
	if err != nil {
		return nil, decode.Below("/spec", err)
	}
	if o.content.Hash != "" && o.content.Hash != o.instance.Content.Hash {
		return nil, fleet.Errorf(fleet.Conflict, "%s would get another config than was planned", o.key).WithHint("apply again")
	}
	c := o.instance.Change(w)
	c.Release, c.Reason = a.r.deploy, cmp.Or(c.Reason, a.r.head.Reason)
	return a.started(ctx)(a.Store.PutInstance(ctx, c))
}

func (a *applying) removeInstance(ctx context.Context, w postgres.Write) (*api.Accepted, error) {
	return a.started(ctx)(a.Store.TurnInstance(ctx, deliveries.InstanceTurn{Write: w, Kind: fleet.OperationDelete, Reason: a.r.head.Reason}))
}

func (a *applying) removeDeployment(ctx context.Context, w postgres.Write) (*api.Accepted, error) {
	return a.started(ctx)(a.Store.TurnDeployment(ctx, deployments.DeploymentTurn{Write: w, Kind: fleet.OperationDestroy, Reason: a.r.head.Reason}))
}
