package main

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"
)

const (
	temporalNamespace = "holdfast"
	temporalCluster   = "holdfast"
	temporalStore     = "sqlite"
	temporalSchema    = "temporal.db"

	// The count is fixed when the store is made. One is enough once the polls are faster
	// (temporalSettings); more cost idle time and bring no latency on a laptop.
	historyShards = 1
)

// temporalConfig is the configuration of child-temporal.
type temporalConfig struct {
	Dir      string // holds the store
	Frontend string // host:port
	Web      string // host:port
	// Ports of the services that only Temporal itself dials, on the loopback.
	History, Matching, Worker int
}

// temporalSettings is dynamic config, tuned as measured (design, section 9): by default a
// history shard looks for work 20 times a second, so that each workflow task waits up to
// 50 ms, and a task queue has four partitions, each with its own polls and goroutines.
func temporalSettings() dynamicconfig.StaticClient {
	const pollsPerSecond, workers = 2000, 32
	return dynamicconfig.StaticClient{
		dynamicconfig.TransferProcessorMaxPollRPS.Key():             pollsPerSecond,
		dynamicconfig.TimerProcessorMaxPollRPS.Key():                pollsPerSecond,
		dynamicconfig.VisibilityProcessorMaxPollRPS.Key():           pollsPerSecond,
		dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():      1,
		dynamicconfig.MatchingNumTaskqueueWritePartitions.Key():     1,
		dynamicconfig.TransferProcessorSchedulerWorkerCount.Key():   workers,
		dynamicconfig.TimerProcessorSchedulerWorkerCount.Key():      workers,
		dynamicconfig.VisibilityProcessorSchedulerWorkerCount.Key(): workers,
		// A queue whose reads are limited to a few pending workflows walks all its tasks at each poll, until the
		// pending ones are done: a fifteenth of the processor time.
		dynamicconfig.QueueShrinkPredicateMaxPendingKeys.Key(): 0,
		// A queue releases its resources soon after its node idles, also where an activity queue asks its workflow
		// queue, which has none, for versions. The idle time is above both polls.
		dynamicconfig.MatchingMaxTaskQueueIdleTime.Key():       2 * time.Minute,
		dynamicconfig.MatchingGetUserDataLongPollTimeout.Key(): time.Minute,
		dynamicconfig.PollerHistoryTTL.Key():                   time.Minute,
		// Caches sized for thousands of open workflows, not for a data centre.
		dynamicconfig.HistoryCacheHostLevelMaxSize.Key():     8192,
		dynamicconfig.EventsHostLevelCacheMaxSizeBytes.Key(): 16 << 20,
		// Release what was not used for a minute, also when there are no other requests.
		dynamicconfig.HistoryCacheTTL.Key(): time.Minute,
		dynamicconfig.EventsCacheTTL.Key():  time.Minute,
		dynamicconfig.HistoryCacheBackgroundEvict.Key(): dynamicconfig.CacheBackgroundEvictSettings{
			Enabled: true, LoopInterval: time.Minute, MaxEntryPerCall: 1024,
		},
		// Do not throttle a person who uses Temporal Web while sweeps list workflows.
		dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(): 200,
	}
}

func (c temporalConfig) sql() *config.SQL {
	path := url.URL{Path: filepath.Join(c.Dir, temporalSchema)}
	return &config.SQL{
		PluginName:   sqliteplugin.PluginName,
		DatabaseName: path.EscapedPath(), // becomes a part of a URI
		ConnectAttributes: map[string]string{
			"mode":         "rwc",
			"journal_mode": "wal",
			"synchronous":  "1", // survives kill -9, not a power cut
			"busy_timeout": "10000",
		},
	}
}

// server builds what Temporal would read from its configuration file. It has no metrics
// endpoint and no archival.
func (c temporalConfig) server(sql *config.SQL) (*config.Config, error) {
	frontend, err := net.ResolveTCPAddr("tcp", c.Frontend)
	if err != nil {
		return nil, err
	}
	conf := &config.Config{}
	conf.Global.Membership.BroadcastAddress = loopback
	conf.Persistence = config.Persistence{
		DefaultStore:     temporalStore,
		VisibilityStore:  temporalStore,
		NumHistoryShards: historyShards,
		DataStores:       map[string]config.DataStore{temporalStore: {SQL: sql}},
	}
	conf.ClusterMetadata = &cluster.Config{
		FailoverVersionIncrement: 10,
		MasterClusterName:        temporalCluster,
		CurrentClusterName:       temporalCluster,
		ClusterInformation: map[string]cluster.ClusterInformation{
			temporalCluster: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: c.frontendHost()},
		},
	}
	conf.DCRedirectionPolicy.Policy = "noop"
	conf.Services = map[string]config.Service{}
	for name, port := range c.ports(frontend.Port) {
		service := config.Service{}
		service.RPC.GRPCPort = port
		service.RPC.BindOnIP = loopback
		if name == primitives.FrontendService {
			service.RPC.BindOnIP = frontend.IP.String()
		}
		conf.Services[string(name)] = service
	}
	conf.PublicClient.HostPort = c.frontendHost()
	for _, state := range []*string{
		&conf.Archival.History.State, &conf.Archival.Visibility.State,
		&conf.NamespaceDefaults.Archival.History.State, &conf.NamespaceDefaults.Archival.Visibility.State,
	} {
		*state = "disabled"
	}
	return conf, nil
}

func (c temporalConfig) ports(frontend int) map[primitives.ServiceName]int {
	return map[primitives.ServiceName]int{
		primitives.FrontendService: frontend,
		primitives.HistoryService:  c.History,
		primitives.MatchingService: c.Matching,
		primitives.WorkerService:   c.Worker,
	}
}

// hosts are the addresses of the services, without a membership protocol.
func (c temporalConfig) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range c.ports(0) {
		hosts[name] = static.SingleLocalHost(net.JoinHostPort(loopback, strconv.Itoa(port)))
	}
	hosts[primitives.FrontendService] = static.SingleLocalHost(c.frontendHost())
	return hosts
}

// frontendHost is the frontend for Temporal's own services.
func (c temporalConfig) frontendHost() string {
	addr, err := net.ResolveTCPAddr("tcp", c.Frontend)
	if err != nil {
		return c.Frontend
	}
	return addresses{addrTemporal: addr}.dial(addrTemporal)
}
