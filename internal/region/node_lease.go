package region

import (
	"context"
	"log/slog"
	"time"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// regionVote requests the region's vote for a node, over the link.
type regionVote struct {
	cfg    NodeConfig
	agent  *node.Agent
	remote *tenure.Remote
	log    *slog.Logger
}

var _ tenure.Region = (*regionVote)(nil)

func (v *regionVote) options() *node.LeaseOptions {
	return &node.LeaseOptions{
		TTL: v.cfg.Timing.Link.HeartbeatTimeout, Interval: v.cfg.Timing.Link.HeartbeatEvery, Region: v, Peer: v.cfg.Peer,
		PeerServed: v.cfg.peerServed, PeerDialled: v.cfg.peerDialled,
		OwedLimit: v.cfg.Timing.Owed,
	}
}

// of sets the agent whose key signs; it is called before the agent runs.
func (v *regionVote) of(agent *node.Agent) {
	v.agent = agent
	v.remote = &tenure.Remote{Key: agent.Key, Wall: time.Now, Redial: v.cfg.Timing.Link.HeartbeatEvery / 2}
	if v.cfg.security != nil {
		v.remote.TLS = certs.Caller(v.cfg.security)
	}
	if target, err := linkTarget(v.cfg.Link); err == nil { // nodeLink reports the error
		v.remote.At(target, identity.LinkAudience)
	}
}

func (v *regionVote) close() {
	if v.remote != nil {
		v.remote.Close()
	}
}

// Vote asks the region for its vote. Before the region knows the node's key, it fails.
func (v *regionVote) Vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error) {
	if err := v.known(); err != nil {
		return lease.Answer{}, err
	}
	return v.remote.Vote(ctx, call, q)
}

// Tell reports to the region what a site of one node decided.
func (v *regionVote) Tell(ctx context.Context, site fleet.SiteName, epoch int64) error {
	if err := v.known(); err != nil {
		return err
	}
	return v.remote.Tell(ctx, site, epoch)
}

func (v *regionVote) known() error {
	if v.agent.Key().Region() == "" {
		return fleet.Errorf(fleet.Unavailable, "the node is not enrolled yet")
	}
	return nil
}

// onSite passes on the region's description of the site.
func (v *regionVote) onSite(ctx context.Context) func(*nodev1.Site) {
	return func(in *nodev1.Site) {
		site, err := tenure.SiteOf(in)
		if err == nil {
			v.complain(site)
			err = v.agent.Leases.SetSite(ctx, site)
		}
		if err != nil && ctx.Err() == nil {
			v.log.Error("the region's description of the site was rejected", "err", err)
		}
	}
}

// complain warns if a node of a pair has no address for the other's calls.
func (v *regionVote) complain(site tenure.Site) {
	if v.cfg.Peer == "" && site.Paired(v.agent.Key().Node()) {
		v.log.Warn("the other node of the pair cannot reach this one, so failover needs the region; give --peer HOST:PORT",
			"site", site.Name)
	}
}
