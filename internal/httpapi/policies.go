package httpapi

import (
	"cmp"
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/policies"
)

func (s *server) applyPolicy(ctx context.Context, w postgres.Write, _ emptyBody) (postgres.Operation, error) {
	if err := s.here(ctx, w); err != nil {
		return postgres.Operation{}, err
	}
	return s.store.AskPolicy(ctx, policies.PolicyRequest{Request: w.Request, Holder: w.Key, Region: w.Region})
}

func (s *server) handOver(ctx context.Context, w postgres.Write, in api.HandOverRequest) (postgres.Operation, error) {
	if err := fleet.ValidateName("/to", in.To); err != nil {
		return postgres.Operation{}, err
	}
	if err := s.here(ctx, w); err != nil {
		return postgres.Operation{}, err
	}
	return s.store.AskHandOver(ctx, policies.HandOverRequest{Request: w.Request, Holder: w.Key, Region: w.Region, To: fleet.RegionName(in.To), Force: in.Force})
}

// here refuses a request for an object that this region does not have, or the caller may not see.
func (s *server) here(ctx context.Context, w postgres.Write) error {
	key := fleet.CopyKey{Region: w.Region, ObjectKey: w.Key}
	_, err := s.named(ctx, key)
	if fleet.KindOf(err) != fleet.NotFound {
		return err
	}
	return cmp.Or(s.store.Elsewhere(ctx, key), err)
}

// wakePolicy hurries the entity of a holder that was changed; the outbox makes it sure.
func (s *server) wakePolicy(ctx context.Context, w postgres.Written, m MutationParams) {
	if w.Before != nil && w.After != nil && w.Changed && !m.DryRun && w.After.Kind.Declared().Holder {
		s.wake(ctx, fleet.PolicySubject(w.After.ObjectKey))
	}
}
