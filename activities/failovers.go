package activities

import (
	"context"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// failoverStore knows what is asked of a site's lease; each call may be repeated.
type failoverStore interface {
	// SeeFailover takes over what is asked, and notes why it waited since the look before.
	SeeFailover(ctx context.Context, in fleet.FailoverLook) (fleet.FailoverSeen, error)
	EndFailover(ctx context.Context, e fleet.FailoverEnd) error
}

// aimer has the region's vote favour one node only, or anybody again with "".
type aimer interface {
	Aim(ctx context.Context, site fleet.SiteName, to fleet.NodeName) error
}

// Failovers are the steps of FailoverSite in the region.
type Failovers struct {
	Store  failoverStore
	Votes  aimer
	Doors  doorTeller
	Signer Signer
	// Nodes wakes those that may be asked next; nil where none idles.
	Nodes nodeWaker
	Build string
	// Ended is told how each failover ended; nil tells nobody.
	Ended func(end fleet.FailoverEnd)
}

// SeeFailover reads what is asked of a site's lease, and where the lease is.
func (f *Failovers) SeeFailover(ctx context.Context, in fleet.FailoverLook) (fleet.FailoverSeen, error) {
	if err := fleet.ValidateName("/site", string(in.Site)); err != nil {
		return fleet.FailoverSeen{}, fail(ctx, err)
	}
	in.Build = f.Build
	seen, err := f.Store.SeeFailover(ctx, in)
	if err != nil || seen.Operation == "" {
		return seen, fail(ctx, err)
	}
	if seen.Signed, err = f.sign(ctx, in.Site, seen); err != nil {
		return seen, fail(ctx, err)
	}
	return seen, fail(ctx, wakeNodes(ctx, f.Nodes, seen.Holder, seen.To))
}

// sign gives the word for each that the workflow may ask next.
func (f *Failovers) sign(ctx context.Context, site fleet.SiteName, seen fleet.FailoverSeen) (out fleet.FailoverSigned, err error) {
	for _, ask := range []struct {
		into *fleet.Signature
		node fleet.NodeName
		cmd  fleet.Command
	}{
		{&out.HandOver, seen.Holder, seen.HandOver(site)},
		{&out.TakeOver, seen.To, fleet.TakeOverCommand{Site: site}},
		{&out.Forced, seen.To, fleet.TakeOverCommand{Site: site, Forced: true}},
	} {
		if *ask.into, err = f.Signer.Sign(ctx, ask.node, ask.cmd); err != nil {
			return out, err
		}
	}
	return out, nil
}

// FailoverTarget names a node that a site's lease is to go to.
type FailoverTarget struct {
	Site fleet.SiteName `json:"site"`
	To   fleet.NodeName `json:"to,omitempty"`
}

// AimVote has the region's vote favour one node only, or anybody again.
func (f *Failovers) AimVote(ctx context.Context, in FailoverTarget) error {
	return fail(ctx, f.Votes.Aim(ctx, in.Site, in.To))
}

// EndFailover ends what was asked, and tells the doors.
func (f *Failovers) EndFailover(ctx context.Context, in fleet.FailoverEnd) error {
	if err := f.Store.EndFailover(ctx, in); err != nil {
		return fail(ctx, err)
	}
	if err := f.Doors.TellDoors(ctx, fleet.SiteSubject(in.Site)); err != nil {
		return fail(ctx, err)
	}
	if f.Ended != nil {
		f.Ended(in)
	}
	return nil
}
