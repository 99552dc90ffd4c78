package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

// newNodeCommand runs the agent of one machine.
func (c *cli) newNodeCommand() *cobra.Command {
	cfg := region.NodeConfig{Timing: region.DefaultTiming()}
	var gone goneFlags
	cmd := &cobra.Command{
		Use: "node", Short: "Run the agent of a machine", Args: cobra.NoArgs,
		Long: `Run the agent of a machine. It enrols once with a join token (HOLDFAST_JOIN_TOKEN), and
from then on restarts from its own store, also while the region is away. The instances that
it runs outlive it, until the node's lease on its site ends: it is active while it holds that, by
the votes of the pair and the region. Replicas of deployments outlive it too, and need no lease. For
systemd there is a unit in examples/systemd: KillMode=process, so that a restart of the agent leaves
all of them running, and Delegate=yes with DelegateSubgroup=agent (systemd 254 or later), so that
replicas that are processes get the limits that they ask for; without the two they run without limits.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := gone.check(cmd); err != nil {
				return err
			}
			if err := c.linkEnv(cmd, &cfg.Timing.Link); err != nil {
				return err
			}
			cfg.TLS = c.certFiles()
			log := c.log()
			return logEnd(log, region.RunNode(cmd.Context(), cfg, log))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Node, "name", c.env("HOLDFAST_NODE"), "name of the node")
	f.StringVar(&cfg.Site, "site", c.env("HOLDFAST_SITE"), "site of the node")
	f.StringVar(&cfg.API, "api", c.orEnv("HOLDFAST_ADDRESS", "http://127.0.0.1:7460"), "the region's API; with https:// the link speaks TLS too")
	f.StringVar(&cfg.Link, "link", c.orEnv("HOLDFAST_LINK", defaultLink), "the region's link, host:port, or several joined by commas")
	c.tlsFlags(cmd, &cfg.PeerTLS, "the peer's votes")
	f.StringVar(&cfg.Peer, "peer", c.env("HOLDFAST_PEER"), "host:port at which the other node of the pair reaches this one; needed for the pair to go on without its region")
	heartbeatFlags(cmd, &cfg.Timing.Link)
	f.StringVar(&cfg.Data, "data", c.orEnv("HOLDFAST_DATA", "/var/lib/holdfast"), "directory of the node's key and store")
	f.StringVar(&cfg.JoinToken, "join-token", c.env("HOLDFAST_JOIN_TOKEN"), "token that enrols the node once")
	f.StringVar(&cfg.TraceEndpoint, "trace-endpoint", c.env("OTEL_EXPORTER_OTLP_ENDPOINT"), "send traces there, OTLP over HTTP")
	f.DurationVar(&cfg.Timing.ReadIdle, "fetch-timeout", cfg.Timing.ReadIdle, "cut and resume a download that stalls this long")
	f.DurationVar(&cfg.Timing.Owed, "owed-limit", cfg.Timing.Owed,
		"how long a new active asks the region for deletes and disables that it missed, before it starts instances")
	isolationFlags(cmd, &cfg)
	machineFlags(cmd, &cfg.Machine)
	f.StringVar(&cfg.Docker, "docker", c.env("DOCKER_HOST"), "address of the engine that runs containers, by default unix:///var/run/docker.sock where one answers there")
	gone.declare(cmd)
	cmd.AddCommand(c.newNodeRevokeCommand(), c.newNodeRotateKeyCommand(), c.newNodeForceVoteCommand())
	for _, name := range []string{"name", "site"} {
		if cmd.Flag(name).DefValue == "" {
			_ = cmd.MarkFlagRequired(name) // the flag exists
		}
	}
	return cmd
}

// defaultLink is where a server's link is unless it is told otherwise (C84).
const defaultLink = "127.0.0.1:9090"

// goneFlags are those of a node that spoke to Temporal itself. They are known so that who
// still gives them learns what to give instead.
type goneFlags struct{ ignored string }

var goneNames = []string{"temporal-address", "temporal-namespace"}

func (g *goneFlags) declare(cmd *cobra.Command) {
	for _, name := range goneNames {
		cmd.Flags().StringVar(&g.ignored, name, "", "")
		_ = cmd.Flags().MarkHidden(name) // the flag exists
	}
}

func (*goneFlags) check(cmd *cobra.Command) error {
	for _, name := range goneNames {
		if cmd.Flag(name).Changed {
			return fleet.Errorf(fleet.Invalid, "--%s: a node speaks to its region's link and no longer to Temporal", name).
				WithHint("leave it out and give --link HOST:PORT, which is the server's --link")
		}
	}
	return nil
}
