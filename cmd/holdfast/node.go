package main

import (
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/region"
)

// newNodeCommand runs the agent of one machine.
func (c *cli) newNodeCommand() *cobra.Command {
	cfg := region.NodeConfig{Timing: region.DefaultTiming()}
	cmd := &cobra.Command{
		Use: "node", Short: "Run the agent of a machine", Args: cobra.NoArgs,
		Long: `Run the agent of a machine. It enrols once with a join token (HOLDFAST_JOIN_TOKEN), and
from then on restarts from its own store, also while the region is away. The instances that
it runs outlive it. Under systemd set KillMode=process, so that a restart of the agent
leaves them running.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := c.log()
			return logEnd(log, region.RunNode(cmd.Context(), cfg, log))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Node, "name", c.env("HOLDFAST_NODE"), "name of the node")
	f.StringVar(&cfg.Site, "site", c.env("HOLDFAST_SITE"), "site of the node")
	f.StringVar(&cfg.API, "api", c.orEnv("HOLDFAST_ADDRESS", "http://127.0.0.1:7460"), "the region's API")
	f.StringVar(&cfg.Link, "link", c.env("HOLDFAST_LINK"), "the region's link, host:port (default none)")
	f.StringVar(&cfg.Data, "data", c.orEnv("HOLDFAST_DATA", "/var/lib/holdfast"), "directory of the node's key and store")
	f.StringVar(&cfg.JoinToken, "join-token", c.env("HOLDFAST_JOIN_TOKEN"), "token that enrols the node once")
	f.StringVar(&cfg.TraceEndpoint, "trace-endpoint", c.env("OTEL_EXPORTER_OTLP_ENDPOINT"), "send traces there, OTLP over HTTP")
	f.DurationVar(&cfg.Timing.ReadIdle, "fetch-timeout", cfg.Timing.ReadIdle, "cut and resume a download that stalls this long")
	c.temporalFlags(cmd, &cfg.TemporalAddress, &cfg.TemporalNamespace)
	for _, name := range []string{"name", "site"} {
		if cmd.Flag(name).DefValue == "" {
			_ = cmd.MarkFlagRequired(name) // the flag exists
		}
	}
	return cmd
}
