package main

import (
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

// newServerCommand runs a server of a region: API, workers and link.
func (c *cli) newServerCommand() *cobra.Command {
	cfg := region.ServerConfig{BootstrapToken: c.env("HOLDFAST_BOOTSTRAP_TOKEN"), Timing: region.DefaultTiming()}
	var roles, networks []string
	var migrate string
	cmd := &cobra.Command{
		Use: "server", Short: "Run a server of a region: API and workers", Args: cobra.NoArgs,
		Long: `Run a server of a region. It is stateless; run any number of servers with one Postgres and one
Temporal namespace. HOLDFAST_BOOTSTRAP_TOKEN, if set, becomes an admin token. --ca, --client-cert and
--client-key are for calls to executors with TLS; the connection to Temporal has its own flags,
--temporal-…`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Roles, err = region.ParseRoles(roles); err != nil {
				return err
			}
			if cfg.Migrate, err = region.ParseMigrate(migrate); err != nil {
				return err
			}
			if cfg.ExecutorNetworks, err = fleet.ParseExecutorNetworks(networks); err != nil {
				return err
			}
			if err := c.linkEnv(cmd, &cfg.Timing.Link); err != nil {
				return err
			}
			if cfg.Temporal.TLS, err = c.boolEnv(cmd, temporalTLSFlag, envTemporalTLS); err != nil {
				return err
			}
			cfg.Executors = c.certFiles()
			log := c.log()
			return logEnd(log, region.RunServer(cmd.Context(), cfg, log))
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.Region, "region", c.orEnv("HOLDFAST_REGION", "local"), "name of the region")
	f.StringVar(&cfg.DatabaseURL, "database-url", c.env("HOLDFAST_DATABASE_URL"), "Postgres of the region")
	f.StringVar(&migrate, "migrate", c.orEnv("HOLDFAST_MIGRATE", string(region.MigrateAuto)), "who migrates the database to this version's schema: with auto this server, at its start; with never an operator (holdfast admin migrate), and the server only checks")
	f.StringVar(&cfg.Listen, "listen", c.orEnv("HOLDFAST_LISTEN", "127.0.0.1:7460"), "address to serve on")
	c.peerFlags(cmd, &cfg)
	f.StringVar(&cfg.Link, "link", c.orEnv("HOLDFAST_LINK", defaultLink), "address to serve the link on, for providers and nodes; \"\" to serve none")
	c.tlsFlags(cmd, &cfg.TLS, "API and link")
	f.StringVar(&cfg.Metrics, "metrics", c.env("HOLDFAST_METRICS"), "address to serve /metrics, /healthz and /readyz on, also without the role api")
	f.StringVar(&cfg.Definitions, "definitions", c.env("HOLDFAST_DEFINITIONS"), "directory of settings (vllm.json, …) that override those of deployment types")
	f.StringSliceVar(&networks, "executor-network", strings.FieldsFunc(c.env("HOLDFAST_EXECUTOR_NETWORKS"), func(r rune) bool { return r == ',' }), "networks (10.0.0.0/8) where executors may be, besides the address that their provider registers from")
	f.StringSliceVar(&roles, "roles", nil, "roles of this process: api, worker, link (default all)")
	f.StringVar(&cfg.PublicURL, "public-url", c.env("HOLDFAST_PUBLIC_URL"), "URL of the API in commands to nodes (default --listen, as http:// or https://)")
	f.StringVar(&cfg.WebURL, "web-url", c.env("HOLDFAST_WEB_URL"), "URL of Temporal Web, for links")
	f.StringVar(&cfg.TraceEndpoint, "trace-endpoint", c.env("OTEL_EXPORTER_OTLP_ENDPOINT"), "endpoint for traces, OTLP over HTTP")
	f.IntVar(&cfg.Timing.TokenBytes, "fetch-token-bytes", cfg.Timing.TokenBytes, "length of fetch tokens")
	f.DurationVar(&cfg.Timing.Delivery.PendingTTL, "pending-ttl", cfg.Timing.Delivery.PendingTTL, "how long a config can be fetched without progress")
	f.IntVar(&cfg.Timing.Delivery.Tries, "delivery-tries", cfg.Timing.Delivery.Tries, "how often a node is notified in one delivery while fetching fails")
	f.DurationVar(&cfg.Timing.Delivery.Request, "request-timeout", cfg.Timing.Delivery.Request, "how long a node may take to accept a delivery, or go without progress")
	f.DurationVar(&cfg.Timing.Delivery.Total, "delivery-deadline", cfg.Timing.Delivery.Total, "time limit of a whole delivery")
	f.DurationVar(&cfg.Timing.Purge, "purge-interval", cfg.Timing.Purge, "how often expired rows are purged")
	f.DurationVar(&cfg.Timing.Sweep, "sweep-interval", cfg.Timing.Sweep, "how often to check for lost operations")
	f.DurationVar(&cfg.Timing.Collect, "collect-interval", cfg.Timing.Collect, "how often to remove what is no longer needed")
	linkFlags(cmd, &cfg.Timing.Link)
	keepFlags(cmd, &cfg.Timing.Keep)
	c.temporalFlags(cmd, &cfg)
	return cmd
}

// peerFlags are how a region meets others, and what it says of itself.
func (c *cli) peerFlags(cmd *cobra.Command, cfg *region.ServerConfig) {
	f := cmd.Flags()
	f.StringVar(&cfg.Peers.Listen, "peers", c.env("HOLDFAST_PEERS"), "address to serve other regions on; \"\" to serve none")
	f.StringVar(&cfg.Peers.URL, "peers-url", c.env("HOLDFAST_PEERS_URL"), "how other regions reach --peers: https://HOST:PORT (default --peers)")
	f.StringVar(&cfg.Describe.Location, "location", c.env("HOLDFAST_LOCATION"), "where the region is, for people")
	f.StringVar(&cfg.Describe.LocalNetworkID, "local-network", c.env("HOLDFAST_LOCAL_NETWORK"), "name of the network that the region shares with regions nearby")
	f.StringVar(&cfg.Describe.APIURL, "api-url", c.env("HOLDFAST_API_URL"), "how users reach the API, for other regions to tell their users (default --public-url)")
}

// tlsFlags are flags of a process that listens.
func (c *cli) tlsFlags(cmd *cobra.Command, files *certs.ServerFiles, of string) {
	f := cmd.Flags()
	f.StringVar(&files.Cert, "tls-cert", c.env("HOLDFAST_TLS_CERT"), "certificate (PEM, with its chain) of "+of+", reloaded when it changes")
	f.StringVar(&files.Key, "tls-key", c.env("HOLDFAST_TLS_KEY"), "its key")
	f.StringVar(&files.ClientCA, "tls-client-ca", c.env("HOLDFAST_TLS_CLIENT_CA"), "require client certificates of this authority (mTLS)")
}

// linkFlags are the time limits of the link; docs/link.md explains them.
func linkFlags(cmd *cobra.Command, link *fleet.LinkTiming) {
	f := cmd.Flags()
	heartbeatFlags(cmd, link)
	f.DurationVar(&link.StreamRequired, streamFlag, link.StreamRequired, "how long a registration waits for its stream (default "+envStream+")")
	f.DurationVar(&link.Report, "link-report", link.Report, "how often providers are sent their active modules")
	f.DurationVar(&link.Idle, "link-idle", link.Idle, "how long nodes keep polling for tasks after the last one; 0 means all the time")
	f.DurationVar(&link.DrainAck, "link-drain-ack", link.DrainAck, "how long to wait for the ack of a drain before asking again")
}

// heartbeatFlags must match between a region's servers and its nodes: the timeout is also how long a site's lease
// lasts.
func heartbeatFlags(cmd *cobra.Command, link *fleet.LinkTiming) {
	f := cmd.Flags()
	f.DurationVar(&link.HeartbeatEvery, everyFlag, link.HeartbeatEvery, "how often providers send a heartbeat, at most a third of the timeout")
	f.DurationVar(&link.HeartbeatTimeout, heartbeatFlag, link.HeartbeatTimeout, "silence after which a provider is disconnected and a lease is lost (default "+envHeartbeat+")")
}

// The names of the link's settings, on the command line and in the environment.
const (
	everyFlag     = "link-heartbeat"
	heartbeatFlag = "link-heartbeat-timeout"
	streamFlag    = "link-stream-timeout"
	envHeartbeat  = "HOLDFAST_PROVIDER_HEARTBEAT_TIMEOUT"
	envStream     = "HOLDFAST_PROVIDER_CONTROL_PLANE_TIMEOUT"
)

// linkEnv reads settings omitted on the command line from the environment, and fits heartbeats to the timeout.
func (c *cli) linkEnv(cmd *cobra.Command, link *fleet.LinkTiming) error {
	for _, e := range []struct {
		env, flag string
		into      *time.Duration
	}{{envHeartbeat, heartbeatFlag, &link.HeartbeatTimeout}, {envStream, streamFlag, &link.StreamRequired}} {
		text, flag := c.env(e.env), cmd.Flag(e.flag)
		if text == "" || flag == nil || flag.Changed {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return fleet.Errorf(fleet.Invalid, "invalid %s %.40q: want a duration", e.env, text).WithHint("for example 15s")
		}
		*e.into = d
	}
	if !cmd.Flag(everyFlag).Changed { // a shorter timeout needs more frequent heartbeats (C70)
		link.HeartbeatEvery = min(link.HeartbeatEvery, link.HeartbeatTimeout/3)
	}
	return nil
}

// keepFlags set what the collection keeps; docs/collection.md explains why.
func keepFlags(cmd *cobra.Command, keep *fleet.Retention) {
	f := cmd.Flags()
	f.DurationVar(&keep.Bodies, "keep-bodies", keep.Bodies, "how long unreferenced configs and artifacts stay")
	f.DurationVar(&keep.Uploads, "keep-uploads", keep.Uploads, "how long an upload may go without progress")
	f.IntVar(&keep.Newest, "keep-newest", keep.Newest, "how many revisions and deliveries of each instance always stay")
	f.DurationVar(&keep.Deliveries, "keep-deliveries", keep.Deliveries, "how long deliveries stay after their end")
	f.DurationVar(&keep.Operations, "keep-operations", keep.Operations, "how long operations stay after their end")
	f.DurationVar(&keep.Events, "keep-events", keep.Events, "how far back a watch of events can be resumed")
}

const (
	temporalTLSFlag = "temporal-tls"
	envTemporalTLS  = "HOLDFAST_TEMPORAL_TLS"
)

// temporalFlags set how to connect to Temporal, and as whom.
func (c *cli) temporalFlags(cmd *cobra.Command, cfg *region.ServerConfig) {
	f, access := cmd.Flags(), &cfg.Temporal
	f.StringVar(&cfg.TemporalAddress, "temporal-address", c.orEnv("HOLDFAST_TEMPORAL_ADDRESS", "127.0.0.1:7233"), "Temporal frontend")
	f.StringVar(&cfg.TemporalNamespace, "temporal-namespace", c.orEnv("HOLDFAST_TEMPORAL_NAMESPACE", "holdfast"), "Temporal namespace")
	f.Bool(temporalTLSFlag, false, "use TLS for Temporal (or "+envTemporalTLS+"=true)")
	f.StringVar(&access.Files.CA, "temporal-tls-ca", c.env("HOLDFAST_TEMPORAL_TLS_CA"), "authorities (PEM) that sign Temporal's certificate (default the system's)")
	f.StringVar(&access.Files.Cert, "temporal-tls-cert", c.env("HOLDFAST_TEMPORAL_TLS_CERT"), "client certificate (PEM) for Temporal (mTLS), reloaded for each connection")
	f.StringVar(&access.Files.Key, "temporal-tls-key", c.env("HOLDFAST_TEMPORAL_TLS_KEY"), "its key")
	f.StringVar(&access.ServerName, "temporal-tls-server-name", c.env("HOLDFAST_TEMPORAL_TLS_SERVER_NAME"), "name in Temporal's certificate (default the host of --temporal-address)")
	f.StringVar(&access.APIKeyFile, "temporal-api-key-file", c.env("HOLDFAST_TEMPORAL_API_KEY_FILE"), "file with the API key of Temporal Cloud, reloaded when it changes")
}

// boolEnv is a flag, or the environment variable if the command line omits it.
func (c *cli) boolEnv(cmd *cobra.Command, flag, env string) (bool, error) {
	text, source := c.env(env), cmd.Flag(flag)
	if text == "" || source.Changed {
		return strconv.ParseBool(source.Value.String())
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fleet.Errorf(fleet.Invalid, "invalid %s %.40q: want true or false", env, text).WithHint("set it to true or false, or omit it")
	}
	return on, nil
}

func (c *cli) orEnv(name, fallback string) string {
	if value := c.env(name); value != "" {
		return value
	}
	return fallback
}

// log is the log of long-running processes, on standard error, one JSON object per line.
func (c *cli) log() *slog.Logger {
	return slog.New(slog.NewJSONHandler(c.stderr, &slog.HandlerOptions{ReplaceAttr: fleet.LogDetail}))
}

// logEnd logs why a process ended, which the error output of a command omits.
func logEnd(log *slog.Logger, err error) error {
	if err != nil {
		log.Error("ended", "err", err)
	}
	return err
}
