package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type failoverInput struct {
	NameParam
	AskParams
}

func (s *server) mountFailovers() {
	op := serve.Endpoint(http.MethodPost, "/api/v1/sites/{name}/failover", "failover-site", "Make another node the active one of a site")
	op.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForOperators, op, s.failoverSite)
	serve.Takes[api.FailoverRequest](s.Server, op)
}

func (s *server) failoverSite(ctx context.Context, in *failoverInput) (*acceptedOutput, error) {
	if err := fleet.ValidateName("name", in.Name); err != nil {
		return nil, err
	}
	var body api.FailoverRequest
	raw, err := s.ReadOptional(ctx, &body)
	if err != nil {
		return nil, err
	}
	if body.To != "" {
		if err := fleet.ValidateName("/to", body.To); err != nil {
			return nil, err
		}
	}
	if _, err := s.visible(ctx, fleet.ObjectKey{Kind: fleet.KindSite, Name: in.Name}); err != nil {
		return nil, err
	}
	req, err := s.ask(ctx, in.AskParams, raw, s.failover)
	if err != nil {
		return nil, err
	}
	op, err := s.store.AskFailover(ctx, nodes.FailoverRequest{
		Request: req, Site: fleet.SiteName(in.Name), To: fleet.NodeName(body.To), Force: body.Force,
	})
	if err != nil {
		return nil, err
	}
	return s.askedOutput(ctx, op, in.DryRun), nil
}
