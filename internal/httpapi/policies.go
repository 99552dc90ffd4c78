package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

type applyPolicyInput struct {
	NameParam
	AskParams
}

// mountPolicies mounts apply-policy for each kind that may carry a policy.
func (s *server) mountPolicies() {
	for _, k := range s.declared {
		if !k.Holder {
			continue
		}
		op := serve.Endpoint(http.MethodPost, "/api/v1/"+k.Plural+"/{name}/apply-policy", "apply-policy-"+string(k.Kind),
			"Apply the policy of this "+string(k.Kind)+" to all that it governs")
		op.DefaultStatus = http.StatusAccepted
		serve.Register(s.Server, serve.ForOperators, op, func(ctx context.Context, in *applyPolicyInput) (*acceptedOutput, error) {
			return s.applyPolicy(ctx, fleet.ObjectKey{Kind: k.Kind, Name: in.Name}, in.AskParams)
		})
	}
}

func (s *server) applyPolicy(ctx context.Context, holder fleet.ObjectKey, in AskParams) (*acceptedOutput, error) {
	if _, err := s.visible(ctx, holder); err != nil {
		return nil, err
	}
	req, err := s.ask(ctx, in, nil, s.limit)
	if err != nil {
		return nil, err
	}
	op, err := s.store.AskPolicy(ctx, policies.PolicyRequest{Request: req, Holder: holder})
	if err != nil {
		return nil, err
	}
	return s.askedOutput(ctx, op, in.DryRun), nil
}

// wakePolicy hurries the entity of a holder that was changed; the outbox makes it sure.
func (s *server) wakePolicy(ctx context.Context, w postgres.Written, m MutationParams) {
	if w.Before != nil && w.After != nil && w.Changed && !m.DryRun && w.After.Kind.Declared().Holder {
		s.wake(ctx, fleet.PolicySubject(w.After.ObjectKey))
	}
}
