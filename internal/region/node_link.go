package region

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/provider"
)

// linkRefused is the pause after the region refused the node: until an operator acts, or the clocks agree again.
const linkRefused = 30 * time.Second

// nodeLink keeps a node connected to the region's link, as a provider under its own name. Without the link the node
// works as before, but the region sees less of it.
type nodeLink struct {
	cfg      NodeConfig
	agent    enrolled
	inFlight func() int
	gate     *idle.Gate
	log      *slog.Logger
	// onSite gets the node's site; nil for a node without a vote.
	onSite func(*nodev1.Site)
	// replicas is the node's part in deployments, nil for none.
	replicas *nodeReplicas
}

// enrolled is the node's identity: once Enrolled is closed, the region knows its key.
type enrolled interface {
	Enrolled() <-chan struct{}
	Key() identity.Key
}

// reconnect is the longest pause of a node between attempts to reach the region: half the heartbeat timeout. Once the region itself is
// back, it soon gives up on the replicas of a node that is not (link_there in the database), and on tasks that the node does not take.
func (cfg NodeConfig) reconnect() time.Duration {
	return max(time.Second, cfg.Timing.Link.HeartbeatTimeout/2)
}

// whileReplicas stays connected until the replicas that end with the node have ended: the node's last report
// confirms it, and the region need not wait. stopReplicas limits that time.
func (n *nodeLink) whileReplicas(ctx, running context.Context) error {
	group, running := errgroup.WithContext(running)
	linked, unlink := context.WithCancel(context.WithoutCancel(running))
	group.Go(func() error {
		defer unlink()
		return n.replicas.run(ctx, running)
	})
	group.Go(func() error { return n.run(linked) })
	return group.Wait()
}

func (n *nodeLink) run(ctx context.Context) error {
	select { // before that, the region does not know the key
	case <-ctx.Done():
		return ctx.Err()
	case <-n.agent.Enrolled():
	}
	target, err := linkTarget(n.cfg.Link)
	if err != nil {
		return err
	}
	options := provider.Options{
		Address: target, Name: n.cfg.Node, TLS: n.cfg.security, Insecure: n.cfg.security == nil, Logger: n.log, InFlight: n.inFlight,
		Token: func(context.Context) (string, error) {
			return n.agent.Key().Sign(identity.LinkAudience, time.Now())
		},
		MaxReconnectAttempts: -1, Backoff: provider.Backoff{Max: n.cfg.reconnect()}, Rejoin: true, PeerAddress: n.cfg.Peer, OnSite: n.onSite,
		OnWake: n.gate.Wake, OnState: n.onState,
	}
	if n.replicas != nil {
		options.Replicas, options.OnReplicaSet = n.replicas.keeper, n.replicas.keeper.OnReplicaSet
		options.ReplicasEnded, options.OnReplicasReport = n.replicas.ended.Load, n.replicas.keeper.OnReplicasReport
	}
	for {
		var changed <-chan struct{} // closed when the facts of the registration change
		if n.replicas != nil {
			options.NodeFacts, changed = n.replicas.facts.now()
		}
		link, err := provider.New(options)
		if err != nil {
			return err
		}
		key := n.agent.Key()
		again, err := until(ctx, changed, link.Run)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if again || !n.agent.Key().Same(key) { // connections of the old key were ended
			continue
		}
		n.log.Error("the region refused this node on its link", "again", linkRefused.String(), "error", err)
		_ = pause.For(ctx, linkRefused)
	}
}

// until runs something until it ends or something changed, and reports which.
func until(ctx context.Context, changed <-chan struct{}, run func(context.Context) error) (again bool, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	select {
	case err := <-ended:
		return false, err
	case <-changed:
		end()
		return true, <-ended
	}
}

// onState updates whether a wake would reach the node, and whether it should poll.
func (n *nodeLink) onState(st provider.Status) {
	streams := st.State == provider.Active || st.State == provider.Draining
	switch {
	case n.replicas == nil:
	case streams:
		n.replicas.keeper.Heard()
	default:
		n.replicas.keeper.Lost()
	}
	switch {
	case st.State == provider.Draining:
		n.gate.Draining()
	case streams:
		n.gate.Connected(st.IdleAfter)
	default:
		n.gate.Lost()
	}
}
