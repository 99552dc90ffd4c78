package plans

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

type applyInput struct {
	ManyParams
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"a repeated key continues where the first request ended"`
	DryRun         bool   `query:"dryRun" doc:"answer the plan, change nothing"`
}

// applyOutput has an Applied, of a dry run a Plan.
type applyOutput struct {
	Status int
	Body   any
}

func (s *Calls) mountApply() {
	op := serve.Endpoint(http.MethodPost, "/api/v1/apply", "apply", "Declare many objects, and deliver what changed")
	schema := func(of reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: s.Document().Components.Schemas.Schema(of, true, "")}}
	}
	applied := schema(reflect.TypeFor[api.Applied]())
	op.Responses = map[string]*huma.Response{
		"200": {Description: "the plan, of a dry run; else Applied, and no work was started", Content: schema(reflect.TypeFor[api.Plan]())},
		"202": {Description: "what became of each object, and the operations that were started", Content: applied},
	}
	serve.Register(s.Server, serve.ForOperators, op, s.apply)
	serve.Takes[api.PlanRequest](s.Server, op)
	s.alsoYAML(op)
}

// apply checks everything, then writes the objects one by one.
func (s *Calls) apply(ctx context.Context, in *applyInput) (out *applyOutput, err error) {
	err = s.withMany(ctx, in.ManyParams, func(r *planRequest, raw []byte) error {
		bound := r.plan
		if len(r.head.Artifacts) > 0 && !in.DryRun {
			r.head.Artifacts = nil // by now they have to be there
		}
		p, err := s.planFor(ctx, r, in.IdempotencyKey)
		if err != nil {
			return err
		}
		plan := p.answer()
		if bound != nil {
			if err := p.boundTo(ctx, *bound, plan); err != nil {
				return err
			}
		}
		switch {
		case in.DryRun:
			out = &applyOutput{Status: http.StatusOK, Body: plan}
			return nil
		case !plan.Valid:
			return refusedPlan(plan)
		case bound != nil && plan.Changes:
			if err := s.Store.ClaimPlan(ctx, bound.Digest, claimOf(p.caller.Actor, in.IdempotencyKey)); err != nil {
				return err
			}
		}
		a := &applying{Calls: s, planner: p, bound: bound != nil, failed: map[string]bool{}, request: serve.RequestHash(serve.CallOf(ctx).Request, raw)}
		out = a.apply(ctx, plan)
		return nil
	})
	return out, err
}

// claimOf tells a request from all others but its own repeats.
func claimOf(actor, key string) []byte {
	if key == "" {
		key = rand.Text()
	}
	return []byte(sumOf([]byte(actor + "\n" + key)))
}

// boundTo refuses a plan that was made from something else than what is there now, or for
// another request. What an earlier try of this request did is left out of account.
func (p *planner) boundTo(ctx context.Context, bound, now api.Plan) error {
	done, err := p.doneBefore(ctx, bound)
	if err != nil {
		return err
	}
	planned, moved := map[api.PlanKey]api.PlanObject{}, []api.ProblemObject{}
	for _, o := range bound.Objects {
		planned[o.PlanKey] = o
	}
	add := func(o api.PlanObject, format string, args ...any) {
		moved = append(moved, api.ProblemObject{PlanKey: o.PlanKey, Detail: fmt.Sprintf(format, args...)})
	}
	for _, o := range now.Objects {
		was, known := planned[o.PlanKey]
		delete(planned, o.PlanKey)
		switch {
		case done[o.PlanKey]:
		case !known:
			add(o, "it is not in the plan")
		case was.ResourceVersion != o.ResourceVersion || was.Generation != o.Generation:
			add(o, "it was planned from generation %d and is at %d", was.Generation, o.Generation)
		case was.Action != o.Action || was.Digest != o.Digest || was.Releases != o.Releases:
			add(o, "it would be written in another way than planned: the request, or what it refers to, is another")
		}
	}
	for _, o := range bound.Objects {
		if _, left := planned[o.PlanKey]; left && !done[o.PlanKey] {
			add(o, "it is in the plan, and not in the request or no longer there")
		}
	}
	if len(moved) > 0 {
		return movedPlan(moved)
	}
	if len(done) == 0 && bound.Digest != now.Digest {
		return fleet.Errorf(fleet.Precondition, "the digest does not match the plan of this request").At("/plan/digest").WithHint("plan again")
	}
	return nil
}

// doneBefore is what an earlier try of this request wrote, deletes among it.
func (p *planner) doneBefore(ctx context.Context, bound api.Plan) (map[api.PlanKey]bool, error) {
	done := map[api.PlanKey]bool{}
	for _, o := range p.r.objects {
		if o.seen {
			done[o.planKey()] = true
		}
	}
	if p.key == "" {
		return done, nil
	}
	deletes := map[string]api.PlanKey{}
	var keys []string
	for _, o := range bound.Objects {
		if o.Action == api.PlanDelete {
			key := partKey(p.key, fleet.ObjectKey{Kind: fleet.ObjectKind(o.Kind), Scope: o.Site, Name: o.Name})
			deletes[key], keys = o.PlanKey, append(keys, key)
		}
	}
	seen, err := p.s.Store.SeenKeys(ctx, p.caller.Actor, keys)
	for key := range seen {
		done[deletes[key]] = true
	}
	return done, err
}

const (
	// maxProblemObjects and maxNamed bound what a refusal lists, and names in its text.
	maxProblemObjects = 1000
	maxNamed          = 10
)

func movedPlan(moved []api.ProblemObject) error {
	p := serve.NewProblem(fleet.Precondition, fmt.Sprintf("nothing was applied: %d objects are not as they were planned: %s", len(moved), named(moved)))
	p.Field, p.Hint = "/plan", "plan again"
	p.Objects = moved[:min(len(moved), maxProblemObjects)]
	return p
}

// refusedPlan tells all that is wrong, as the kind of the first.
func refusedPlan(plan api.Plan) error {
	var refused []api.ProblemObject
	var first *api.Problem
	for _, o := range plan.Objects {
		if o.Problem == nil {
			continue
		}
		if first == nil {
			first = o.Problem
		}
		refused = append(refused, api.ProblemObject{PlanKey: o.PlanKey, Detail: o.Problem.Detail, Field: o.Problem.Field, Hint: o.Problem.Hint})
	}
	p := *first
	p.Detail = fmt.Sprintf("nothing was applied: %d objects are refused: %s", len(refused), named(refused))
	p.Objects = refused[:min(len(refused), maxProblemObjects)]
	return &p
}

func named(objects []api.ProblemObject) string {
	var texts []string
	for _, o := range objects[:min(len(objects), maxNamed)] {
		texts = append(texts, fleet.ObjectKey{Kind: fleet.ObjectKind(o.Kind), Scope: o.Site, Name: o.Name}.String()+": "+o.Detail)
	}
	if more := len(objects) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// resultOf says what a write came to.
func resultOf(o *planned, out *api.Accepted, err error) api.AppliedObject {
	v := api.AppliedObject{PlanKey: o.planKey(), Action: o.action}
	if err != nil {
		v.Problem = serve.ProblemFor(err)
		return v
	}
	if object := out.Object; object != nil {
		v.Generation, v.ResourceVersion = object.Generation, object.ResourceVersion
	}
	v.Operation, v.Changes = out.Operation, out.Changes
	return v
}
