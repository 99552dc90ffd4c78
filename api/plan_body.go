package api

import (
	"bytes"
	"context"
	"errors"
	"mime"

	"github.com/danielgtaylor/huma/v2"

	split "github.com/holdfast-io/holdfast/internal/documents"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

const (
	mediaYAML = "application/yaml"
	// maxYAML is the longest YAML; reading it takes many times its size.
	maxYAML = 8 << 20
	// yamlWeight is how many times.
	yamlWeight = 16
)

// ManyParams come with a request of many objects.
type ManyParams struct {
	Deploy   bool   `query:"deploy" default:"true" doc:"false writes specs and releases nothing"`
	ApplySet string `query:"applySet" maxLength:"63" doc:"where the body has no place for it, because it is YAML"`
	Prune    bool   `query:"prune" doc:"likewise"`
	Reason   string `query:"reason" maxLength:"1024" doc:"likewise"`
}

// withMany reads a request of many objects: JSON, or a stream of YAML documents that each
// are one object. The request lies in memory until f returns.
func (s *server) withMany(ctx context.Context, in ManyParams, f func(r *planRequest, raw []byte) error) error {
	media, _, err := mime.ParseMediaType(callOf(ctx).r.Header.Get("Content-Type"))
	if err == nil && media == mediaYAML {
		return inParts(s.withBody(ctx, maxYAML, func(raw []byte) error {
			return s.flatten.Do(ctx, yamlWeight*int64(len(raw)), func() error {
				text, err := fromYAML(raw)
				if err != nil {
					return err
				}
				r, err := readPlan(text)
				if err != nil {
					return err
				}
				r.head.ApplySet, r.head.Prune, r.head.Reason, r.deploy = in.ApplySet, in.Prune, in.Reason, in.Deploy
				return cmpErr(r.check(), func() error { return f(r, raw) })
			})
		}))
	}
	return inParts(s.withBody(ctx, s.planLimit(), func(raw []byte) error {
		if in.ApplySet != "" || in.Prune || in.Reason != "" {
			return fleet.Errorf(fleet.Invalid, "with JSON, applySet, prune and reason stand in the body").At("applySet")
		}
		r, err := readPlan(raw)
		if err != nil {
			return err
		}
		r.deploy = in.Deploy
		return cmpErr(r.check(), func() error { return f(r, raw) })
	}))
}

func cmpErr(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// inParts says what helps against a request that is too long.
func inParts(err error) error {
	var e *fleet.Error
	if fleet.KindOf(err) == fleet.TooLarge && errors.As(err, &e) {
		return e.WithHint("send the objects in parts, large YAML as JSON, and large content as artifacts")
	}
	return err
}

// fromYAML writes a stream of documents as the JSON of a request.
func fromYAML(raw []byte) ([]byte, error) {
	all, err := split.YAML("line", ".", raw)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "%w", err).At("/")
	}
	var out bytes.Buffer
	out.WriteString(`{"objects":[`)
	for i, d := range all {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(d.Data)
	}
	out.WriteString(`]}`)
	return out.Bytes(), nil
}

// alsoYAML adds YAML to the document of an operation.
func (s *server) alsoYAML(op huma.Operation) {
	content := s.api.OpenAPI().Paths[op.Path].Post.RequestBody.Content
	content[mediaYAML] = &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Description: "a stream of documents, each a Manifest; the rest of the request goes as query values",
	}}
}
