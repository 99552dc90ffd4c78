package plans

import (
	"bytes"
	"context"
	"errors"
	"mime"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-io/holdfast/internal/decode"
	split "github.com/holdfast-io/holdfast/internal/documents"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
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
	ApplySet string `query:"applySet" maxLength:"63" format:"name" doc:"where the body has no place for it, because it is YAML"`
	Prune    bool   `query:"prune" doc:"likewise"`
	Reason   string `query:"reason" maxLength:"1024" doc:"likewise"`
}

// withMany reads a request of many objects: JSON, or a stream of YAML documents that each
// are one object. The request lies in memory until f returns.
func (s *Calls) withMany(ctx context.Context, in ManyParams, f func(r *planRequest, raw []byte) error) error {
	limit, read := s.planLimit(), s.readPlan
	media, _, err := mime.ParseMediaType(serve.CallOf(ctx).Request.Header.Get("Content-Type"))
	isYAML := err == nil && media == mediaYAML
	if isYAML {
		limit = maxYAML
		read = func(raw []byte) (*planRequest, error) { return s.readYAML(ctx, raw, in) }
	}
	return inParts(s.WithBody(ctx, limit, func(raw []byte) error {
		if !isYAML && (in.ApplySet != "" || in.Prune || in.Reason != "") {
			return fleet.Errorf(fleet.Invalid, "with JSON, give applySet, prune and reason in the body").At("applySet")
		}
		r, err := read(raw)
		if err != nil {
			return err
		}
		r.deploy = in.Deploy
		if err := r.check(); err != nil {
			return err
		}
		return f(r, raw)
	}))
}

// readYAML makes JSON of a stream first. The share that this takes is given back before
// anything else is asked for one.
func (s *Calls) readYAML(ctx context.Context, raw []byte, in ManyParams) (*planRequest, error) {
	var text []byte
	err := s.Maker.Budget.Do(ctx, yamlWeight*int64(len(raw))+split.AliasRoom, func() (err error) {
		text, err = fromYAML(raw, s.planLimit())
		return err
	})
	if err != nil {
		return nil, err
	}
	r, err := s.readPlan(text)
	if err == nil {
		r.head.ApplySet, r.head.Prune, r.head.Reason = in.ApplySet, in.Prune, in.Reason
	}
	return r, err
}

// inParts says what helps against a request that is too long.
func inParts(err error) error {
	var e *fleet.Error
	if fleet.KindOf(err) == fleet.TooLarge && errors.As(err, &e) {
		return e.WithHint("send the objects in parts, large YAML as JSON, and large content as artifacts")
	}
	return err
}

// fromYAML writes a stream of documents as the JSON of a request. Aliases can make it longer
// than the stream.
func fromYAML(raw []byte, limit int64) ([]byte, error) {
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
		if int64(out.Len()) > limit {
			return nil, decode.TooLarge(limit)
		}
	}
	out.WriteString(`]}`)
	return out.Bytes(), nil
}

// alsoYAML adds YAML to the document of an operation.
func (s *Calls) alsoYAML(op huma.Operation) {
	content := s.Document().Paths[op.Path].Post.RequestBody.Content
	content[mediaYAML] = &huma.MediaType{Schema: &huma.Schema{
		Type: huma.TypeString, Description: "a stream of documents, each a Manifest; the rest of the request goes as query values",
	}}
}
