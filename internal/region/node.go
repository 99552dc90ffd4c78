package region

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
)

// NodeConfig is all that a node process needs.
type NodeConfig struct {
	Node, Site, API string
	// Link is host:port of the region's link, or several joined by commas.
	Link string
	// Peer is host:port at which the node serves its vote to the other node of its pair. Without it, the pair has
	// only the region's vote besides each node's own, and depends on it.
	Peer string
	// TLS is used if API is https://, for API and link: what to trust, and which certificate to present. It is also
	// for the peer, if PeerTLS is set.
	TLS certs.ClientFiles
	// PeerTLS uses TLS for the votes of the pair in both directions, whatever API is.
	PeerTLS certs.ServerFiles
	// Data holds node.key, node.db and instances/.
	Data string
	// JoinToken enrols the node once.
	JoinToken string
	// Executable is the program that runs guardians, "" for this one.
	Executable string
	// LifetimePID ends the instances and replicas with that process; with 0 they outlive every process.
	LifetimePID int
	// StopInstances stops the instances and replicas on a clean stop of the node, and releases its lease.
	StopInstances bool
	// NoIsolation runs commands as the agent's user; otherwise UIDs is the uid range of projects.
	NoIsolation bool
	UIDs        isolation.Range
	// Machine is what the region places replicas by.
	Machine NodeMachine
	// Docker is the address of the machine's engine; "" is docker.DefaultHost if an engine answers there.
	Docker string
	// TraceEndpoint takes OTLP over HTTP; "" traces nothing.
	TraceEndpoint string
	// Failpoint is for tests: it is called with the name of each step.
	Failpoint func(name string)
	Timing    Timing

	security    *tls.Config // made of TLS; nil in the clear
	peerServed  *tls.Config
	peerDialled credentials.TransportCredentials
}

// secure reads the certificates.
func (cfg *NodeConfig) secure(log *slog.Logger) (err error) {
	files := cfg.TLS
	if cfg.PeerTLS.On() {
		if cfg.Peer == "" {
			return fleet.Errorf(fleet.Invalid, "--tls-cert needs --peer: it is for the votes of a peer").At("tls").
				WithHint("give --peer HOST:PORT, or omit --tls-cert, --tls-key and --tls-client-ca")
		}
		served, err := certs.Server(cfg.PeerTLS, time.Now, log)
		if err != nil {
			return err
		}
		dialled, err := certs.Client(cfg.TLS)
		if err != nil {
			return err
		}
		cfg.peerServed, cfg.peerDialled = served, certs.Caller(dialled)
		if !certs.Secure(cfg.API) {
			files = certs.ClientFiles{} // they are only for the peer
		}
	}
	cfg.security, err = certs.For(cfg.API, files)
	return err
}

// nodeMemory is far above what a node needs; it limits what the collector may leave.
const nodeMemory = 256 << 20

// RunNode recovers the node from its store, runs what it should run, and accepts deliveries until the context ends.
// If the region is unreachable, only deliveries and reports wait.
func RunNode(ctx context.Context, cfg NodeConfig, log *slog.Logger) error {
	SaveProcessor(nodeMemory)
	runtime, err := nodeRuntime(cfg, log)
	if err != nil {
		return err
	}
	if err := cfg.secure(log); err != nil {
		return err
	}
	traces, err := newTracer(ctx, cfg.TraceEndpoint, "holdfast-node "+cfg.Node)
	if err != nil {
		return err
	}
	defer traces.close(ctx)
	serving := make(chan struct{})
	apart := isolation.New(isolation.Options{Dir: filepath.Dir(runtime.Root), Off: cfg.NoIsolation, Range: cfg.UIDs})
	vote := &regionVote{cfg: cfg, log: log}
	defer vote.close()
	agent, err := node.Open(ctx, node.AgentOptions{
		Node: fleet.NodeName(cfg.Node), Site: fleet.SiteName(cfg.Site), Dir: cfg.Data, API: cfg.API, Runtime: runtime,
		Tenancy: runtime, Outputs: runtime, Log: log, Now: time.Now, JoinToken: cfg.JoinToken, Failpoint: cfg.Failpoint,
		ReadIdle: cfg.Timing.ReadIdle, ReportEvery: cfg.Timing.Report, BaseEnv: baseEnvironment(),
		HTTP: traces.calling(node.NewHTTPClient(cfg.security)), Serving: serving, Lease: vote.options(), Isolation: apart,
	})
	if err != nil {
		return err
	}
	vote.of(agent)
	defer agent.Close() //nolint:errcheck // nothing is written after this
	apart.Site = agent.SiteProject
	if err := apart.Begin(); err != nil {
		return err
	}
	if why := apart.Why(); why != "" {
		log.Warn("commands run as the agent's user; commands of projects other than the site's are refused", "why", why)
	}
	replicas, err := newNodeReplicas(ctx, cfg, agent, runtime, apart, log)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return agent.Run(cfg.whileLeaving(ctx, running, agent, log)) })
	asked := agent.Tasks()
	tasks := &activities.Node{Applier: asked, Batches: asked, Reconciler: asked}
	if agent.Leases != nil {
		tasks.Leases = asked
	}
	gate := idle.New(time.Now, func() bool { return tasks.InFlight() > 0 })
	group.Go(func() error { return (&nodeWorker{cfg, agent, tasks, gate, traces, serving, log}).run(running) })
	group.Go(func() error {
		return (&nodeLink{cfg, agent, tasks.InFlight, gate, log, vote.onSite(running), replicas}).whileReplicas(ctx, running)
	})
	err = group.Wait()
	if cfg.StopInstances && ctx.Err() != nil {
		stopAll(context.WithoutCancel(ctx), runtime, log)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// whileLeaving keeps an agent running until its instances have ended and the lease is released, if the instances
// end with it: then the peer takes over at once. If they outlive the agent, it keeps the lease. So does an agent
// that ends with an error and is restarted.
func (cfg NodeConfig) whileLeaving(ctx, running context.Context, agent *node.Agent, log *slog.Logger) context.Context {
	if !cfg.StopInstances || agent.Leases == nil {
		return running
	}
	staying, end := context.WithCancel(context.WithoutCancel(running))
	context.AfterFunc(running, func() {
		defer end()
		if ctx.Err() == nil {
			return
		}
		out, err := agent.Leases.HandOver(staying, fleet.HandOverCommand{
			Site: fleet.SiteName(cfg.Site), DeadlineSeconds: int64(stopAllLimit / time.Second),
		})
		if err != nil || !out.Released {
			log.Warn("the lease was not released; it will expire", "reason", out.Reason, "err", err)
		}
	})
	return staying
}

// ownName runs the node's own program in commands, wherever it is installed: [holdfast, demo].
const ownName = "holdfast"

func nodeRuntime(cfg NodeConfig, log *slog.Logger) (*guardian.Runtime, error) {
	if cfg.Executable == "" {
		var err error
		if cfg.Executable, err = os.Executable(); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "find the program: %w", err)
		}
	}
	data, err := filepath.Abs(cfg.Data)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "locate the data directory: %w", err)
	}
	return &guardian.Runtime{
		Root: filepath.Join(data, "run"), Executable: cfg.Executable, OwnName: ownName, LifetimePID: cfg.LifetimePID, Log: log,
	}, nil
}

// baseEnvironment is what commands may see of the node's own environment.
func baseEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok { //nolint:forbidigo // passed to commands, never read
			env = append(env, name+"="+value)
		}
	}
	return env
}

// stopAllLimit is for each of two attempts: one that releases the lease, and one for the rest.
const stopAllLimit = 10 * time.Second

func stopAll(ctx context.Context, r *guardian.Runtime, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, stopAllLimit)
	defer cancel()
	list, err := r.List(ctx)
	if err != nil {
		log.Error("list instances", "error", err)
		return
	}
	var group errgroup.Group
	for _, st := range list {
		group.Go(func() error { return r.Stop(ctx, st.Instance) })
	}
	if err := group.Wait(); err != nil {
		log.Error("stop instances", "error", err)
	}
}
