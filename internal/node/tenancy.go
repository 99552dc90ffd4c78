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
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// tenancy is the runtime as the keeper of the deadline of all that it runs.
type tenancy interface {
	// Lease says until when everything may run. Nothing starts before the first call, and what
	// was said last outlives the agent.
	Lease(ctx context.Context, l guardian.Lease) error
	// Enforce kills, until the context ends, what runs on when that time is over.
	Enforce(ctx context.Context) error
}

// LeaseOptions are a node's part in its site's lease.
type LeaseOptions struct {
	// TTL is the link's heartbeat timeout, Interval how often heartbeats are sent.
	TTL, Interval time.Duration
	// Region is the region's vote.
	Region tenure.Region
	// Peer is host:port where the peer calls; "" for a node that has none.
	Peer string
	// PeerServed and PeerDialled are the TLS of the two nodes' votes; nil are in the clear.
	PeerServed  *tls.Config
	PeerDialled credentials.TransportCredentials
	// OwedLimit bounds how long a new active asks the region for deletes and disables that it
	// missed, before it starts anything; 2 s.
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

// grant comes before anything is started: from here on what runs has the end that it should.
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

// stand votes, stands and answers the peer until the context ends.
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

// servePeer keeps the peer's door open. Without it the node has the region's vote, so what
// keeps the port taken must not end the agent.
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
		a.opt.Log.Error("the peer is not served, trying again", "at", a.opt.Lease.Peer, "err", err)
		_ = pause(ctx, a.opt.Lease.Interval) // the next round sees that the context ended
	}
}

// tenant is what the lease moves of this node.
type tenant struct{ a *Agent }

var _ tenure.Tenant = tenant{}

// Lease moves the guardians' deadline.
func (t tenant) Lease(ctx context.Context, l guardian.Lease) error {
	if t.a.opt.Tenancy == nil {
		return nil
	}
	return t.a.opt.Tenancy.Lease(ctx, l)
}

// Owed takes in the deletes and disables that the node missed.
func (t tenant) Owed(ctx context.Context) error { return t.a.askOwed(ctx) }

// Adopt takes what the votes decided. Should the store know a higher epoch, the votes are to
// learn of it, and the lease is won anew above it.
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

// Settle compares what runs with what should.
func (t tenant) Settle() { t.a.Applier.Settle() }

// Reset lowers the far epochs of the store.
func (t tenant) Reset(ctx context.Context, number, epoch int64) (from int64, err error) {
	return t.a.Store.ResetEpochs(ctx, number, epoch)
}

// Floor is the highest epoch that the node has seen.
func (t tenant) Floor(ctx context.Context) (int64, error) {
	meta, err := t.a.Store.Meta(ctx)
	return meta.Epoch, err
}

// stopAgain is the pause between two looks at what is still being stopped.
const stopAgain = 20 * time.Millisecond

// Stop ends what runs; the node may not run anything when it is called. Work that is under
// way is ended first, and what it started with it.
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
		if err := pause(ctx, stopAgain); err != nil {
			return err
		}
	}
}
