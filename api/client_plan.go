package api

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Release says whether many instances are delivered as they are declared.
type Release string

// The releases: as a PUT does, and as one with ?deploy=false.
const (
	ReleaseAll  Release = "all"
	ReleaseNone Release = "none"
)

// Plan asks what an apply of many objects would do.
func (c *Client) Plan(ctx context.Context, in PlanRequest, release Release) (Plan, error) {
	r := clientCall{method: http.MethodPost, segments: []string{"plan"}, query: map[string][]string{}, header: http.Header{}, body: in}
	var p Plan
	_, err := c.do(ctx, r.released(release), &p)
	return p, err
}

// Apply declares many objects; with a plan exactly what that says. A lost answer is asked for
// again under the same key, which goes on where the first request ended.
func (c *Client) Apply(ctx context.Context, in PlanRequest, release Release, m Mutation) (Applied, error) {
	if in.Plan != nil {
		in.Plan = in.Plan.Binding()
	}
	var a Applied
	_, err := c.do(ctx, writeCall(http.MethodPost, m, in, "apply").released(release), &a)
	return a, err
}

func (r clientCall) released(release Release) clientCall {
	if release == ReleaseNone {
		r.query.Set("deploy", "false")
	}
	return r
}

// Binding is a plan without its differences, which is all that an apply needs of it.
func (p Plan) Binding() *Plan {
	p.Objects = slices.Clone(p.Objects)
	for i := range p.Objects {
		p.Objects[i].Declared, p.Objects[i].Nodes = nil, nil
	}
	p.WouldPrune = nil
	return &p
}

// ErrorOf is the error that a problem of one object stands for.
func ErrorOf(p Problem) error {
	kind := fleet.Kind(path.Base(strings.ReplaceAll(p.Type, ":", "/")))
	if !slices.Contains(fleet.Kinds(), kind) {
		kind = clientKindOf(p.Status)
	}
	return &fleet.Error{Kind: kind, Message: p.Detail, Field: p.Field, Hint: p.Hint, Err: &answered{problem: p}}
}
