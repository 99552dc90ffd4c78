package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

// newNodeCommand runs the agent of a machine.
func (c *cli) newNodeCommand() *cobra.Command {
	cfg := region.NodeConfig{Timing: region.DefaultTiming()}
	var gone goneFlags
	cmd := &cobra.Command{
		Use: "node", Short: "Run the agent of a machine", Args: cobra.NoArgs,
		Long: `Run the agent of a machine. It enrols once with a join token (HOLDFAST_JOIN_TOKEN). From then
on it restarts from its own store, also while the region is unreachable. The instances that it runs
outlive it, until the node's lease on its site ends. The node is active while it holds that lease, by
the votes of the pair and the region. Replicas of deployments outlive it too, and need no lease. For
systemd there is a unit in examples/systemd. It sets KillMode=process, so that a restart of the agent
leaves all of them running. It sets Delegate=yes with DelegateSubgroup=agent (systemd 254 or later),
so that process replicas get the limits that they request; without the two they run without limits.`,
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
	f.StringVar(&cfg.API, "api", c.orEnv("HOLDFAST_ADDRESS", "http://127.0.0.1:7460"), "the region's API; with https:// the link uses TLS too")
	f.StringVar(&cfg.Link, "link", c.orEnv("HOLDFAST_LINK", defaultLink), "the region's link, host:port, or several joined by commas")
	c.tlsFlags(cmd, &cfg.PeerTLS, "the peer's votes")
	f.StringVar(&cfg.Peer, "peer", c.env("HOLDFAST_PEER"), "host:port at which the other node of the pair reaches this one; required for a failover without the region")
	heartbeatFlags(cmd, &cfg.Timing.Link)
	f.StringVar(&cfg.Data, "data", c.orEnv("HOLDFAST_DATA", "/var/lib/holdfast"), "directory of the node's key and store")
	f.StringVar(&cfg.JoinToken, "join-token", c.env("HOLDFAST_JOIN_TOKEN"), "token to enrol the node once")
	f.StringVar(&cfg.TraceEndpoint, "trace-endpoint", c.env("OTEL_EXPORTER_OTLP_ENDPOINT"), "endpoint for traces, OTLP over HTTP")
	f.DurationVar(&cfg.Timing.ReadIdle, "fetch-timeout", cfg.Timing.ReadIdle, "cut and resume a download that stalls this long")
	f.DurationVar(&cfg.Timing.Owed, "owed-limit", cfg.Timing.Owed,
		"how long a new active tries to get missed deletes and disables from the region before it starts instances")
	isolationFlags(cmd, &cfg)
	machineFlags(cmd, &cfg.Machine)
	f.StringVar(&cfg.Docker, "docker", c.env("DOCKER_HOST"), "address of the engine that runs containers, default unix:///var/run/docker.sock if one answers there")
	gone.declare(cmd)
	cmd.AddCommand(c.newNodeRevokeCommand(), c.newNodeRotateKeyCommand(), c.newNodeForceVoteCommand())
	for _, name := range []string{"name", "site"} {
		if cmd.Flag(name).DefValue == "" {
			_ = cmd.MarkFlagRequired(name) // the flag exists
		}
	}
	return cmd
}

// defaultLink is the default address of a server's link (C84).
const defaultLink = "127.0.0.1:9090"

// goneFlags are flags of older nodes, which called Temporal directly. They are still parsed so that the error can
// name their replacement.
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
			return fleet.Errorf(fleet.Invalid, "--%s is obsolete: a node connects to its region's link, no longer to Temporal", name).
				WithHint("remove it and give --link HOST:PORT, the address of the server's --link")
		}
	}
	return nil
}
