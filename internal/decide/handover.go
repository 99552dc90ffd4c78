package decide

import (
	"slices"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// OwnerStep is what a region does about the ownership of an object.
type OwnerStep string

// The steps.
const (
	OwnerStays OwnerStep = "stays" // with the region that owns the object
	OwnerWaits OwnerStep = "waits" // this region is to own it, and may not claim it yet
	OwnerTakes OwnerStep = "takes" // this region takes it over
)

// Ownership is an object beside the policy that governs it, as one region knows them.
type Ownership struct {
	Self, Owner string // Owner owns the object now
	Kind        fleet.ObjectKind
	Policy      *fleet.MultiRegionPolicy // nil: none governs it
	// Itself: the object carries the policy. HolderOwner owns the object that does.
	Itself      bool
	HolderOwner string
	// Epoch is that of the object, HolderEpoch that of the object that carries the policy.
	Epoch, HolderEpoch int64
	// InSync: this region has all that the owner wrote before it fenced itself. Renounced: it promised not to claim.
	InSync, Renounced bool
}

var ownerRules = []struct {
	name string
	when func(o Ownership) bool
	then OwnerStep
}{
	{"regional", func(o Ownership) bool { return !o.Kind.Declared().Shared }, OwnerStays},
	{"ungoverned", func(o Ownership) bool { return o.Policy == nil }, OwnerStays},
	{"other_control_region", func(o Ownership) bool { return o.Policy != nil && o.Policy.DefaultControlRegion != o.Self }, OwnerStays},
	{"behind_its_holder", func(o Ownership) bool {
		return o.Owner == o.Self && !o.Itself && o.HolderOwner == o.Self && o.Epoch < o.HolderEpoch
	}, OwnerTakes},
	{"owned", func(o Ownership) bool { return o.Owner == o.Self }, OwnerStays},
	{"renounced", func(o Ownership) bool { return o.Itself && o.Renounced }, OwnerStays},
	{"not_in_sync", func(o Ownership) bool { return o.Itself && !o.InSync }, OwnerWaits},
	{"claim", func(o Ownership) bool { return o.Itself }, OwnerTakes},
	{"holder_not_claimed", func(o Ownership) bool { return o.HolderOwner != o.Self }, OwnerWaits},
	{"follows_its_holder", func(Ownership) bool { return true }, OwnerTakes},
}

// Owner decides whether a region takes an object over, and names the rule (M34).
func Owner(o Ownership) (OwnerStep, string) {
	for _, r := range ownerRules {
		if r.when(o) {
			return r.then, r.name
		}
	}
	return OwnerStays, "unmatched"
}

// Kept computes the syncing of an object whose policy gives it to another region that has not taken it over: it stays
// with its owner, and the new one has it whatever the criteria say.
func Kept(kind fleet.ObjectKind, owner string, policy *fleet.MultiRegionPolicy) fleet.Syncing {
	out, row := fleet.Syncing{OwningRegion: owner, Regions: []string{owner}}, kind.Declared()
	for _, region := range policy.EnabledRegions {
		if region != owner && (region == policy.DefaultControlRegion || row.Holder || !policy.Disables(row.Title, owner, region)) {
			out.Regions = append(out.Regions, region)
		}
	}
	slices.Sort(out.Regions)
	return out
}

// Over is what a region knows of the policy over an object that a peer sends.
type Over struct {
	Policy *fleet.MultiRegionPolicy // nil: none is known
	// Itself: the object carries the policy, as this region last knew it.
	Itself bool
	// Owner owns the holder that governs, also while that is handed on; without a policy, it owns the nearest holder, or owned the one that went from here.
	Owner string
}

// Proves reports to a region whether a peer may own an object that another one owned, by the policy that is known here: a holder
// goes to a region that its policy enables, what it governs to its control region or the one that still owns the holder (M38).
// A control region that owns the holder takes over what any enabled region has: that one may have lost a claim of the holder.
// Without a policy, it is the owner of the holder, who may have taken the policy away since; once the holder has gone from here, its last owner.
func (o Over) Proves(self, peer fleet.RegionName) bool {
	switch {
	case o.Policy == nil:
		return o.Owner == string(peer)
	case o.Itself || o.Policy.DefaultControlRegion == string(self) && o.Owner == string(self):
		return slices.Contains(o.Policy.EnabledRegions, string(peer))
	}
	return o.Policy.DefaultControlRegion == string(peer) || o.Owner == string(peer)
}

// Gives reports whether a peer owns the holder, owned it when that went from here, or is to own it.
func (o Over) Gives(peer fleet.RegionName) bool {
	return o.Owner == string(peer) || o.Policy != nil && o.Policy.DefaultControlRegion == string(peer)
}

// Shares reports whether the policy that is known here has what a region created and owns copied to another one, of a
// kind that is not shared.
func (o Over) Shares(kind fleet.ObjectKind, owner, to fleet.RegionName) bool {
	return o.Policy != nil && Syncing(kind, string(owner), o.Policy).In(to)
}
