package fleet_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M41, X19: what is wrong with a policy, where, and what is allowed.
func TestMultiRegionPolicy(t *testing.T) {
	t.Parallel()
	regions := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("r%d", i)
		}
		return out
	}
	policy := func(change func(*fleet.MultiRegionPolicy)) fleet.MultiRegionPolicy {
		p := fleet.MultiRegionPolicy{EnabledRegions: []string{"eu", "us"}, DefaultControlRegion: "eu"}
		change(&p)
		return p
	}
	criteria := func(c ...fleet.DisabledSync) fleet.MultiRegionPolicy {
		return policy(func(p *fleet.MultiRegionPolicy) { p.CriteriaForDisabledSync = c })
	}
	enabled := func(names ...string) fleet.MultiRegionPolicy {
		return policy(func(p *fleet.MultiRegionPolicy) { p.EnabledRegions = names })
	}
	for name, row := range map[string]struct {
		policy      fleet.MultiRegionPolicy
		field, want string // "" is valid
	}{
		"plain":             {policy: policy(func(*fleet.MultiRegionPolicy) {})},
		"most regions":      {policy: policy(func(p *fleet.MultiRegionPolicy) { p.EnabledRegions = append(regions(fleet.MaxEnabledRegions-1), "eu") })},
		"too many regions":  {enabled(append(regions(fleet.MaxEnabledRegions), "eu")...), "/p/enabledRegions", "give 1 to 32"},
		"no region":         {enabled(), "/p/enabledRegions", "0 enabled regions given; give 1 to 32"},
		"a bad region":      {enabled("eu", "US"), "/p/enabledRegions/1", `"US" is not a name`},
		"a region twice":    {enabled("eu", "eu"), "/p/enabledRegions/1", "region eu is given twice"},
		"another control":   {policy(func(p *fleet.MultiRegionPolicy) { p.DefaultControlRegion = "ap" }), "/p/defaultControlRegion", `control region "ap" is not enabled; use eu or us`},
		"no control":        {policy(func(p *fleet.MultiRegionPolicy) { p.DefaultControlRegion = "" }), "/p/defaultControlRegion", "is not enabled; use eu or us"},
		"all criteria":      {policy: criteria(fleet.DisabledSync{}, fleet.DisabledSync{ResourceTypeName: "Site", SourceRegion: "eu", DestRegion: "us"}, fleet.DisabledSync{DestRegion: "not-enabled"})},
		"an unknown kind":   {criteria(fleet.DisabledSync{ResourceTypeName: "site"}), "/p/criteriaForDisabledSync/0/resourceTypeName", `unknown kind "site"; use Organization, Project,`},
		"a bad source":      {criteria(fleet.DisabledSync{}, fleet.DisabledSync{SourceRegion: "*"}), "/p/criteriaForDisabledSync/1/sourceRegion", `"*" is not a name`},
		"a bad destination": {criteria(fleet.DisabledSync{DestRegion: "-"}), "/p/criteriaForDisabledSync/0/destRegion", `"-" is not a name`},
		"most criteria":     {policy: criteria(make([]fleet.DisabledSync, fleet.MaxDisabledSyncs)...)},
		"too many criteria": {criteria(make([]fleet.DisabledSync, fleet.MaxDisabledSyncs+1)...), "/p/criteriaForDisabledSync", "129 criteria given; the limit is 128"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := row.policy.Validate("/p")
			if row.field == "" {
				require.NoError(t, err)
				return
			}
			var e *fleet.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, []any{fleet.Invalid, row.field}, []any{e.Kind, e.Field})
			require.Contains(t, e.Error(), row.want)
		})
	}
	require.NoError(t, (*fleet.MultiRegionPolicy)(nil).Validate("/p"))
}

// M41: what belongs to the project default stays in its region.
func TestProjectDefaultHasNoPolicy(t *testing.T) {
	t.Parallel()
	governed := fleet.ProjectSpec{HolderSpec: fleet.HolderSpec{MultiRegionPolicy: &fleet.MultiRegionPolicy{EnabledRegions: []string{"eu"}, DefaultControlRegion: "eu"}}}
	require.NoError(t, governed.Validate("p1"))
	require.NoError(t, fleet.ProjectSpec{Organization: "acme"}.Validate("p1"))
	for _, spec := range []fleet.ProjectSpec{governed, {Organization: "acme"}} {
		require.Equal(t, fleet.Invalid, fleet.KindOf(spec.Validate(fleet.DefaultProject)))
	}
	require.Equal(t, fleet.Invalid, fleet.KindOf(fleet.ProjectSpec{Organization: "A"}.Validate("p1")))
}

// X19: a policy holder is named by its kind and name.
func TestParseHolder(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fleet.ObjectKey{
		"project/p1": fleet.ProjectKey("p1"), "organization/acme": fleet.OrganizationKey("acme"), "service/web": fleet.ServiceKey("web"),
	} {
		key, err := fleet.ParseHolder("/holder", text)
		require.NoError(t, err)
		require.Equal(t, want, key)
	}
	for _, text := range []string{"", "p1", "project", "project/", "project/P", "site/a", "project/a/b", "Project/a"} {
		_, err := fleet.ParseHolder("/holder", text)
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), text)
	}
	_, err := fleet.ParseHolder("/holder", "site/a")
	require.ErrorContains(t, err, "use organization/NAME, project/NAME or service/NAME")
}
