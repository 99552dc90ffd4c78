package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

func (s *server) applyPolicy(ctx context.Context, w postgres.Write, _ emptyBody) (postgres.Operation, error) {
	if _, err := s.visible(ctx, w.Key); err != nil {
		return postgres.Operation{}, err
	}
	return s.store.AskPolicy(ctx, policies.PolicyRequest{Request: w.Request, Holder: w.Key})
}

func (s *server) handOver(ctx context.Context, w postgres.Write, in api.HandOverRequest) (postgres.Operation, error) {
	if err := fleet.ValidateName("/to", in.To); err != nil {
		return postgres.Operation{}, err
	}
	if _, err := s.named(ctx, fleet.CopyKey{ObjectKey: w.Key}); err != nil {
		return postgres.Operation{}, err
	}
	return s.store.AskHandOver(ctx, policies.HandOverRequest{Request: w.Request, Holder: w.Key, To: fleet.RegionName(in.To), Force: in.Force})
}

// wakePolicy hurries the entity of a holder that was changed; the outbox makes it sure.
func (s *server) wakePolicy(ctx context.Context, w postgres.Written, m MutationParams) {
	if w.Before != nil && w.After != nil && w.Changed && !m.DryRun && w.After.Kind.Declared().Holder {
		s.wake(ctx, fleet.PolicySubject(w.After.ObjectKey))
	}
}
