package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
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
	var p Plan
	text, err := in.encode()
	if err != nil {
		return p, err
	}
	r := clientCall{method: http.MethodPost, segments: []string{"plan"}, query: url.Values{}, header: http.Header{}, body: text}
	_, err = c.do(ctx, r.released(release), &p)
	return p, err
}

// Apply declares many objects; with a plan exactly what that says. A lost answer is asked for
// again under the same key, which continues where the first request ended.
func (c *Client) Apply(ctx context.Context, in PlanRequest, release Release, m Mutation) (Applied, error) {
	if in.Plan != nil {
		in.Plan = in.Plan.Binding()
	}
	var a Applied
	text, err := in.encode()
	if err != nil {
		return a, err
	}
	_, err = c.do(ctx, writeCall(http.MethodPost, m, text, "apply").released(release), &a)
	return a, err
}

// encode writes a request with its specs as they are: they may be many megabytes, and the
// region reads them with care.
func (in PlanRequest) encode() (encoded, error) {
	size := 0
	for _, o := range in.Objects {
		size += len(o.Spec) + manifestRoom
	}
	objects := in.Objects
	in.Objects = []Manifest{}
	head, err := json.Marshal(in)
	if err != nil {
		return nil, fleet.Errorf(Invalid, "encode the request: %w", err)
	}
	const empty = `{"objects":[]`
	out := append(make(encoded, 0, size+len(head)), empty[:len(empty)-1]...)
	for i, o := range objects {
		if i > 0 {
			out = append(out, ',')
		}
		spec := o.Spec
		o.Spec = nil
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fleet.Errorf(Invalid, "encode the request: %w", err)
		}
		if len(spec) > 0 {
			text = append(append(append(text[:len(text)-1], `,"spec":`...), spec...), '}')
		}
		out = append(out, text...)
	}
	return append(append(out, ']'), head[len(empty):]...), nil
}

// manifestRoom is about what a manifest has around its spec.
const manifestRoom = 200

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
	kind := Kind(path.Base(strings.ReplaceAll(p.Type, ":", "/")))
	if !slices.Contains(fleet.Kinds(), kind) {
		kind = KindOfStatus(p.Status)
	}
	return &Error{Kind: kind, Message: p.Detail, Field: p.Field, Hint: p.Hint, Owner: p.Owner, Region: p.Region, Err: &answered{problem: p}}
}
