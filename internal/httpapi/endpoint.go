package httpapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

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
func register[I, O any](s *core, a access, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	op.Middlewares = huma.Middlewares{s.allow(a), s.checkQuery}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(callOf(ctx).request, err)
		}
		return out, nil
	})
}

// takes adds the body of an operation to the document.
func takes[T any](s *core, op huma.Operation) {
	schema := s.document().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")
	s.takesMedia(op, "application/json", schema)
}

func (s *core) takesMedia(op huma.Operation, media string, schema *huma.Schema) {
	item := s.document().Paths[op.Path]
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
func (s *core) stream(a access, op huma.Operation, handle func(w http.ResponseWriter, r *http.Request) error) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK)}}
	}
	s.document().AddOperation(&op)
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

// requestHash tells whether a key comes with the same request again.
func requestHash(r *http.Request, body []byte) []byte {
	h := sha256.New()
	for _, part := range []string{r.Method, r.URL.EscapedPath(), r.URL.Query().Encode()} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	h.Write(body)
	return h.Sum(nil)
}
