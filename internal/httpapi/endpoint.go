package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// MutationParams come with every change.
type MutationParams struct {
	IfMatch        string `header:"If-Match" doc:"the ETag that the object must still have, or * for any that exists"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"200" doc:"the same key again is the same change"`
	DryRun         bool   `query:"dryRun" doc:"check everything, change nothing"`
}

// ListParams come with every list.
type ListParams struct {
	Limit   int32  `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor  string `query:"cursor" maxLength:"512" format:"cursor" doc:"next of the page before"`
	Project string `query:"project" maxLength:"63" format:"name" doc:"only what belongs to this project"`
}

// endpoint is one operation of the document.
func endpoint(method, path, id, summary string) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tagOf(path)}}
}

func tagOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if len(parts) > 2 && parts[2] == "instances" {
		return parts[2]
	}
	return parts[0]
}

// register mounts an operation whose answer is JSON. Bodies are read by the handlers, which
// know how large they may be.
func register[I, O any](s *server, a access, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	op.Middlewares = huma.Middlewares{s.allow(a), s.checkQuery}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(callOf(ctx).r, err)
		}
		return out, nil
	})
}

// takes adds the body of an operation to the document.
func takes[T any](s *server, op huma.Operation) {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	s.takesMedia(op, "application/json", schema)
}

func (s *server) takesMedia(op huma.Operation, media string, schema *huma.Schema) {
	item := s.api.OpenAPI().Paths[op.Path]
	body := &huma.RequestBody{Content: map[string]*huma.MediaType{media: {Schema: schema}}}
	switch op.Method {
	case http.MethodPut:
		body.Required = true
		item.Put.RequestBody = body
	case http.MethodPost:
		item.Post.RequestBody = body
	case http.MethodPatch:
		body.Required = true
		item.Patch.RequestBody = body
	}
}

// stream mounts an operation that reads or writes something else than one JSON document.
func (s *server) stream(a access, op huma.Operation, handle func(w http.ResponseWriter, r *http.Request) error) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK)}}
	}
	s.api.OpenAPI().AddOperation(&op)
	s.router.Method(op.Method, op.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := callOf(r.Context()).may(a)
		if err == nil {
			err = checkQuery(&op, *r.URL)
		}
		if err == nil {
			err = handle(w, r)
		}
		if err != nil {
			s.refuse(w, r, err)
		}
	}))
}

// queryParam is a query value of a stream, which checkQuery judges by its schema.
func queryParam(name, doc string, schema huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: &schema}
}

func formatted(format string) huma.Schema { return huma.Schema{Type: huma.TypeString, Format: format} }

func pathParam(name string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
}

// write makes the store's write of a mutation.
func (s *server) write(ctx context.Context, key fleet.ObjectKey, m MutationParams, body []byte) (postgres.Write, error) {
	c := callOf(ctx)
	w := postgres.Write{Key: key, Request: postgres.Request{Project: c.project, Actor: c.actor, Limit: s.limit, DryRun: m.DryRun}}
	var err error
	if w.IfMatch, err = ifMatch(m.IfMatch); err != nil {
		return w, err
	}
	if m.IdempotencyKey != "" {
		w.Idempotency = postgres.Idempotency{Key: m.IdempotencyKey, Hash: requestHash(c.r, body)}
	}
	return w, nil
}

// requestHash tells whether a key comes with the same request again.
func requestHash(r *http.Request, body []byte) []byte {
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.Query().Encode()} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	h.Write(body)
	return h.Sum(nil)
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
	return quoted(strconv.FormatInt(o.ResourceVersion, 10))
}

func quoted(s string) string { return `"` + s + `"` }

// projectOf is the project that an object is written in.
func (s *server) projectOf(ctx context.Context, declared string) (fleet.ProjectName, error) {
	c := callOf(ctx)
	project := fleet.ProjectName(declared)
	if project == "" {
		project = c.project
	}
	if project == "" || project == defaultProject && c.project == "" {
		return defaultProject, nil
	}
	if err := fleet.ValidateName("/project", string(project)); err != nil {
		return "", err
	}
	if !c.sees(project) {
		return "", fleet.Errorf(fleet.Denied, "the token is restricted to project %s", c.project).At("/project")
	}
	_, err := s.store.GetObject(ctx, fleet.ObjectKey{Kind: fleet.KindProject, Name: string(project)})
	if fleet.KindOf(err) == fleet.NotFound {
		err = fleet.Errorf(fleet.NotFound, "project %s not found", project).At("/project").
			WithHint("declare it first: PUT /api/v1/projects/" + string(project))
	}
	return project, err
}

// listProject is the project that a list is narrowed to, "" for all.
func listProject(ctx context.Context, asked string) (fleet.ProjectName, error) {
	c := callOf(ctx)
	project := fleet.ProjectName(asked)
	if project == "" {
		return c.project, nil
	}
	if !c.sees(project) {
		return "", fleet.Errorf(fleet.Denied, "the token is restricted to project %s", c.project).At("project")
	}
	return project, nil
}

// cursorOf makes a place in a list opaque, so that clients do not build one.
func cursorOf(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

func placeOf(cursor string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", fleet.Errorf(fleet.Invalid, "invalid cursor %.40q: want %s", cursor, wantCursor).At("cursor")
	}
	return string(b), nil
}

// badCursor refuses a place that is of no list, or of another one.
func badCursor(place string) error {
	return fleet.Errorf(fleet.Invalid, "invalid cursor %.40q: want %s, of the same list", cursorOf(place), wantCursor).At("cursor")
}

// page cuts a list that was asked for with one more than the limit.
func page[T any](items []T, limit int32, place func(T) string) api.List[T] {
	l := api.List[T]{Items: items}
	if items == nil {
		l.Items = []T{}
	}
	if len(items) > int(limit) {
		l.Items = items[:limit]
		l.Next = cursorOf(place(items[limit-1]))
	}
	return l
}
