package httpapi

import (
	"cmp"
	"context"
	"strconv"

	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// MutationParams come with every change.
type MutationParams struct {
	IfMatch        string `header:"If-Match" doc:"the ETag that the object must still have, or * for any that exists"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"the same key again is the same change"`
	DryRun         bool   `query:"dryRun" doc:"check everything, change nothing"`
}

// ObjectParams come with every change of a declared object.
type ObjectParams struct {
	MutationParams
	RegionParam
}

func (p ObjectParams) mutation() ObjectParams { return p }

// write makes the store's write of a mutation. Only shared kinds are written outside the region that created them.
func (s *server) write(ctx context.Context, key fleet.ObjectKey, m ObjectParams, body []byte) (postgres.Write, error) {
	c := serve.CallOf(ctx)
	w := postgres.Write{Key: key, Region: fleet.RegionName(m.Region), AllProjects: c.Project == "", Request: postgres.Request{Project: c.Project, Actor: c.Actor, Limit: s.limit, DryRun: m.DryRun}}
	var err error
	if w.IfMatch, err = ifMatch(m.IfMatch); err != nil {
		return w, err
	}
	if m.IdempotencyKey != "" {
		w.Idempotency = postgres.Idempotency{Key: m.IdempotencyKey, Hash: serve.RequestHash(c.Request, body)}
	}
	if w.Region != "" && !key.Kind.Declared().Shared {
		return w, s.store.Elsewhere(ctx, fleet.CopyKey{Region: w.Region, ObjectKey: key})
	}
	return w, nil
}

// ifMatch reads the resource version that a change is bound to, 0 for none.
func ifMatch(header string) (int64, error) {
	switch header {
	case "":
		return 0, nil
	case "*":
		return postgres.AnyVersion, nil
	}
	text := header
	if len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"' {
		text = text[1 : len(text)-1]
	}
	version, err := strconv.ParseInt(text, 10, 64)
	if err != nil || version <= 0 || strconv.FormatInt(version, 10) != text {
		return 0, fleet.Errorf(fleet.Invalid, "invalid ETag").At("If-Match").
			WithHint(`send one ETag as returned, for example "42", or *`)
	}
	return version, nil
}

func etagOf(o *fleet.Object) string {
	if o == nil {
		return ""
	}
	return serve.Quoted(strconv.FormatInt(o.ResourceVersion, 10))
}

// projectNamed is the project that an object is written in, whether it is declared or not.
func projectNamed(ctx context.Context, declared string) (fleet.ProjectName, error) {
	c := serve.CallOf(ctx)
	project := cmp.Or(fleet.ProjectName(declared), c.Project, fleet.DefaultProject)
	if err := fleet.ValidateName("/project", string(project)); err != nil {
		return "", err
	}
	if !c.Sees(project) {
		return "", fleet.Errorf(fleet.Denied, "the token is restricted to project %s", c.Project).At("/project")
	}
	return project, nil
}

// projectOf is the project that an object is written in, which must be there. That of an object of another region is known there.
func (s *server) projectOf(ctx context.Context, named string, born fleet.RegionName) (fleet.ProjectName, error) {
	project, err := projectNamed(ctx, named)
	if err != nil {
		return project, err
	}
	return project, s.maker.CheckProject(ctx, declaration.Of{CopyKey: fleet.CopyKey{Region: born}, Project: project, By: serve.CallOf(ctx).Project})
}

// beside is what a declaration says beside its spec.
type beside struct {
	project, service string
	labels           map[string]string
}

// declare makes the store's write of a declaration, in a project that is there, before bodies are stored for it.
func (s *server) declare(ctx context.Context, key fleet.ObjectKey, m ObjectParams, body []byte, says beside) (postgres.Write, declaration.Of, error) {
	w, err := s.write(ctx, key, m, body)
	if err != nil {
		return w, declaration.Of{}, err
	}
	w.Project, err = s.projectOf(ctx, says.project, w.Region)
	w.Labels, w.Service = says.labels, says.service
	return w, ofWrite(ctx, w), err
}

// ofWrite is the object of a write for the maker.
func ofWrite(ctx context.Context, w postgres.Write) declaration.Of {
	return declaration.Of{CopyKey: fleet.CopyKey{Region: w.Region, ObjectKey: w.Key}, Project: w.Project, By: serve.CallOf(ctx).Project}
}
