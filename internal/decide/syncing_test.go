package decide_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// policyOf is a policy whose first region is the control region.
func policyOf(regions ...string) *fleet.MultiRegionPolicy {
	return &fleet.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}
}

func without(p *fleet.MultiRegionPolicy, criteria ...fleet.DisabledSync) *fleet.MultiRegionPolicy {
	p.CriteriaForDisabledSync = criteria
	return p
}

// M16, M18, M28, M41, M42: who owns an object, and which regions have it.
func TestSyncing(t *testing.T) {
	t.Parallel()
	const site, template, project = fleet.KindSite, fleet.KindTemplate, fleet.KindProject
	type holders = []*fleet.MultiRegionPolicy
	all := func() *fleet.MultiRegionPolicy { return policyOf("us", "eu", "ap") }
	for _, row := range []struct {
		name    string
		kind    fleet.ObjectKind
		owner   string
		holders holders
		owns    string
		regions []string
	}{
		{"without holders it stays", site, "eu", nil, "eu", []string{"eu"}},
		{"without a policy it stays", site, "eu", holders{nil, nil, nil}, "eu", []string{"eu"}},
		{"a shared kind without a policy stays", template, "eu", holders{nil}, "eu", []string{"eu"}},
		{"a regional kind is owned where it is declared", site, "eu", holders{all()}, "eu", []string{"ap", "eu", "us"}},
		{"a deployment too", fleet.KindDeployment, "ap", holders{all()}, "ap", []string{"ap", "eu", "us"}},
		{"an instance too", fleet.KindInstance, "ap", holders{all()}, "ap", []string{"ap", "eu", "us"}},
		{"a shared kind is owned by the control region", template, "eu", holders{all()}, "us", []string{"ap", "eu", "us"}},
		{"a holder too", project, "eu", holders{all()}, "us", []string{"ap", "eu", "us"}},
		{"the first policy governs alone", site, "eu", holders{policyOf("eu", "us"), all()}, "eu", []string{"eu", "us"}},
		{"the second one if the first holder has none", site, "eu", holders{nil, policyOf("ap", "eu"), all()}, "eu", []string{"ap", "eu"}},
		{"the last one", site, "eu", holders{nil, nil, policyOf("eu")}, "eu", []string{"eu"}},
		{"where the owner is not enabled it stays", site, "eu", holders{policyOf("us", "ap")}, "eu", []string{"eu"}},
		{"a kind to nowhere", site, "eu", holders{without(all(), fleet.DisabledSync{ResourceTypeName: "Site"})}, "eu", []string{"eu"}},
		{"another kind", site, "eu", holders{without(all(), fleet.DisabledSync{ResourceTypeName: "Pool"})}, "eu", []string{"ap", "eu", "us"}},
		{"from a region", site, "eu", holders{without(all(), fleet.DisabledSync{SourceRegion: "eu"})}, "eu", []string{"eu"}},
		{"from another region", site, "eu", holders{without(all(), fleet.DisabledSync{SourceRegion: "us"})}, "eu", []string{"ap", "eu", "us"}},
		{"to a region", site, "eu", holders{without(all(), fleet.DisabledSync{DestRegion: "ap"})}, "eu", []string{"eu", "us"}},
		{"to its owner", site, "eu", holders{without(all(), fleet.DisabledSync{DestRegion: "eu"})}, "eu", []string{"ap", "eu", "us"}},
		{"all fields match", site, "eu", holders{without(all(), fleet.DisabledSync{ResourceTypeName: "Site", SourceRegion: "eu", DestRegion: "ap"})}, "eu", []string{"eu", "us"}},
		{"one field does not", site, "eu", holders{without(all(), fleet.DisabledSync{ResourceTypeName: "Site", SourceRegion: "us", DestRegion: "ap"})}, "eu", []string{"ap", "eu", "us"}},
		{"any to any", site, "eu", holders{without(all(), fleet.DisabledSync{})}, "eu", []string{"eu"}},
		{"one of several", site, "eu", holders{without(all(), fleet.DisabledSync{DestRegion: "ap"}, fleet.DisabledSync{DestRegion: "us"})}, "eu", []string{"eu"}},
		{"a template is subject to criteria", template, "eu", holders{without(all(), fleet.DisabledSync{DestRegion: "ap"})}, "us", []string{"eu", "us"}},
		{"a holder is not", project, "eu", holders{without(all(), fleet.DisabledSync{DestRegion: "ap"})}, "us", []string{"ap", "eu", "us"}},
		{"nor an organization", fleet.KindOrganization, "eu", holders{without(all(), fleet.DisabledSync{})}, "us", []string{"ap", "eu", "us"}},
		{"nor a service", fleet.KindService, "eu", holders{nil, without(all(), fleet.DisabledSync{})}, "us", []string{"ap", "eu", "us"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, fleet.Syncing{OwningRegion: row.owns, Regions: row.regions}, decide.Syncing(row.kind, row.owner, row.holders...))
		})
	}
}

// M27, M39, M41: where an object may be written, and where it may not.
func TestMayDeclare(t *testing.T) {
	t.Parallel()
	both, other := policyOf("us", "eu"), policyOf("us", "ap")
	site, template := fleet.CopyKey{ObjectKey: fleet.ObjectKey{Kind: fleet.KindSite, Name: "a"}}, fleet.CopyKey{ObjectKey: fleet.TemplateKey("a")}
	require.NoError(t, decide.MayDeclare(site, "eu"))
	require.NoError(t, decide.MayDeclare(site, "eu", nil, both, other))
	require.NoError(t, decide.MayDeclare(template, "us", both))

	err := decide.MayDeclare(site, "eu", other)
	require.Equal(t, fleet.IllegalState, fleet.KindOf(err))
	require.ErrorContains(t, err, "does not enable region eu; enabled: ap, us")

	err = decide.MayDeclare(template, "eu", both)
	require.Equal(t, fleet.NotOwner, fleet.KindOf(err))
	var e *fleet.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, []string{"us", "us"}, []string{e.Owner, e.Region})
	template.Region = "ap"
	require.ErrorAs(t, decide.MayDeclare(template, "eu", both), &e)
	require.Equal(t, []string{"us", "ap"}, []string{e.Owner, e.Region})
}

// M28, M42: whatever a policy says, the owner has the object, only enabled regions get copies, and each region computes
// the same.
func TestSyncingStaysWithinThePolicy(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		regions := []string{"ap", "eu", "sa", "us"}
		region := rapid.SampledFrom(regions)
		policy := func(label string) *fleet.MultiRegionPolicy {
			if rapid.Bool().Draw(t, label) {
				return nil
			}
			p := &fleet.MultiRegionPolicy{EnabledRegions: rapid.SliceOfNDistinct(region, 1, 4, rapid.ID).Draw(t, label)}
			p.DefaultControlRegion = rapid.SampledFrom(p.EnabledRegions).Draw(t, label)
			for range rapid.IntRange(0, 2).Draw(t, label) {
				p.CriteriaForDisabledSync = append(p.CriteriaForDisabledSync, fleet.DisabledSync{
					ResourceTypeName: rapid.SampledFrom([]string{"", "Site", "Template", "Project"}).Draw(t, label),
					SourceRegion:     rapid.SampledFrom(append(regions, "")).Draw(t, label), DestRegion: rapid.SampledFrom(append(regions, "")).Draw(t, label),
				})
			}
			require.NoError(t, p.Validate(""))
			return p
		}
		kind := rapid.SampledFrom(fleet.DeclaredKinds()).Draw(t, "kind")
		owner := region.Draw(t, "owner")
		holders := []*fleet.MultiRegionPolicy{policy("service"), policy("project"), policy("organization")}

		out := decide.Syncing(kind.Kind, owner, holders...)
		require.Contains(t, out.Regions, out.OwningRegion)
		require.True(t, slices.IsSorted(out.Regions))
		require.Equal(t, slices.Compact(slices.Clone(out.Regions)), out.Regions)
		require.Equal(t, out, decide.Syncing(kind.Kind, out.OwningRegion, holders...), "the owner computes the same again")
		governing := decide.Governing(holders...)
		for _, r := range out.Regions {
			require.True(t, r == out.OwningRegion || slices.Contains(governing.EnabledRegions, r), r)
		}
		if !kind.Shared {
			require.Equal(t, owner, out.OwningRegion)
		}
		if governing != nil && kind.Shared {
			require.Equal(t, governing.DefaultControlRegion, out.OwningRegion)
		}
	})
}
