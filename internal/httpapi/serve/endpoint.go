package serve

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Endpoint is one operation of the document.
func Endpoint(method, path, id, summary string) huma.Operation {
	return huma.Operation{Method: method, Path: path, OperationID: id, Summary: summary, Tags: []string{tagOf(path)}}
}

func tagOf(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/api/v1/"), "/")
	if len(parts) > 2 && parts[2] == "instances" {
		return parts[2]
	}
	return parts[0]
}

// Register mounts an operation whose answer is JSON. Bodies are read by the handlers, which
// know how large they may be.
func Register[I, O any](s *Server, a Access, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	op.Middlewares = huma.Middlewares{s.allow(a), s.checkQuery}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		ctx, err := narrowed(ctx, in)
		var out *O
		if err == nil {
			out, err = handle(ctx, in)
		}
		if err != nil {
			return nil, s.Problem(CallOf(ctx).Request, err)
		}
		return out, nil
	})
}

// InProject narrows a request for one object to its project: those of other projects do not exist for it, as for a token
// of that project.
type InProject struct {
	Project string `query:"project" maxLength:"63" format:"name" doc:"of the object; one of another project is not found"`
}

func (p InProject) project() fleet.ProjectName { return fleet.ProjectName(p.Project) }

// narrowed gives the context of a request with what its input narrows it to.
func narrowed(ctx context.Context, in any) (context.Context, error) {
	narrow, can := in.(interface{ project() fleet.ProjectName })
	if !can || narrow.project() == "" {
		return ctx, nil
	}
	c := *CallOf(ctx)
	if !c.Sees(narrow.project()) {
		return ctx, fleet.Errorf(fleet.Denied, "the token is restricted to project %s", c.Project).At("project")
	}
	c.Project = narrow.project()
	return context.WithValue(ctx, callKey{}, &c), nil
}

// Takes adds the body of an operation to the document.
func Takes[T any](s *Server, op huma.Operation) {
	schema := s.Document().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	s.TakesMedia(op, "application/json", schema)
}

// TakesMedia adds a body of another media type than JSON.
func (s *Server) TakesMedia(op huma.Operation, media string, schema *huma.Schema) {
	item := s.Document().Paths[op.Path]
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

// Stream mounts an operation that reads or writes something else than one JSON document.
func (s *Server) Stream(a Access, op huma.Operation, handle func(w http.ResponseWriter, r *http.Request) error) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK)}}
	}
	s.Document().AddOperation(&op)
	s.router.Method(op.Method, op.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := CallOf(r.Context()).May(a)
		if err == nil {
			err = checkQuery(&op, *r.URL)
		}
		if err == nil {
			err = handle(w, r)
		}
		if err != nil {
			s.Refuse(w, r, err)
		}
	}))
}

// QueryParam is a query value of a stream, which checkQuery judges by its schema.
func QueryParam(name, doc string, schema huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: &schema}
}

// Formatted is a text of one of the formats of query.go.
func Formatted(format string) huma.Schema { return huma.Schema{Type: huma.TypeString, Format: format} }

// PathParam is a part of the path of a stream.
func PathParam(name string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
}

// RequestHash tells whether a key comes with the same request again.
func RequestHash(r *http.Request, body []byte) []byte {
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.Query().Encode()} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	h.Write(body)
	return h.Sum(nil)
}
