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
	// Peer is host:port at which the node serves its vote to the other node of its pair. Without
	// it the pair has its region's vote alone beside each node's own, and needs that.
	Peer string
	// TLS is used when API is https://, for both: what to trust, and what to show. So it is for
	// the peer, when PeerTLS is set.
	TLS certs.ClientFiles
	// PeerTLS has the votes of the pair travel over TLS both ways, whatever API is.
	PeerTLS certs.ServerFiles
	// Data holds node.key, node.db and instances/.
	Data string
	// JoinToken enrols the node once.
	JoinToken string
	// Executable is the program that runs guardians, "" for this one.
	Executable string
	// LifetimePID ends the instances and replicas with that process; 0 lets them outlive everybody.
	LifetimePID int
	// StopInstances stops the instances and replicas on a clean stop of the node, and gives its
	// lease back.
	StopInstances bool
	// NoIsolation runs commands as the agent's user; UIDs is the range of those of projects else.
	NoIsolation bool
	UIDs        isolation.Range
	// Machine is what the region places replicas by.
	Machine NodeMachine
	// Docker is the address of the machine's engine, "" for docker.DefaultHost if one is there.
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
			return fleet.Errorf(fleet.Invalid, "--tls-cert is for the votes of a peer, and there is no --peer").At("tls").
				WithHint("give --peer HOST:PORT, or leave out --tls-cert, --tls-key and --tls-client-ca")
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
			files = certs.ClientFiles{} // they are for the peer alone
		}
	}
	cfg.security, err = certs.For(cfg.API, files)
	return err
}

// nodeMemory is far above what a node needs; it bounds what the collector may leave.
const nodeMemory = 256 << 20

// RunNode recovers the node from its store, runs what it should run, and takes deliveries
// until the context ends. The region may be away: then only deliveries and reports wait.
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
	defer agent.Close() //nolint:errcheck // nothing is written any more
	apart.Site = agent.SiteProject
	if err := apart.Begin(); err != nil {
		return err
	}
	if why := apart.Why(); why != "" {
		log.Warn("commands run as the agent's user, so those of other projects than the site's are refused", "why", why)
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

// whileLeaving keeps an agent going whose instances end with it, until they have ended and the
// lease is given back: the peer takes over at once then. Where they outlive it, it has nothing
// to give back; nor has one that ends for an error, and is started again.
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
			log.Warn("the lease was not given back, it runs out", "reason", out.Reason, "err", err)
		}
	})
	return staying
}

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
		Root: filepath.Join(data, "run"), Executable: cfg.Executable, LifetimePID: cfg.LifetimePID, Log: log,
	}, nil
}

// baseEnvironment is what every command may see of the node's own environment.
func baseEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TZ"} {
		if value, ok := os.LookupEnv(name); ok { //nolint:forbidigo // handed on to commands, never read
			env = append(env, name+"="+value)
		}
	}
	return env
}

// stopAllLimit is of each of two tries: one that gives the lease back, and one for what is left.
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
