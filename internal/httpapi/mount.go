package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/declare"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi/machines"
	"github.com/holdfast-io/holdfast/internal/httpapi/plans"
	"github.com/holdfast-io/holdfast/internal/httpapi/serve"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/watch"
)

// New builds the handler of the whole API.
func New(d Deps) (*Handler, error) {
	s, err := newServer(d)
	if err != nil {
		return nil, err
	}
	routes, err := s.routes(d.Region)
	return &Handler{Handler: routes, s: s}, err
}

func newServer(d Deps) (*server, error) {
	if d.Store == nil || d.Waker == nil || d.NodeStarted == nil || d.Flatten == nil || d.Now == nil || d.Log == nil {
		return nil, fleet.Errorf(fleet.Internal, "the API needs Store, Waker, NodeStarted, Flatten, Now and Log")
	}
	if d.PendingTTL <= 0 || d.OperationLimit <= 0 {
		return nil, fleet.Errorf(fleet.Invalid, "the pending TTL and the operation limit must be positive")
	}
	if d.OperationEnds == nil {
		d.OperationEnds = func(context.Context, fleet.OperationID) <-chan struct{} { return nil }
	}
	if d.Ready == nil {
		d.Ready = func(context.Context) error { return nil }
	}
	if d.Refused == nil {
		d.Refused = func(audit.Refusal) {}
	}
	if d.Metrics == nil {
		d.Metrics = prometheus.NewRegistry()
	}
	maker := declaration.New(d.Store, fleet.RegionName(d.Region), d.Definitions, d.Flatten, d.Limits)
	c, err := serve.New(serve.Deps{
		Now: d.Now, Log: d.Log, Refused: d.Refused, Tokens: d.Store, Metrics: d.Metrics, Largest: maker.Limits.MaxBytes + envelopeRoom,
		AddressOf: addressOf(d.Store),
	})
	if err != nil {
		return nil, err
	}
	s := &server{
		Server: c, store: d.Store, waker: d.Waker, executor: d.Executor, region: fleet.RegionName(d.Region), network: d.Regions,
		declared: fleet.DeclaredKinds(), kinds: kindParts(), maker: maker, turns: declaration.Turns{Maker: maker, Store: d.Store},
		links: links{web: d.WebURL, namespace: d.TemporalNamespace}, limit: d.OperationLimit, failover: cmp.Or(d.FailoverLimit, d.OperationLimit),
		ends: d.OperationEnds, ready: d.Ready, streaming: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_event_streams", Help: "Event streams that are open.",
		}),
		streams: newVigil(d.Store, "event streams", maxEventStreams), waits: newVigil(d.Store, "waits", maxWaits),
		uploading: serve.NewMemory(maxUploads*postgres.ChunkSize, uploadShare*postgres.ChunkSize, c.Stall),
		watched:   watch.NewReader(d.Store, watchPoll), snapshots: make(chan struct{}, maxSnapshots),
		idlePoll: 250 * time.Millisecond, keepAlive: 15 * time.Second, stopping: d.Stopping,
	}
	if err := s.Measure(s.streaming); err != nil {
		return nil, err
	}
	s.machines, err = machines.New(c, machines.Deps{Store: d.Store, Wake: s.wake, NodeStarted: d.NodeStarted, PendingTTL: d.PendingTTL})
	if err != nil {
		return nil, err
	}
	s.plans = plans.New(c, plans.Deps{
		Store: d.Store, Declared: s.declared, Kinds: plans.Kinds(), Maker: maker, OperationLimit: s.limit, Answer: s.answer,
	})
	if d.register != nil {
		d.register(s)
	}
	return s, nil
}

func (s *server) routes(region string) (http.Handler, error) {
	root := chi.NewRouter()
	s.Mount(root, openAPI(region))
	root.Get("/healthz", serve.Open(s.healthz))
	root.Get("/readyz", serve.Open(s.readyz))

	s.mountObjects()
	s.plans.Mount()
	s.mountOperations()
	s.mountModules()
	s.mountNodes()
	s.mountProviders()
	s.mountRefusals()
	s.mountReconciles()
	for _, v := range verbs() {
		v.mount(s, v)
	}
	s.mountCordons()
	s.mountOrphans()
	s.mountTokens()
	s.mountArtifacts()
	s.mountEvents()
	s.mountWatch()
	s.machines.Mount(root)

	document, err := json.Marshal(s.Document())
	if err != nil {
		return nil, fmt.Errorf("write the OpenAPI document: %w", err)
	}
	root.Get("/openapi.json", serve.Open(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // the client is gone when this fails
	}))
	return root, nil
}

func openAPI(region string) huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Holdfast", Version: "v1", Description: "The region " + region + ": what should run where, and what does.",
			},
			Components: &huma.Components{
				Schemas: newSchemas(),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: "an API token; a role and perhaps a project come with it"},
				},
			},
			Security: []map[string][]string{{"token": {}}},
		},
		Formats: map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat},
	}
}

// kindParts has a row for each kind of fleet.DeclaredKinds.
func kindParts() map[fleet.ObjectKind]kindPart {
	return map[fleet.ObjectKind]kindPart{
		fleet.KindOrganization: {mount: mountPlain("Declare an organization", declare.PlainOrganization)},
		fleet.KindService:      {mount: mountPlain("Declare a service of a project", declare.PlainService)},
		fleet.KindProject:      {mount: (*server).mountProjects},
		fleet.KindSite:         {mount: mountPlain("Declare a site and its nodes", declare.PlainSite), status: (*server).siteStatuses},
		fleet.KindPool:         {mount: mountPlain("Declare a pool of nodes", declare.PlainPool)},
		fleet.KindTemplate:     {mount: (*server).mountTemplates},
		fleet.KindInstance:     {mount: (*server).mountInstances, own: true},
		fleet.KindDeployment:   {mount: (*server).mountDeployments, own: true},
		fleet.KindRegion:       {mount: (*server).mountRegions, own: true},
		fleet.KindFleet:        {mount: (*server).mountFleets, status: (*server).fleetStatuses, detail: (*server).fleetDetail},
	}
}
