package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
)

// DoorHTTP is what refusals of the API are written down under.
const DoorHTTP = serve.Door

// Handler is the API. It also makes the revisions of specs for whom no request came by
// HTTP: the doors of any Temporal client.
type Handler struct {
	http.Handler
	s *server
}

// Probes is what watches a process: /healthz, /readyz and /metrics, for one that does not serve
// the API.
func (h *Handler) Probes() http.Handler {
	probes := http.NewServeMux()
	probes.HandleFunc("GET /healthz", h.s.healthz)
	probes.HandleFunc("GET /readyz", h.s.readyz)
	probes.Handle("GET /metrics", h.s.MetricsHandler())
	return probes
}

// Unreleased gives the change that a deploy of an instance releases when its spec was only
// written so far. The caller has the operator role: who may start workflows has it.
func (h *Handler) Unreleased(ctx context.Context, key fleet.ObjectKey, actor string) (*deliveries.InstanceChange, error) {
	return h.s.unreleased(ctx, deliveries.InstanceTurn{
		Write: postgres.Write{Key: key, Request: postgres.Request{Actor: actor, Limit: h.s.limit}}, Kind: fleet.OperationDeploy,
	})
}

// TurnDeployment asks something of a deployment for a door, as a request by HTTP does.
func (h *Handler) TurnDeployment(ctx context.Context, t deployments.DeploymentTurn) (postgres.Started, error) {
	o, err := h.s.store.GetObject(ctx, t.Key)
	if err != nil && fleet.KindOf(err) != fleet.NotFound { // a repeat of a delete that succeeded finds none
		return postgres.Started{}, err
	}
	return h.s.startTurn(ctx, t, o)
}

// RollBack releases the whole spec of an earlier revision of a deployment, as a request by HTTP does.
func (h *Handler) RollBack(ctx context.Context, t deployments.DeploymentTurn, revision int64) (postgres.Started, error) {
	o, err := h.s.store.GetObject(ctx, t.Key)
	if err != nil {
		return postgres.Started{}, err
	}
	return h.s.startRollback(ctx, t, o, revision)
}
