package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/internal/certs"
	_ "github.com/holdfast-io/holdfast/internal/demo/entry"
	"github.com/holdfast-io/holdfast/internal/fleet"
	_ "github.com/holdfast-io/holdfast/internal/guardian/entry"
	"github.com/holdfast-io/holdfast/internal/node/isolation"
	"github.com/holdfast-io/holdfast/internal/region"
)

// The first arguments with which this program runs as one of its children.
const (
	childTemporal = "child-temporal"
	childServer   = "child-server"
	childNode     = "child-node"
)

// dockerVariable is where the machine's engine listens, as docker knows it.
const dockerVariable = "DOCKER_HOST"

// serverInput and nodeInput are the whole configuration of a child. It goes over the child's standard input,
// because it contains secrets, which arguments and environment would expose.
type serverInput struct {
	Database, Temporal, Listen, Link, URL, Web, Token string
	Definitions                                       string
	Pace                                              pace
	TLS                                               certs.ServerFiles
	Executors                                         certs.ClientFiles
	Region, Name                                      string // of the process, for failpoints
	Peers                                             region.PeerConfig
}

func (in serverInput) config() region.ServerConfig {
	return region.ServerConfig{
		Region: in.Region, DatabaseURL: in.Database, TemporalAddress: in.Temporal, TemporalNamespace: temporalNamespace,
		Listen: in.Listen, Link: in.Link, PublicURL: in.URL, WebURL: in.Web, BootstrapToken: in.Token, Definitions: in.Definitions, Timing: in.Pace.timing(),
		TLS: in.TLS, Executors: in.Executors,
		Peers: in.Peers, Failpoint: failpoints(in.Name), TraceEndpoint: os.Getenv(traceVariable),
	}
}

type nodeInput struct {
	Node, Site, API, Link, Peer, Data, Join, Program string
	Supervisor                                       int // instances end with it
	Pace                                             pace
	TLS                                              certs.ClientFiles
	PeerTLS                                          certs.ServerFiles
	NoIsolation                                      bool
	UIDs                                             isolation.Range
}

func (in nodeInput) config() region.NodeConfig {
	return region.NodeConfig{
		Node: in.Node, Site: in.Site, API: in.API, Link: in.Link + os.Getenv(linksVariable), Peer: in.Peer,
		Docker: os.Getenv(dockerVariable), Data: in.Data, JoinToken: in.Join, Executable: in.Program, LifetimePID: in.Supervisor, StopInstances: true,
		Timing: in.Pace.timing(), Failpoint: failpoints(in.Node), TraceEndpoint: os.Getenv(traceVariable),
		TLS: in.TLS, PeerTLS: in.PeerTLS, NoIsolation: in.NoIsolation, UIDs: in.UIDs,
	}
}

// failpointsVariable names a folder in which tests arm failpoints of children; only tests use it.
const failpointsVariable = "HOLDFAST_FAILPOINTS"

// linksVariable lists more addresses of the link, each after a comma, for tests that start more servers; only tests
// use it.
const linksVariable = "HOLDFAST_MORE_LINKS"

// runtimeVariable is how often deployments and nodes are compared, for tests that wait for many comparisons; only tests
// use it.
const runtimeVariable = "HOLDFAST_RUNTIME_EVERY"

// traceVariable is OpenTelemetry's own name for where traces go.
const traceVariable = "OTEL_EXPORTER_OTLP_ENDPOINT"

func failpoints(process string) func(string) {
	return region.Failpoints(os.Getenv(failpointsVariable), process)
}

// pace is how soon failures show up.
type pace struct {
	Fast             bool          // in seconds
	HeartbeatTimeout time.Duration // 0 is what Fast says
}

func (p pace) timing() region.Timing {
	t := region.DefaultTiming()
	if p.Fast {
		t = region.FastTiming()
	}
	if lasts := p.HeartbeatTimeout; lasts != 0 {
		t.Link.HeartbeatEvery, t.Link.HeartbeatTimeout = lasts/3, lasts
		t.Link.StreamRequired = max(t.Link.StreamRequired, 2*lasts)
		t.Failover = max(t.Failover, 10*lasts)
	}
	if every, err := time.ParseDuration(os.Getenv(runtimeVariable)); err == nil {
		t.Runtime = every
	}
	return t
}

// childNamed reports whether the arguments are those of a child.
func childNamed(args []string) ([]string, bool) {
	if len(args) == 0 {
		return nil, false
	}
	switch args[0] {
	case childTemporal, childServer, childNode:
		return args, true
	default:
		return nil, false
	}
}

// runChild is the main function of a child.
func runChild(args []string, stderr io.Writer) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail}))
	if err := serveChild(ctx, args[0], os.Stdin, log); err != nil {
		log.Error("ended", "child", strings.Join(args, " "), "error", err)
		return exitFailed
	}
	return exitOK
}

func serveChild(ctx context.Context, child string, stdin io.Reader, log *slog.Logger) error {
	switch child {
	case childTemporal:
		c, err := inputOf[temporalConfig](stdin)
		if err != nil {
			return err
		}
		return runTemporal(ctx, c)
	case childServer:
		in, err := inputOf[serverInput](stdin)
		if err != nil {
			return err
		}
		return region.RunServer(ctx, in.config(), log)
	default:
		in, err := inputOf[nodeInput](stdin)
		if err != nil {
			return err
		}
		return region.RunNode(ctx, in.config(), log)
	}
}

func inputOf[T any](stdin io.Reader) (T, error) {
	var in T
	if err := json.NewDecoder(stdin).Decode(&in); err != nil {
		return in, fmt.Errorf("read the configuration: %w", err)
	}
	return in, nil
}

// childStop is how long one of our children may take to stop before it is killed: a node gives its instances 20 s.
const childStop = 25 * time.Second

// childSpec makes the spec of one of our children. input is called for each start.
func (l *laptop) childSpec(r rank, name string, args []string, input func(context.Context) (any, error)) spec {
	return spec{
		name: l.opts.process(name),
		log:  l.dir.log(name),
		rank: r,
		command: func(ctx context.Context) (*exec.Cmd, error) {
			in, err := input(ctx)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(in)
			if err != nil {
				return nil, fmt.Errorf("write the configuration: %w", err)
			}
			cmd := exec.Command(l.self, args...)
			cmd.Stdin = strings.NewReader(string(text))
			return cmd, nil
		},
		onParentDeath: syscall.SIGKILL,
		end:           []stopSignal{{syscall.SIGTERM, childStop}},
	}
}
