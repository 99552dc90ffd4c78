package region

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/compose"
	"github.com/holdfast-io/holdfast/internal/declaration"
	"github.com/holdfast-io/holdfast/internal/definition"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/httpapi"
	"github.com/holdfast-io/holdfast/internal/lease/boottime"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/link/executors"
	"github.com/holdfast-io/holdfast/internal/link/leases"
	"github.com/holdfast-io/holdfast/internal/link/tasks"
	"github.com/holdfast-io/holdfast/internal/peers"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/strangers"
	"github.com/holdfast-io/holdfast/workers"
	"github.com/holdfast-io/holdfast/workflows"
)

// ServerConfig is all that a server process needs.
type ServerConfig struct {
	Region, DatabaseURL string
	// Migrate is who migrates the database; "" is MigrateAuto.
	Migrate                            Migrate
	TemporalAddress, TemporalNamespace string
	// Temporal is how to connect to Temporal.
	Temporal TemporalAccess
	// Listen is host:port; PublicURL is where nodes reach it (default http://Listen).
	Listen, PublicURL string
	// Link is host:port of the link; with "" it is not served.
	Link string
	// TLS is for both listeners; the zero value serves without TLS.
	TLS certs.ServerFiles
	// Executors are the trusted authorities and the client certificate for executors with TLS.
	Executors certs.ClientFiles
	// ExecutorNetworks are where executors may be dialled, besides the address that their provider registered from.
	ExecutorNetworks fleet.ExecutorNetworks
	// Peers is how the region meets other regions.
	Peers PeerConfig
	// Describe is what the region declares of itself.
	Describe fleet.RegionSpec
	// Definitions is a directory of settings merged over the embedded ones of each deployment type; "" for none.
	Definitions string
	// Metrics is host:port of /metrics, /healthz and /readyz for processes of any role, besides the API's; with ""
	// it is not served.
	Metrics string
	// Roles are the roles of this process.
	Roles Roles
	// WebURL is Temporal Web's address for links; "" for no links.
	WebURL string
	// BootstrapToken becomes an admin token if it is set.
	BootstrapToken string
	// Build names the workers' version; "" is BuildID().
	Build string
	// TraceEndpoint accepts OTLP over HTTP, for example http://127.0.0.1:4318; "" for no traces.
	TraceEndpoint string
	// Failpoint is for tests: it is called before and after each database step.
	Failpoint func(name string)
	Timing    Timing
}

// server is one running server process.
type server struct {
	cfg      ServerConfig
	id       string
	log      *slog.Logger
	store    *store.Store
	temporal client.Client
	flows    *workflows.Client
	again    *waker
	ends     *postgres.Ends
	commits  *postgres.Commits
	handler  *httpapi.Handler
	maker    *declaration.Maker
	// definitions generate what replicas run.
	definitions *definition.Registry
	tls         *tls.Config // nil in the clear
	refusals    *audit.Log
	registry    *prometheus.Registry
	metrics     *metrics
	ticks       *ticks
	tracer      *tracer
	serving     atomic.Bool
	link        *link.Server // nil without one
	narrow      *tasks.Server
	modules     *executors.Pool
	votes       *leases.Service
	presence    *presence
	peers       *peers.Network // nil without one
	soon        chan string    // subjects to wake
}

// RunServer opens the database, migrates it, and serves until the context ends.
func RunServer(ctx context.Context, cfg ServerConfig, log *slog.Logger) error {
	if err := cfg.Timing.Keep.Validate(); err != nil {
		return err
	}
	SaveProcessor(serverMemory)
	s, err := openServer(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer s.store.Close()
	defer s.temporal.Close()
	defer s.tracer.close(ctx)
	defer s.modules.Close()
	endAudit := s.audit(ctx)
	defer endAudit()
	group, ctx := errgroup.WithContext(ctx)
	if err := s.startRoles(ctx, group); err != nil {
		return errors.Join(err, group.Wait())
	}
	for _, loop := range []func(context.Context) error{
		s.relay, s.wakeSoon, s.listen, s.beat, s.meetPeers, s.followPeers, s.repairSyncing, s.tellCommits, s.hearCommits, s.hearModules, s.votes.Run,
	} {
		group.Go(func() error { return loop(ctx) })
	}
	group.Go(func() error { return keepRoom(ctx, serverMemory) })
	if err := group.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// audit records refusals until the returned function is called, after everything that refuses has ended: no refusal
// may be lost.
func (s *server) audit(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.refusals.Run(ctx) // it ends only by cancel
	}()
	return func() { cancel(); <-done }
}

func openServer(ctx context.Context, cfg ServerConfig, log *slog.Logger) (*server, error) {
	s := &server{cfg: cfg, log: log, registry: prometheus.NewRegistry()}
	var err error
	if s.definitions, err = readDefinitions(cfg.Definitions); err != nil {
		return nil, err
	}
	if s.tls, err = certs.Server(cfg.TLS, time.Now, log); err != nil {
		return nil, err
	}
	access, err := cfg.Temporal.open(time.Now, log)
	if err != nil {
		return nil, err
	}
	s.nameURLs()
	if s.id, err = postgres.NewID(); err != nil {
		return nil, err
	}
	if s.cfg.Build == "" {
		if s.cfg.Build, err = BuildID(); err != nil {
			return nil, err
		}
	}
	if err := s.openStore(ctx); err != nil {
		return nil, err
	}
	if s.tracer, err = newTracer(ctx, cfg.TraceEndpoint, "holdfast-server"); err != nil {
		return nil, err
	}
	if s.temporal, err = s.dial(access); err != nil {
		return nil, err
	}
	s.flows = &workflows.Client{Temporal: s.temporal, Limits: cfg.Timing.Delivery, Take: cfg.Timing.Link.HeartbeatTimeout}
	s.again = &waker{s.store, s.flows, s.tracer}
	s.ends = postgres.NewEnds(s.store.Store)
	s.presence = newPresence(s.store, s.id, s.cfg, boottime.Now)
	if err := s.measure(); err != nil {
		return nil, err
	}
	if err := s.bootstrap(ctx); err != nil {
		return nil, err
	}
	if _, err := s.store.SigningKey(ctx); err != nil { // made before a node could ask for it
		return nil, err
	}
	if err := errors.Join(s.declareRegion(ctx), s.openPeers(ctx)); err != nil {
		return nil, err
	}
	limits := compose.DefaultLimits()
	s.maker = declaration.New(s.store, fleet.RegionName(s.cfg.Region), s.definitions, compose.NewBudget(flattenShare*int64(limits.MaxBytes)), limits)
	if s.handler, err = s.api(ctx.Done()); err != nil {
		return nil, err
	}
	s.share()
	if err := s.openLink(ctx); err != nil {
		return nil, err
	}
	return s, s.openVotes()
}

// measure registers the metrics.
func (s *server) measure() (err error) {
	if s.metrics, err = newMetrics(s.registry, s.store, s.log); err != nil {
		return err
	}
	if s.refusals, err = audit.NewLog(s.store, s.log, time.Now, s.registry); err != nil {
		return fleet.Errorf(fleet.Internal, "register metrics: %w", err)
	}
	s.store.OnRefusal(s.refusals.Refuse)
	if s.modules, err = newExecutors(s.store, s.registry, s.cfg); err != nil {
		return err
	}
	s.ticks = &ticks{temporal: s.temporal}
	if err := s.registry.Register(s.ticks); err != nil {
		return fleet.Errorf(fleet.Internal, "register metrics: %w", err)
	}
	return nil
}

// serverMemory is where the collector starts to work harder: above what it takes to flatten a config of tens of
// megabytes.
const serverMemory = 256 << 20

// nodeStarted requests a comparison of a node that started and of its peers: what they replicate may have waited
// for it (N54).
func (s *server) nodeStarted(ctx context.Context, node fleet.NodeName) error {
	if err := s.flows.StartReconcile(ctx, node, fleet.ReconcileOnStart); err != nil {
		return err
	}
	peers, err := s.store.PeersOf(ctx, node)
	if err != nil {
		return err
	}
	for _, peer := range peers {
		if err := s.flows.StartReconcile(ctx, peer, fleet.ReconcilePeer); err != nil {
			return err
		}
	}
	return nil
}

// operationRoom is what an operation gets beyond its delivery, to be served and closed.
const operationRoom = time.Minute

func (s *server) operationLimit() time.Duration {
	return s.cfg.Timing.Delivery.Total + s.cfg.Timing.Delivery.Request + operationRoom
}

// flattenShare is how many configs of the largest size may be flattened concurrently.
const flattenShare = 2

func (s *server) api(stopping <-chan struct{}) (*httpapi.Handler, error) {
	return httpapi.New(httpapi.Deps{
		Store: s.store, Waker: &crowdWaker{store: s.store, flows: s.flows, log: s.log}, NodeStarted: s.nodeStarted,
		Executor: s.modules, Definitions: s.definitions, Regions: s.regions(), Flatten: s.maker.Budget, Limits: s.maker.Limits,
		Region: s.cfg.Region, WebURL: s.cfg.WebURL, TemporalNamespace: s.cfg.TemporalNamespace,
		PendingTTL: s.cfg.Timing.Delivery.PendingTTL, OperationLimit: s.operationLimit(), FailoverLimit: s.cfg.Timing.Failover,
		Now: time.Now, Log: s.log, Ready: s.ready, Metrics: s.registry, Stopping: stopping, Refused: s.refusals.Refuse,
		OperationEnds: func(_ context.Context, id fleet.OperationID) <-chan struct{} { return s.ends.Of(id) },
	})
}

func (s *server) ready(ctx context.Context) error {
	if s.cfg.Roles.Has(RoleWorker) && !s.serving.Load() {
		return fleet.Errorf(fleet.Unavailable, "the worker has not started yet")
	}
	return s.store.Ping(ctx)
}

const (
	// maxStrangers limits the connections of one listener that have not yet presented a valid token, and
	// strangerLife how long each may stay (docs/limits.md).
	maxStrangers = 1000
	strangerLife = 10 * time.Second
	maxHeaders   = 16 << 10
	headerLimit  = 10 * time.Second
	idleLimit    = 2 * time.Minute
	stopLimit    = 5 * time.Second
)

func (s *server) serve(ctx context.Context, l net.Listener) error {
	s.log.Info("serving", "address", l.Addr().String(), "region", s.cfg.Region, "build", s.cfg.Build)
	return s.serveHTTP(ctx, l, httpapi.DoorHTTP, s.tracer.serving(s.handler), s.tls)
}

// serveProbes serves the probes and metrics of a process of any role. It uses TLS if the other listeners do, but
// requires no client certificate, because probes have none.
func (s *server) serveProbes(ctx context.Context, l net.Listener) error {
	security, err := certs.Server(certs.ServerFiles{Pair: s.cfg.TLS.Pair}, time.Now, s.log)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s.log.Info("serving metrics", "address", l.Addr().String())
	return s.serveHTTP(ctx, l, doorProbes, s.handler.Probes(), security)
}

// doorProbes is the name of the listener for probes.
const doorProbes = "probes"

func (s *server) serveHTTP(ctx context.Context, l net.Listener, door string, handler http.Handler, security *tls.Config) error {
	limit := strangers.NewLimit(maxStrangers, strangerLife)
	for _, m := range limit.Metrics(door) {
		if err := s.registry.Register(m); err != nil {
			return errors.Join(fleet.Errorf(fleet.Internal, "register metrics: %w", err), l.Close())
		}
	}
	l = limit.Listen(l)
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHeaders,
		ConnContext: strangers.With,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		TLSConfig:   security, ErrorLog: certs.ErrorLog(door, s.log, s.refusals.Refuse),
	}
	serve := h.Serve
	if security != nil {
		serve = func(l net.Listener) error { return h.ServeTLS(l, "", "") } // the files are in TLSConfig
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if h.Shutdown(stop) != nil {
			return h.Close() // cut the remaining requests
		}
		return nil
	})
	return group.Wait()
}

func (s *server) activities() workers.Server {
	doors := &tellers{store: s.store, flows: s.flows}
	nodes := newNodeWaker(s.store, s.cfg.Timing.Link.Idle, time.Now)
	signs := &signer{read: s.store.SigningKey, now: time.Now}
	return workers.Server{
		Instances: &activities.Instances{
			Store: s.store, Tokens: tokens{s.cfg.Timing.TokenBytes}, Signer: signs, Doors: doors, Nodes: nodes,
			FetchBaseURL: s.cfg.PublicURL, Build: s.cfg.Build, Log: s.log, Failpoint: s.cfg.Failpoint,
			Ended: s.metrics.ended,
		},
		Doors: &activities.Doors{
			Requests: &requests{store: s.store, specs: declaration.Turns{Maker: s.maker, Store: s.store}, limit: s.operationLimit(), modules: s.modules, failoverLimit: s.cfg.Timing.Failover, closed: s.metrics.closed}, Entities: s.flows, Starts: s.flows,
		},
		Reconciles: &activities.Reconciles{
			Store: s.store, Passes: s.store, Entities: s.again, Doors: doors, Nodes: nodes, Tokens: tokens{s.cfg.Timing.TokenBytes}, Signer: signs,
			BaseURL: s.cfg.PublicURL, TokenLife: s.cfg.Timing.Delivery.PendingTTL, Build: s.cfg.Build,
			Ended: s.metrics.reconciled,
		},
		Drains: &activities.Drains{Store: s.store, Doors: doors, Signer: signs, Build: s.cfg.Build},
		Failovers: &activities.Failovers{
			Store: s.store, Votes: s.votes, Doors: doors, Signer: signs, Nodes: nodes, Build: s.cfg.Build, Ended: s.metrics.failedOver,
		},
		Deployments: &activities.Deployments{
			Store: &deploymentSteps{
				store: s.store, settle: s.cfg.Timing.Runtime / 2, done: s.metrics.visited, drifted: s.metrics.sync.drifted, compared: s.metrics.sync.compared,
			},
			Doors: doors, Entities: s.again, Build: s.cfg.Build, Log: s.log, Failpoint: s.cfg.Failpoint,
		},
		Fleets: &activities.Fleets{Store: s.store, Doors: doors, Build: s.cfg.Build, Log: s.log},
		Batches: &activities.Batches{
			Maker: &batchMaker{s.store, s.maker}, Gatherer: &siteGatherer{s.store, s.again}, Store: s.store, Tokens: tokens{s.cfg.Timing.TokenBytes},
			Signer: signs, Doors: doors, Nodes: nodes, Log: s.log,
			FetchBaseURL: s.cfg.PublicURL, Build: s.cfg.Build, Failpoint: s.cfg.Failpoint,
		},
		Regions:  &activities.Regions{Follower: s.follower(), Comparer: s.comparer(), Doors: doors, Build: s.cfg.Build},
		Policies: s.policies(doors),
		Modules:  &activities.Modules{Store: executionSteps{s.store}, Executor: s.modules, Doors: doors, Build: s.cfg.Build},
		Sweeps: &activities.Sweeps{
			Purger: s.store, Starter: s.flows,
			Collector: s.store, Keep: s.cfg.Timing.Keep, Now: time.Now, Collected: s.metrics.removed,
			Nodes:     &nodeSweep{store: s.store, full: s.cfg.Timing.Compare, settle: 2 * s.cfg.Timing.Nodes, lost: lostAfter},
			Failbacks: &failbackSweep{store: s.store, flows: s.again, stable: s.cfg.Timing.Failback, limit: s.cfg.Timing.Failover, log: s.log},
			Operations: &operationsSweep{
				store: s.store, flows: s.flows, waker: s.again, doors: doors, closed: s.metrics.closed,
				live: s.presence.live, lately: s.presence.lately,
			},
		},
	}
}
