package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.temporal.io/sdk/client"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/activities"
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/link/tasks"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/provider"
	"github.com/holdfast-io/holdfast/workers"
)

const (
	nodePairs     = 1000
	nodesCrowd    = 8
	nodesSettle   = 5 * time.Minute // until Temporal has let go of queues that nobody uses
	nodesIdleWait = 10 * time.Minute
	nodesWatch    = 30 * time.Second
	nodesWoken    = 20 // a round
	nodesTries    = 10

	nodesMemory      = 500.0 // MB
	nodesTemporalCPU = 5.0   // percent of one core
	nodesServerCPU   = 30.0  // for 2,000 streams with a heartbeat every 5 s
	nodesWakeLimit   = 25.0  // ms above an awake node
)

// measureNodes has 2,000 nodes enrolled and connected that have nothing to do, and looks at what
// they cost Temporal and the server. Each has a worker and a stream of its own, as a node's
// process has; what it would hold is left out.
func measureNodes(ctx context.Context, l *lab) ([]figure, error) {
	r, err := l.start(ctx, "--empty")
	if err != nil {
		return nil, err
	}
	defer r.stop()
	l.say("enrolling %d nodes …", 2*nodePairs)
	c := &idleCrowd{region: r, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: nodesCrowd}}}
	defer c.stop()
	began := time.Now()
	if err := c.enrol(ctx); err != nil {
		return nil, err
	}
	l.say("they took %s; waiting until all idle …", time.Since(began).Round(time.Second))
	if err := c.rests(ctx); err != nil {
		return nil, err
	}
	if err := pause.For(ctx, nodesSettle); err != nil {
		return nil, err
	}
	cost, err := c.cost(ctx, l)
	if err != nil {
		return nil, err
	}
	woken, err := c.wakes(ctx, l)
	return append(cost, woken...), err
}

// idleCrowd are nodes of one region.
type idleCrowd struct {
	*region
	http  *http.Client
	nodes []*idleNode
}

// idleNode is a node as its region sees it.
type idleNode struct {
	name    fleet.NodeName
	key     identity.Key
	gate    *idle.Gate
	client  client.Client
	worker  worker.Worker
	stop    context.CancelFunc
	stopped chan struct{}
}

// GetRequestMetadata signs each call, as a node does.
func (n *idleNode) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := n.key.Sign(identity.LinkAudience, time.Now())
	return map[string]string{"authorization": "Bearer " + token}, err
}

// RequireTransportSecurity is false on the loopback.
func (*idleNode) RequireTransportSecurity() bool { return false }

// Reconcile finds that a node without instances holds what it should.
func (*idleNode) Reconcile(context.Context, fleet.ReconcileCommand) (fleet.ReconcileReport, error) {
	return fleet.ReconcileReport{}, nil
}

func (c *idleCrowd) enrol(ctx context.Context) error {
	c.nodes = make([]*idleNode, 2*nodePairs)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(nodesCrowd)
	for i := range nodePairs {
		group.Go(func() error {
			site := fmt.Sprintf("idle-%04d", i)
			_, err := c.api.PutSite(ctx, site, api.SitePut{Nodes: []api.SiteNode{
				{Name: site + "-a", Role: fleet.RoleActive}, {Name: site + "-b", Role: fleet.RoleStandby},
			}}, api.Mutation{})
			for j, name := range []string{site + "-a", site + "-b"} {
				if err == nil {
					c.nodes[2*i+j], err = c.join(ctx, fleet.SiteName(site), fleet.NodeName(name))
				}
			}
			return err
		})
	}
	return group.Wait()
}

// join enrols a node, connects it, and says that it has started.
func (c *idleCrowd) join(ctx context.Context, site fleet.SiteName, name fleet.NodeName) (*idleNode, error) {
	token, err := c.api.CreateJoinToken(ctx, api.JoinTokenRequest{Site: string(site), Node: string(name)}, api.Mutation{})
	if err != nil {
		return nil, err
	}
	n := &idleNode{name: name, stopped: make(chan struct{})}
	if n.key, err = identity.Generate(name); err != nil {
		return nil, err
	}
	door := &node.Client{API: c.doc.API, HTTP: c.http, Key: func() identity.Key { return n.key }, Now: time.Now}
	at, err := door.Enrol(ctx, token.Token, site)
	if err != nil {
		return nil, err
	}
	n.key = n.key.Enrolled(at.Region)
	if err := n.connect(c.doc.Link); err != nil {
		return nil, err
	}
	id, err := identity.Generate(name) // any unique text
	if err != nil {
		return nil, err
	}
	_, err = door.Started(ctx, node.StartedPage{StartID: identity.EncodePublic(id.SigningPublic())[:32], Last: true})
	return n, err
}

func (n *idleNode) connect(link string) error {
	quiet := slog.New(slog.DiscardHandler)
	work := &activities.Node{Reconciler: n}
	n.gate = idle.New(time.Now, func() bool { return work.InFlight() > 0 })
	var err error
	n.client, err = client.NewLazyClient(client.Options{
		HostPort: link, Namespace: tasks.Namespace, Identity: "node." + string(n.name), Logger: sdklog.NewStructuredLogger(quiet),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{
			grpc.WithPerRPCCredentials(n), grpc.WithChainUnaryInterceptor(n.gate.Unary),
		}},
		WorkerHeartbeatInterval: -1,
	})
	if err != nil {
		return fmt.Errorf("make a client of the link: %w", err)
	}
	stream, err := provider.New(provider.Options{
		Address: link, Name: string(n.name), Insecure: true, Logger: quiet, MaxReconnectAttempts: -1, InFlight: work.InFlight,
		Token:  func(context.Context) (string, error) { return n.key.Sign(identity.LinkAudience, time.Now()) },
		OnWake: n.gate.Wake,
		OnState: func(st provider.Status) {
			if st.State == provider.Active {
				n.gate.Connected(st.IdleAfter)
			} else {
				n.gate.Lost()
			}
		},
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() {
		defer close(n.stopped)
		_ = stream.Run(ctx) // it ends with stop
	}()
	for range nodesTries { // so many at once are slow to be let in
		w := workers.NewNode(n.client, n.name, work)
		if err = w.Start(); err == nil {
			n.worker = w
			return nil
		}
	}
	return err
}

// stop lets the nodes go: first their gates and streams, for a worker waits for its polls.
func (c *idleCrowd) stop() {
	var group errgroup.Group
	for _, n := range c.nodes {
		if n == nil {
			continue
		}
		n.gate.Close()
		group.Go(func() error {
			n.stop()
			n.client.Close()
			n.worker.Stop()
			<-n.stopped
			return nil
		})
	}
	_ = group.Wait() // none of them fails
}

// rests waits until next to no node asks for tasks: on a busy machine one or the other loses its
// stream.
func (c *idleCrowd) rests(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodesIdleWait)
	defer cancel()
	for c.asking() > len(c.nodes)/100 {
		if err := pause.For(ctx, time.Second); err != nil {
			return errors.Join(errors.New("some nodes do not idle"), err)
		}
	}
	return nil
}

func (c *idleCrowd) asking() int {
	n := 0
	for _, of := range c.nodes {
		if of.gate.Asking() > 0 {
			n++
		}
	}
	return n
}

// cost is what the idle nodes take from Temporal, and from the server that has their streams.
func (c *idleCrowd) cost(ctx context.Context, l *lab) ([]figure, error) {
	var pids []int
	for _, name := range []string{"temporal", "server"} {
		pid, err := c.pid(name)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	var temporalMemory, server, serverMemory series
	temporal, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) {
		used, err := percents(ctx, nodesWatch, pids...)
		if err != nil {
			return 0, err
		}
		server.ours = append(server.ours, used[1])
		for i, of := range []*series{&temporalMemory, &serverMemory} {
			kb, err := kilobytes(pids[i], "status", "VmRSS")
			if err != nil {
				return 0, err
			}
			of.ours = append(of.ours, float64(kb<<10)/megabyte)
		}
		return used[0], nil
	}, loopPercent)
	server.plain = temporal.plain
	return []figure{
		{name: "nodes: memory of Temporal, 2,000 idle nodes", unit: "MB", series: temporalMemory, by: byValue, limit: nodesMemory},
		{name: "nodes: CPU of Temporal, of one core", unit: "%", series: temporal, by: byValue, limit: nodesTemporalCPU},
		{name: "nodes: memory of the server, 2,000 idle nodes", unit: "MB", series: serverMemory, by: byValue, limit: nodesMemory},
		{name: "nodes: CPU of the server, of one core", unit: "%", series: server, by: byValue, limit: nodesServerCPU},
	}, err
}

// wakes compares some nodes that idle, and others that were compared just before and are awake.
func (c *idleCrowd) wakes(ctx context.Context, l *lab) ([]figure, error) {
	next := 0
	some := func(ctx context.Context, awake bool) (float64, error) {
		var times []time.Duration
		for range nodesWoken {
			name := c.nodes[next*len(c.nodes)/(2*rounds*nodesWoken)].name
			next++
			took, err := c.compared(ctx, name)
			if err == nil && awake {
				took, err = c.compared(ctx, name)
			}
			if err != nil {
				return 0, err
			}
			times = append(times, took)
		}
		return inMillis(quantile(times, 0.5)), nil
	}
	s, err := l.inTurn(ctx, func(ctx context.Context, _ int) (float64, error) { return some(ctx, false) },
		func(ctx context.Context, _ int) (float64, error) { return some(ctx, true) })
	return []figure{{
		name: "nodes: comparison of an idle node, above an awake one, p50", unit: "ms", series: s, by: byDifference, limit: nodesWakeLimit,
	}}, err
}

func (c *idleCrowd) compared(ctx context.Context, name fleet.NodeName) (time.Duration, error) {
	began := time.Now()
	out, err := c.api.ReconcileNode(ctx, string(name), api.Mutation{})
	if err != nil {
		return 0, err
	}
	op := *out.Operation
	for !op.State.Ended() {
		if op, err = c.api.Operation(ctx, op.ID, nodesWatch); err != nil {
			return 0, err
		}
	}
	if op.State != fleet.OperationSucceeded {
		return 0, fmt.Errorf("the comparison of %s ended as %s: %s", name, op.State, op.Reason)
	}
	return time.Since(began), nil
}
