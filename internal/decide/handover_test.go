package decide_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M34: when a region takes an object over.
func TestOwner(t *testing.T) {
	t.Parallel()
	const project, template, pool = fleet.KindProject, fleet.KindTemplate, fleet.KindPool
	mine, other := policyOf("us", "eu"), policyOf("ap", "eu", "us")
	for _, row := range []struct {
		o    decide.Ownership
		step decide.OwnerStep
		rule string
	}{
		{decide.Ownership{Kind: pool, Policy: mine}, decide.OwnerStays, "regional"},
		{decide.Ownership{Kind: template}, decide.OwnerStays, "ungoverned"},
		{decide.Ownership{Kind: template, Policy: other}, decide.OwnerStays, "other_control_region"},
		{decide.Ownership{Kind: template, Policy: mine, Owner: "us"}, decide.OwnerStays, "owned"},
		{decide.Ownership{Kind: template, Policy: mine, Owner: "us", HolderOwner: "us", Epoch: 3, HolderEpoch: 3}, decide.OwnerStays, "owned"},
		{decide.Ownership{Kind: template, Policy: mine, Owner: "us", HolderOwner: "us", Epoch: 1, HolderEpoch: 3}, decide.OwnerTakes, "behind_its_holder"},
		{decide.Ownership{Kind: template, Policy: mine, Owner: "us", HolderOwner: "eu", Epoch: 1, HolderEpoch: 3}, decide.OwnerStays, "owned"},
		{decide.Ownership{Kind: project, Policy: mine, Itself: true, InSync: true, Renounced: true}, decide.OwnerStays, "renounced"},
		{decide.Ownership{Kind: project, Policy: mine, Itself: true}, decide.OwnerWaits, "not_in_sync"},
		{decide.Ownership{Kind: project, Policy: mine, Itself: true, InSync: true}, decide.OwnerTakes, "claim"},
		{decide.Ownership{Kind: template, Policy: mine, HolderOwner: "eu"}, decide.OwnerWaits, "holder_not_claimed"},
		{decide.Ownership{Kind: template, Policy: mine, HolderOwner: "us"}, decide.OwnerTakes, "follows_its_holder"},
	} {
		row.o.Self, row.o.Owner = "us", cmp.Or(row.o.Owner, "eu")
		step, rule := decide.Owner(row.o)
		require.Equal(t, []any{row.step, row.rule}, []any{step, rule})
	}
}

// M38: which region the policy that is known here proves as the owner of an object.
func TestProves(t *testing.T) {
	t.Parallel()
	policy := policyOf("us", "eu")
	for name, row := range map[string]struct {
		self   fleet.RegionName
		over   decide.Over
		proven []fleet.RegionName
	}{
		"no policy":                     {"eu", decide.Over{}, nil},
		"its holder went from here":     {"eu", decide.Over{Owner: "us"}, []fleet.RegionName{"us"}},
		"a holder":                      {"eu", decide.Over{Policy: policy, Itself: true}, []fleet.RegionName{"eu", "us"}},
		"what it governs":               {"eu", decide.Over{Policy: policy}, []fleet.RegionName{"us"}},
		"while the holder is handed on": {"eu", decide.Over{Policy: policy, Owner: "eu"}, []fleet.RegionName{"eu", "us"}},
		"to the region that controls":   {"us", decide.Over{Policy: policy, Owner: "us"}, []fleet.RegionName{"eu", "us"}},
		"before that one has claimed":   {"us", decide.Over{Policy: policy, Owner: "ap"}, []fleet.RegionName{"ap", "us"}},
	} {
		var proven []fleet.RegionName
		for _, peer := range []fleet.RegionName{"ap", "eu", "us"} {
			if row.over.Proves(row.self, peer) {
				proven = append(proven, peer)
			}
		}
		require.Equal(t, row.proven, proven, name)
	}
}

// M34: a peer may have deleted what is under a holder that it owns, or owned when that went, or is to own.
func TestGives(t *testing.T) {
	t.Parallel()
	policy := policyOf("us", "eu")
	for name, row := range map[string]struct {
		over decide.Over
		to   []fleet.RegionName
	}{
		"no policy":                   {decide.Over{}, nil},
		"its holder went from here":   {decide.Over{Owner: "ap"}, []fleet.RegionName{"ap"}},
		"its holder is handed over":   {decide.Over{Policy: policy, Owner: "eu"}, []fleet.RegionName{"eu", "us"}},
		"the control region has that": {decide.Over{Policy: policy, Owner: "us"}, []fleet.RegionName{"us"}},
	} {
		var to []fleet.RegionName
		for _, peer := range []fleet.RegionName{"ap", "eu", "us"} {
			if row.over.Gives(peer) {
				to = append(to, peer)
			}
		}
		require.Equal(t, row.to, to, name)
	}
}

// M34: what its policy gives to another region stays with its owner, and goes to that region whatever the criteria say.
func TestKept(t *testing.T) {
	t.Parallel()
	policy := without(policyOf("us", "eu", "ap"), fleet.DisabledSync{ResourceTypeName: "Template"})
	require.Equal(t, fleet.Syncing{OwningRegion: "eu", Regions: []string{"eu", "us"}}, decide.Kept(fleet.KindTemplate, "eu", policy))
	require.Equal(t, fleet.Syncing{OwningRegion: "eu", Regions: []string{"ap", "eu", "us"}}, decide.Kept(fleet.KindProject, "eu", policy))
}

// claimCase is a state of the shared project, as its owner sends it.
type claimCase struct {
	owner   fleet.RegionName
	version fleet.CopyVersion
}

func (c claimCase) change() fleet.CopyChange {
	return fleet.CopyChange{
		Key: fleet.CopyKey{Region: "eu", ObjectKey: sharedKey}, Version: c.version, Object: sharedBy(string(c.owner), "ap", "br", "eu", "sa", "us"),
	}
}

func (c claimCase) after(o claimCase) bool {
	return cmp.Or(cmp.Compare(c.version.OwnerEpoch, o.version.OwnerEpoch), cmp.Compare(c.owner, o.owner), cmp.Compare(c.version.Number, o.version.Number)) > 0
}

// M31, M38, M40: in whatever order the states of several owners arrive, and however often, every region ends with the highest
// (epoch, region, number), and takes nothing from a region that the policy does not enable.
func TestClaimsConverge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		over := &decide.Over{Policy: policyOf("eu", "us", "ap"), Itself: true}
		var states []claimCase
		var newest claimCase
		for range rapid.IntRange(1, 8).Draw(t, "states") {
			c := claimCase{owner: "eu", version: fleet.CopyVersion{OwnerEpoch: 1, Number: rapid.Int64Range(2, 5).Draw(t, "number")}} // a claim is no region's first event
			if rapid.Bool().Draw(t, "claimed") {
				c.owner = rapid.SampledFrom([]fleet.RegionName{"ap", "eu", "us", "sa"}).Draw(t, "owner")
				c.version.OwnerEpoch = rapid.Int64Range(2, 4).Draw(t, "epoch")
			}
			states = append(states, c)
			if c.owner != "sa" && (newest.owner == "" || c.after(newest)) {
				newest = c
			}
		}
		// The birth is known everywhere, with its policy.
		held := decide.HeldCopy{Known: true, Owner: "eu", Version: fleet.CopyVersion{OwnerEpoch: 1, Number: 1}, Over: over}
		order := append(rapid.SliceOf(rapid.SampledFrom(states)).Draw(t, "before"), rapid.Permutation(states).Draw(t, "all")...)
		for _, c := range order {
			step, rule := decide.Copy("br", c.owner, c.change(), held)
			if c.owner == "sa" && step != decide.CopyRefuse && step != decide.CopyKeep {
				t.Fatalf("took a state of a region that is not enabled by %s", rule)
			}
			if step == decide.CopyWrite {
				held.Owner, held.Version = c.owner, c.version
			}
		}
		if newest.owner == "" || !newest.after(claimCase{"eu", fleet.CopyVersion{OwnerEpoch: 1, Number: 1}}) {
			return
		}
		if held.Owner != newest.owner || held.Version != newest.version {
			t.Fatalf("%+v, not %+v, after %v", held, newest, order)
		}
	})
}
