package tenure

import (
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
)

// After an attack an operator resets a site's epochs (holdfast admin reset-votes). The region's vote is reset
// first. A node follows once per number, also if it was disconnected, or was killed in between:
//
//	site.json   has the number and the epoch of the last reset
//	votes.json  is reset if its number is lower; a claim on a far epoch ends, and with it what runs
//	node.db     is reset if its number is lower
//
// The vote then waits a TTL, as after a restart. Every lease that it granted has ended by then.

// reset brings the votes up to the site's last reset.
func (k *Keeper) reset(state votefile.State, site *Site) (votefile.State, error) {
	if site.Resets <= state.Resets {
		return state, nil
	}
	was := state.Record.Promised
	if lease.Far(max(was, state.Claim.Epoch), site.ResetEpoch) {
		state.Claim = lease.Claim{}
	}
	if lease.Far(state.Known, site.ResetEpoch) {
		state.Known = site.ResetEpoch
	}
	state.Record = state.Record.Reset(site.ResetEpoch)
	state.Resets, state.ResetFrom = site.Resets, was
	k.opt.Log.Warn("an operator reset the site's votes", "reset", site.Resets, "epoch", site.ResetEpoch, "promised", was)
	return state, votefile.Save(k.votes(), state)
}

// lower brings the store up to the site's last reset. The hand adopts no earlier epoch afterwards.
func (k *Keeper) lower(site *Site) error {
	if site.Resets <= k.resets.Load() {
		return nil
	}
	k.epochs.Lock()
	defer k.epochs.Unlock()
	from, err := k.opt.Tenant.Reset(k.ctx, site.Resets, site.ResetEpoch)
	if err != nil {
		return err
	}
	k.resets.Store(site.Resets)
	k.resetFrom, k.foreign, k.owesTell.told = from, elsewhere{}, 0
	return nil
}
