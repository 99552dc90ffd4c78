package httpapi

import (
	"cmp"
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
)

// declarer makes the checked declaration of a body. Its errors name places in the body.
type declarer[P any] func(P) (declare.Plain, error)

type putPlainInput struct {
	NameParam
	ObjectParams
	CreateParams
	Project string `query:"project" maxLength:"63" format:"name" doc:"where the body names none"`
}

// mountPlain mounts the PUT of a plain kind.
func mountPlain[P any](summary string, of declarer[P]) func(*server, fleet.DeclaredKind) {
	return func(s *server, k fleet.DeclaredKind) {
		op := serve.Endpoint(http.MethodPut, "/api/v1/"+k.Plural+"/{name}", "put-"+string(k.Kind), summary)
		serve.Register(s.Server, s.plans.Kinds[k.Kind].Writers, op, func(ctx context.Context, in *putPlainInput) (*acceptedOutput, error) {
			return putPlain(ctx, s, k.Kind, in, of)
		})
		serve.Takes[P](s.Server, op)
	}
}

func putPlain[P any](
	ctx context.Context, s *server, kind fleet.ObjectKind, in *putPlainInput, of declarer[P],
) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	var put P
	raw, err := s.ReadJSON(ctx, &put)
	if err != nil {
		return nil, err
	}
	d, err := of(put)
	if err != nil {
		return nil, err
	}
	if err := fleet.ValidateLabels("/labels", d.Labels); err != nil {
		return nil, err
	}
	w, err := s.write(ctx, fleet.ObjectKey{Kind: kind, Name: in.Name}, in.ObjectParams, raw)
	if err != nil {
		return nil, err
	}
	if err := in.bind(&w); err != nil {
		return nil, err
	}
	if w.Project, err = projectNamed(ctx, cmp.Or(d.Project, in.Project)); err != nil {
		return nil, err
	}
	if err := s.maker.CheckReferences(ctx, ofWrite(ctx, w), d.Spec); err != nil {
		return nil, err
	}
	w.Labels, w.Service = d.Labels, d.Service
	written, err := s.store.Declare(ctx, w, d.Spec)
	if err != nil {
		return nil, err
	}
	s.wakePolicy(ctx, written, in.MutationParams)
	return declared(written, in.MutationParams), nil
}
