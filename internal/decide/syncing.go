package decide

import (
	"cmp"
	"slices"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Governing is the policy over an object: the first that its possible holders carry, in the order service, project,
// organization. It governs alone; nil is none.
func Governing(holders ...*fleet.MultiRegionPolicy) *fleet.MultiRegionPolicy {
	for _, p := range holders {
		if p != nil {
			return p
		}
	}
	return nil
}

// Syncing computes which region owns an object and which regions have it (M42). owner is the region that owns it now, or
// declares it. Without a policy, or where the policy does not enable its owner, an object stays in its region.
// A holder goes to all enabled regions: each needs it to compute the same.
func Syncing(kind fleet.ObjectKind, owner string, holders ...*fleet.MultiRegionPolicy) fleet.Syncing {
	policy, row := Governing(holders...), kind.Declared()
	if policy != nil && row.Shared {
		owner = policy.DefaultControlRegion
	}
	if policy == nil || !slices.Contains(policy.EnabledRegions, owner) {
		return fleet.Syncing{OwningRegion: owner, Regions: []string{owner}}
	}
	out := fleet.Syncing{OwningRegion: owner}
	for _, region := range policy.EnabledRegions {
		if region == owner || row.Holder || !policy.Disables(row.Title, owner, region) {
			out.Regions = append(out.Regions, region)
		}
	}
	slices.Sort(out.Regions)
	return out
}

// MayDeclare refuses to write an object in a region where the policy over it does not allow that. The key of a new object
// has no region: the one that may declare it would create it.
func MayDeclare(key fleet.CopyKey, region string, holders ...*fleet.MultiRegionPolicy) error {
	policy := Governing(holders...)
	switch {
	case policy == nil:
		return nil
	case key.Kind.Declared().Shared && policy.DefaultControlRegion != region:
		key.Region = cmp.Or(key.Region, fleet.RegionName(policy.DefaultControlRegion))
		return fleet.OwnedBy(key, policy.DefaultControlRegion)
	case !slices.Contains(policy.EnabledRegions, region):
		return fleet.Errorf(fleet.IllegalState, "the policy over %s does not enable region %s; enabled: %s",
			key.ObjectKey, region, strings.Join(slices.Sorted(slices.Values(policy.EnabledRegions)), ", ")).
			WithHint("declare it in an enabled region, or enable this one in multiRegionPolicy; here it can only be deleted")
	}
	return nil
}
