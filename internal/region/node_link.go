package region

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/provider"
)

// linkBack is the longest pause before a node tries again to reach its region: what it runs is given up not long
// after the region is there again (link_there, of the database).
const linkBack = 15 * time.Second

// linkRefused is the pause after the region refused the node: until an operator acts, or the
// clocks agree again.
const linkRefused = 30 * time.Second

// nodeLink keeps a node on the region's link, as a provider under its own name. Without the
// link the node does all that it does with it: the region only sees less of it.
type nodeLink struct {
	cfg      NodeConfig
	agent    enrolled
	inFlight func() int
	gate     *idle.Gate
	log      *slog.Logger
	// onSite is told of the node's site, nil for a node that has no vote.
	onSite func(*nodev1.Site)
	// replicas is what the node does for deployments, nil for nothing.
	replicas *nodeReplicas
}

// enrolled is who a node is: once Enrolled is closed, the region knows its key.
type enrolled interface {
	Enrolled() <-chan struct{}
	Key() identity.Key
}

// whileReplicas stays on the link until what is to end with the node has ended: the node's last word
// says so, and the region need not wait for it. stopReplicas bounds that.
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
	select { // before that, no region knows the key
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
		MaxReconnectAttempts: -1, Backoff: provider.Backoff{Max: linkBack}, Rejoin: true, PeerAddress: n.cfg.Peer, OnSite: n.onSite,
		OnWake: n.gate.Wake, OnState: n.onState,
	}
	if n.replicas != nil {
		options.Replicas, options.OnReplicaSet = n.replicas.keeper, n.replicas.keeper.OnReplicaSet
		options.ReplicasEnded = n.replicas.ended.Load
	}
	for {
		var changed <-chan struct{} // since what the node tells of its machine when it registers
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
		if again || !n.agent.Key().Same(key) { // what the old one opened was ended
			continue
		}
		n.log.Error("the region does not take this node on its link", "again", linkRefused.String(), "error", err)
		pause(ctx, linkRefused)
	}
}

// until runs something until it ends or something changed, and says which.
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

// onState says whether a wake would reach the node, and whether it is to ask for anything.
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

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
