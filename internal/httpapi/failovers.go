package httpapi

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func (s *server) failoverSite(ctx context.Context, w postgres.Write, in api.FailoverRequest) (postgres.Operation, error) {
	if in.To != "" {
		if err := fleet.ValidateName("/to", in.To); err != nil {
			return postgres.Operation{}, err
		}
	}
	if _, err := s.visible(ctx, w.Key); err != nil {
		return postgres.Operation{}, err
	}
	w.Limit = s.failover
	return s.store.AskFailover(ctx, nodes.FailoverRequest{
		Request: w.Request, Site: fleet.SiteName(w.Key.Name), To: fleet.NodeName(in.To), Force: in.Force,
	})
}
