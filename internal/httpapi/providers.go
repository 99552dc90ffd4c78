package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type providersOutput struct{ Body api.List[api.Provider] }

type providerOutput struct{ Body api.Provider }

type providerInput struct {
	ConnectionID string `path:"connectionId"`
}

type drainInput struct {
	ConnectionID string `path:"connectionId"`
	MutationParams
}

func (s *server) mountProviders() {
	list := serve.Endpoint(http.MethodGet, "/api/v1/providers", "list-providers", "List the live connections of providers, nodes among them")
	serve.Register(s.Server, serve.ForRegionViewers, list, s.listProviders)
	get := serve.Endpoint(http.MethodGet, "/api/v1/providers/{connectionId}", "get-provider", "Read a live connection")
	serve.Register(s.Server, serve.ForRegionViewers, get, s.getProvider)
	drain := serve.Endpoint(http.MethodPost, "/api/v1/providers/{connectionId}/drain", "drain-provider", "Have a provider finish what it has and close")
	drain.DefaultStatus = http.StatusAccepted
	serve.Register(s.Server, serve.ForRegionOperators, drain, s.drainProvider)
	serve.Takes[api.DrainRequest](s.Server, drain)
}

func (s *server) listProviders(ctx context.Context, in *listInput) (*providersOutput, error) {
	after, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListConnections(ctx, "", after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(c nodes.Connection) string { return string(c.ID) })
	out := &providersOutput{Body: api.List[api.Provider]{Items: make([]api.Provider, len(cut.Items)), Next: cut.Next}}
	for i, c := range cut.Items {
		out.Body.Items[i] = providerView(c)
	}
	return out, nil
}

func (s *server) getProvider(ctx context.Context, in *providerInput) (*providerOutput, error) {
	c, err := s.liveConnection(ctx, in.ConnectionID)
	if err != nil {
		return nil, err
	}
	return &providerOutput{Body: providerView(c)}, nil
}

func (s *server) liveConnection(ctx context.Context, id string) (nodes.Connection, error) {
	missing := fleet.Errorf(fleet.NotFound, "live connection %.40q not found", id).At("connectionId").
		WithHint("holdfast get providers; a reconnected provider has a new id")
	if !fleet.ValidID(id) {
		return nodes.Connection{}, missing
	}
	rows, err := s.store.ListConnections(ctx, fleet.ConnectionID(id), "", 1)
	if err != nil || len(rows) == 0 {
		if err == nil {
			err = missing
		}
		return nodes.Connection{}, err
	}
	return rows[0], nil
}

const (
	defaultDrain = int64(30)
	maxDrain     = int64(24 * 3600)
)

func (s *server) drainProvider(ctx context.Context, in *drainInput) (*providerOutput, error) {
	var req api.DrainRequest
	if _, err := s.ReadOptional(ctx, &req); err != nil {
		return nil, err
	}
	if req.DeadlineSeconds == 0 {
		req.DeadlineSeconds = defaultDrain
	}
	switch {
	case req.DeadlineSeconds < 0 || req.DeadlineSeconds > maxDrain:
		return nil, fleet.Errorf(fleet.Invalid, "invalid deadline: want 1 to %d seconds", maxDrain).At("/deadlineSeconds")
	case len(req.Reason) > declare.MaxReason:
		return nil, fleet.Errorf(fleet.Invalid, "the reason has %d bytes; the limit is %d", len(req.Reason), declare.MaxReason).At("/reason")
	case req.Reason == "":
		req.Reason = "requested by " + serve.CallOf(ctx).Actor
	}
	c, err := s.liveConnection(ctx, in.ConnectionID)
	if err != nil {
		return nil, err
	}
	if !in.DryRun {
		modules := c.Modules
		if c, err = s.store.AskDrain(ctx, c.ID, req.Reason, time.Duration(req.DeadlineSeconds)*time.Second); err != nil {
			return nil, err
		}
		c.Modules = modules
	}
	return &providerOutput{Body: providerView(c)}, nil
}

func providerView(c nodes.Connection) api.Provider {
	p := api.Provider{
		ID: c.ID, Provider: string(c.Provider), Identity: c.Identity, Node: string(c.Node),
		ModuleNamespace: string(c.Namespace), Group: string(c.Group), Executor: c.Executor,
		State: c.State, TakesWork: c.TakesWork(), Since: c.RegisteredAt, RegisteredAt: c.RegisteredAt,
		HeartbeatAt: c.HeartbeatAt, InFlight: c.InFlight, Server: c.Server,
	}
	for _, m := range c.Modules {
		p.Modules = append(p.Modules, string(m.Name))
	}
	if c.ActiveAt != nil {
		p.Since = *c.ActiveAt
	}
	if c.Drain == nil {
		return p
	}
	p.Drain = &api.ProviderDrain{
		Reason: c.Drain.Reason, AskedAt: c.Drain.AskedAt, AckedAt: c.Drain.AckedAt, Deadline: c.Drain.Deadline, Waits: "ack",
	}
	if at := c.Drain.AckedAt; at != nil {
		p.Since, p.Drain.Waits = *at, "in_flight"
		if c.InFlight == 0 {
			p.Drain.Waits = "close"
		}
	}
	return p
}

type refusalsInput struct {
	ListParams
	Identity string `query:"identity" maxLength:"200" doc:"only those that node:NAME or token:ID got, or that the node gave"`
}

type refusalsOutput struct{ Body api.List[api.Refusal] }

func (s *server) mountRefusals() {
	list := serve.Endpoint(http.MethodGet, "/api/v1/refusals", "list-refusals", "List what identities asked for and may not have, newest first")
	serve.Register(s.Server, serve.ForAdmins, list, s.listRefusals)
}

func (s *server) listRefusals(ctx context.Context, in *refusalsInput) (*refusalsOutput, error) {
	place, err := placeOf(in.Cursor)
	if err != nil {
		return nil, err
	}
	before := int64(0)
	if place != "" {
		if before, err = strconv.ParseInt(place, 10, 64); err != nil || before <= 0 {
			return nil, badCursor(place)
		}
	}
	rows, err := s.store.ListRefusals(ctx, in.Identity, before, in.Limit+1)
	if err != nil {
		return nil, err
	}
	cut := page(rows, in.Limit, func(r postgres.Refusal) string { return strconv.FormatInt(r.ID, 10) })
	out := &refusalsOutput{Body: api.List[api.Refusal]{Items: make([]api.Refusal, len(cut.Items)), Next: cut.Next}}
	for i, r := range cut.Items {
		out.Body.Items[i] = api.Refusal{At: r.At, Door: r.Door, Identity: r.Identity, Reason: r.Reason, What: r.What, By: r.By, Times: r.Times}
	}
	return out, nil
}
