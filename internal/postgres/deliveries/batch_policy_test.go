package deliveries_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// M4, M41: a batch computes the syncing of each of its instances as a PUT does, and its events show it. What the policy
// does not let this region write fails alone.
func TestBatchUnderAPolicy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	declare := func(key fleet.ObjectKey, spec any) {
		t.Helper()
		w := stores.WriteOf(key)
		w.Project = "red"
		_, err := b.Declare(t.Context(), w, spec)
		require.NoError(t, err)
	}
	policy := func(regions ...string) fleet.HolderSpec {
		return fleet.HolderSpec{MultiRegionPolicy: &fleet.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}}
	}
	const here = testkit.Region
	declare(fleet.ProjectKey("red"), fleet.ProjectSpec{HolderSpec: policy(here, "eu")})
	for _, name := range []string{"web", "gone"} {
		declare(fleet.ServiceKey(name), fleet.ServiceSpec{HolderSpec: policy(here)})
	}
	of := func(service string) func(*deliveries.InstanceChange) {
		return func(c *deliveries.InstanceChange) { c.Service = service }
	}
	names := []fleet.InstanceName{"plain", "in-web", "in-gone", "in-default", "same"}
	b.Put(`{"a":1}`, stores.Unreleased, stores.Named("plain"), stores.InRed)
	b.Put(`{"a":1}`, stores.Unreleased, stores.Named("in-web"), stores.InRed, of("web"))
	b.Put(`{"a":1}`, stores.Unreleased, stores.Named("in-gone"), stores.InRed, of("gone"))
	b.Put(`{"a":1}`, stores.Unreleased, stores.Named("in-default"))
	b.Put(`{"a":"same"}`, stores.Unreleased, stores.Named("same"), stores.InRed)
	same, err := b.GetObject(t.Context(), keyOf("same"))
	require.NoError(t, err)
	declare(fleet.ProjectKey("red"), fleet.ProjectSpec{HolderSpec: policy(here, "us")})
	b.Exec(`UPDATE objects SET spec = '{"multiRegionPolicy":{"enabledRegions":["us"],"defaultControlRegion":"us"}}' WHERE kind = 'service' AND name = 'gone'`)
	known := len(b.Feed(postgres.Cursor{}))

	b.fleetOf(1, names...)
	changes := b.changes(names[:4], "new")
	changes = append(changes, b.changeTo("same", `{"a":"same"}`)) // released as it was written
	b.release(releaseOf(batchID(1), changes...))
	for name, want := range map[fleet.InstanceName]string{
		"plain": `{"owningRegion":"test","regions":["test","us"]}`, "same": `{"owningRegion":"test","regions":["test","us"]}`,
		"in-web": `{"owningRegion":"test","regions":["test"]}`, "in-default": `{"owningRegion":"test","regions":["test"]}`,
		"in-gone": `{"owningRegion":"test","regions":["test"]}`,
	} {
		o, err := b.GetObject(t.Context(), keyOf(name))
		require.NoError(t, err)
		require.JSONEq(t, want, string(o.Syncing), name)
	}
	events := map[string]postgres.Event{}
	for _, e := range b.Feed(postgres.Cursor{})[known:] {
		events[e.Key.Name] = e
	}
	require.Len(t, events, 4)
	require.Contains(t, string(events["plain"].Before), `"syncing": {"regions": ["eu", "test"], "owningRegion": "test"}`)
	require.Contains(t, string(events["plain"].After), `"syncing": {"regions": ["test", "us"], "owningRegion": "test"}`)
	require.Contains(t, b.target("in-gone"), "failed")
	require.Contains(t, b.target("in-gone"), string(fleet.IllegalState))

	after, err := b.GetObject(t.Context(), keyOf("same"))
	require.NoError(t, err)
	require.Equal(t, []any{same.ResourceVersion, same.Generation, same.UpdatedAt}, []any{after.ResourceVersion, after.Generation, after.UpdatedAt},
		"a new syncing alone changes no ETag")
}
