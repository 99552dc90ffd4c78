package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
	"github.com/holdfast-io/holdfast/internal/pause"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// tenancy is the runtime as the owner of the deadline of all that it runs.
type tenancy interface {
	// Lease sets until when everything may run. Nothing starts before the first call; the last value outlives the
	// agent.
	Lease(ctx context.Context, l guardian.Lease) error
	// Enforce kills, until the context ends, what still runs after that time.
	Enforce(ctx context.Context) error
}

// LeaseOptions configure a node's part in its site's lease.
type LeaseOptions struct {
	// TTL is the link's heartbeat timeout, Interval how often heartbeats are sent.
	TTL, Interval time.Duration
	// Region is the region's vote.
	Region tenure.Region
	// Peer is host:port where the peer calls; "" for a node without a peer.
	Peer string
	// PeerServed and PeerDialled are the TLS settings of the votes between the two nodes; nil is plain text.
	PeerServed  *tls.Config
	PeerDialled credentials.TransportCredentials
	// OwedLimit bounds how long a new active asks the region for missed deletes and disables before it starts
	// anything; 2 s.
	OwedLimit time.Duration
}

func (a *Agent) openLease() (err error) {
	o := a.opt.Lease
	if o == nil {
		return nil
	}
	var served credentials.TransportCredentials
	if o.PeerServed != nil {
		served = certs.Listener(o.PeerServed, audit.DoorPeer, a.opt.Now, a.opt.Log, func(r audit.Refusal) { a.refusals.add(r) })
	}
	a.Leases, err = tenure.Open(tenure.Options{
		Site: a.opt.Site, Node: a.opt.Node, Dir: a.opt.Dir, TTL: o.TTL, Interval: o.Interval, Key: a.Key,
		Tenant: tenant{a}, Region: o.Region, Log: a.opt.Log, Wall: a.opt.Now, OwedLimit: o.OwedLimit,
		Served: served, Dialled: o.PeerDialled, Refused: a.refusals.add,
	})
	if err == nil {
		a.opt.MayRun = a.Leases.MayRun
	}
	return err
}

// grant runs before anything starts: from here on everything that runs has its deadline.
func (a *Agent) grant(ctx context.Context) error {
	if a.Leases != nil {
		return a.Leases.Begin(ctx)
	}
	return tenant{a}.Lease(ctx, guardian.NoDeadline())
}

func (a *Agent) enforce(ctx context.Context) error {
	if a.opt.Tenancy == nil {
		return nil
	}
	return a.opt.Tenancy.Enforce(ctx)
}

// stand votes, stands for the lease and answers the peer until the context ends.
func (a *Agent) stand(ctx context.Context) error {
	if a.Leases == nil {
		return nil
	}
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { served <- a.servePeer(ctx) }()
	err := a.Leases.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// servePeer keeps the peer's port open. Without it the node has the region's vote, so a port that is in use
// must not end the agent.
func (a *Agent) servePeer(ctx context.Context) error {
	if a.opt.Lease.Peer == "" {
		return nil
	}
	for {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.opt.Lease.Peer)
		if err == nil {
			err = a.Leases.Serve(ctx, l)
		}
		if ctx.Err() != nil {
			return nil
		}
		a.opt.Log.Error("serve the peer, retrying", "at", a.opt.Lease.Peer, "err", err)
		_ = pause.For(ctx, a.opt.Lease.Interval) // the next round notices that the context ended
	}
}

// tenant connects the lease to this node.
type tenant struct{ a *Agent }

var _ tenure.Tenant = tenant{}

// Lease moves the guardians' deadline.
func (t tenant) Lease(ctx context.Context, l guardian.Lease) error {
	if t.a.opt.Tenancy == nil {
		return nil
	}
	return t.a.opt.Tenancy.Lease(ctx, l)
}

// Owed applies the deletes and disables that the node missed.
func (t tenant) Owed(ctx context.Context) error { return t.a.askOwed(ctx) }

// Adopt applies what the votes decided. If the store knows a higher epoch, the votes must learn it, and the
// lease is won again above it.
func (t tenant) Adopt(ctx context.Context, role fleet.Role, epoch int64, holder fleet.NodeName) error {
	want := sqlite.Right{Role: role, Epoch: epoch}
	if err := t.a.Applier.adopt(ctx, want, holder); err != nil {
		return err
	}
	meta, err := t.a.Store.Meta(ctx)
	if err == nil && role == fleet.RoleActive && meta.Right != want {
		t.a.Leases.Raise(meta.Epoch)
	}
	return err
}

// Settle compares what runs with what should run.
func (t tenant) Settle() { t.a.Applier.Settle() }

// Reset lowers epochs of the store that are too far ahead.
func (t tenant) Reset(ctx context.Context, number, epoch int64) (from int64, err error) {
	return t.a.Store.ResetEpochs(ctx, number, epoch)
}

// Floor is the highest epoch that the node has seen.
func (t tenant) Floor(ctx context.Context) (int64, error) {
	meta, err := t.a.Store.Meta(ctx)
	return meta.Epoch, err
}

// stopAgain is the pause between two checks of what is still stopping.
const stopAgain = 20 * time.Millisecond

// Stop ends what runs; call it only when the node may not run anything. It first ends work under way, with all
// that it started.
func (t tenant) Stop(ctx context.Context) error {
	for {
		if err := t.a.Applier.settleAll(ctx); err != nil {
			return err
		}
		all, err := t.a.opt.Runtime.List(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(st guardian.Status) bool { return st.Guardian != guardian.Ended }) {
			return nil
		}
		if pause.For(ctx, stopAgain) != nil {
			return ctx.Err()
		}
	}
}
