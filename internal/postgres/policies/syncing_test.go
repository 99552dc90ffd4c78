package policies_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// M4, M41 to M43: every write computes syncing from the first holder that has a policy.
func TestWritesComputeSyncing(t *testing.T) {
	t.Parallel()

	t.Run("from the project", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.project("", policyOf(here, "us", "eu"))
		b.syncing(redKey, "eu", here, "us")
		b.pool("a", "")
		b.syncing(poolKey("a"), "eu", here, "us")
	})

	t.Run("from the organization", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.organization(policyOf(here, "eu"))
		b.project("acme", nil)
		b.pool("a", "")
		for _, key := range []fleet.ObjectKey{acme, redKey, poolKey("a")} {
			b.syncing(key, "eu", here)
		}
	})

	t.Run("from the service, which governs alone", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.organization(policyOf(here, "ap"))
		b.project("acme", policyOf(here, "eu"))
		b.service(policyOf(here, "us"))
		b.pool("a", "web")
		b.pool("b", "")
		b.syncing(web, here, "us")
		b.syncing(poolKey("a"), here, "us")
		b.syncing(poolKey("b"), "eu", here)
	})

	t.Run("of the project default, which nothing governs", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.declare(stores.WriteOf(poolKey("a")), fleet.PoolSpec{})
		b.syncing(poolKey("a"), here)
		w := stores.WriteOf(web)
		_, err := b.Declare(b.Ctx(), w, fleet.ServiceSpec{HolderSpec: holding(policyOf(here))})
		stores.Refused(t, fleet.Invalid, err)
		require.ErrorContains(t, err, "/multiRegionPolicy")
		b.declare(w, fleet.ServiceSpec{})
		w = stores.WriteOf(poolKey("b"))
		w.Service = "web"
		b.declare(w, fleet.PoolSpec{})
		b.syncing(poolKey("b"), here)
	})
}

// M4, M43, M49: a write of the same declaration refreshes syncing, and neither ETag, generation nor time changes; the
// feed shows what changed.
func TestRefreshKeepsTheETag(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", nil)
	b.pool("a", "")
	before := b.object(poolKey("a"))
	b.syncing(poolKey("a"), here)
	b.project("", policyOf(here, "us"))
	known := len(b.Feed(postgres.Cursor{}))

	out := b.pool("a", "")
	require.True(t, out.Changed)
	b.syncing(poolKey("a"), here, "us")
	after := b.object(poolKey("a"))
	require.Equal(t, before.ResourceVersion, after.ResourceVersion)
	require.Equal(t, before.ResourceVersion, out.After.ResourceVersion)
	require.Equal(t, before.Generation, after.Generation)
	require.Equal(t, before.UpdatedAt, after.UpdatedAt)
	events := b.Feed(postgres.Cursor{})[known:]
	require.Len(t, events, 1)
	require.Equal(t, []any{"updated", poolKey("a"), before.UID, before.Generation}, []any{events[0].Type, events[0].Key, events[0].UID, events[0].Generation})
	require.JSONEq(t, `{"spec":{},"syncing":{"owningRegion":"test","regions":["test"]},"ownerEpoch":1}`, string(events[0].Before))
	require.JSONEq(t, `{"spec":{},"syncing":{"owningRegion":"test","regions":["test","us"]},"ownerEpoch":1}`, string(events[0].After))

	require.False(t, b.pool("a", "").Changed)
	b.Exec(`UPDATE objects SET syncing = '{"owningRegion":"test","regions":["test","mars"]}' WHERE name = 'a'`)
	b.pool("a", "")
	b.syncing(poolKey("a"), here, "us")

	w := inProject(poolKey("a"), "red")
	w.IfMatch = before.ResourceVersion
	out = b.declare(w, fleet.PoolSpec{MaxReplicas: 3})
	require.Equal(t, before.Generation+1, out.After.Generation)
	require.Greater(t, out.After.ResourceVersion, before.ResourceVersion)
}

// M27, M39: what another region owns is written nowhere else, by no path.
func TestNotOwner(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.PutSite(stores.Plant, stores.NodeA, stores.NodeB)
	b.declare(stores.WriteOf(poolKey("a")), fleet.PoolSpec{})
	b.Put(`{"a":1}`)
	template := stores.WriteOf(fleet.TemplateKey("t"))
	b.declare(template, b.TemplateOf(`{}`))
	b.Exec(`UPDATE objects SET syncing = '{"owningRegion":"us","regions":["test","us"]}'`)
	for name, write := range map[string]func() error{
		"declare": func() error {
			_, err := b.Declare(b.Ctx(), stores.WriteOf(poolKey("a")), fleet.PoolSpec{})
			return err
		},
		"delete": func() error { _, err := b.DeleteDeclared(b.Ctx(), stores.WriteOf(poolKey("a"))); return err },
		"declare a template": func() error {
			_, err := b.Declare(b.Ctx(), template, b.TemplateOf(`{"b":1}`))
			return err
		},
		"delete a site":   func() error { _, err := b.DeleteDeclared(b.Ctx(), stores.WriteOf(stores.SiteKey)); return err },
		"put an instance": func() error { _, err := b.PutInstance(b.Ctx(), b.ChangeOf(`{"a":2}`)); return err },
		"deploy":          func() error { _, err := b.TurnInstance(b.Ctx(), stores.TurnOf(fleet.OperationDeploy)); return err },
		"delete an instance": func() error {
			_, err := b.TurnInstance(b.Ctx(), stores.TurnOf(fleet.OperationDelete))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := write()
			stores.Refused(t, fleet.NotOwner, err)
			var e *fleet.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, "us", e.Owner)
			require.Contains(t, e.Hint, "region us")
		})
	}
}

// M34, M41: who may declare what under a policy.
func TestPolicyRefusals(t *testing.T) {
	t.Parallel()

	t.Run("a region that is not enabled keeps what it owns, and may only delete it", func(t *testing.T) {
		t.Parallel()
		b := &bench{stores.Setup(t)}
		b.project("", policyOf(here, "us"))
		b.service(nil)
		b.pool("a", "web")
		b.Put(`{"a":1}`, stores.InRed, func(c *deliveries.InstanceChange) { c.Service = "web" })
		// As when the control region, another one, dropped this region and its holder came as a copy.
		b.Exec(`UPDATE objects SET spec = '{"multiRegionPolicy":{"enabledRegions":["us","ap"],"defaultControlRegion":"us"}}' WHERE kind = 'service'`)
		w := inProject(poolKey("b"), "red")
		w.Service = "web"
		for _, key := range []fleet.ObjectKey{poolKey("a"), poolKey("b")} {
			w.Key = key
			_, err := b.Declare(b.Ctx(), w, fleet.PoolSpec{MaxReplicas: 2})
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, "does not enable region test; enabled: ap, us")
		}
		for _, kind := range []fleet.OperationKind{fleet.OperationDeploy, fleet.OperationDisable, fleet.OperationRollback} {
			_, err := b.TurnInstance(b.Ctx(), turnOf(kind))
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, "does not enable region test")
		}
		_, err := b.TurnInstance(b.Ctx(), turnOf(fleet.OperationDelete))
		require.NoError(t, err)
		w.Key = fleet.TemplateKey("t")
		_, err = b.Declare(b.Ctx(), w, b.TemplateOf(`{}`))
		stores.Refused(t, fleet.NotOwner, err)
		w.Key = poolKey("a")
		_, err = b.DeleteDeclared(b.Ctx(), w)
		require.NoError(t, err)
	})

	t.Run("the control region creates what is shared", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		_, err := b.Declare(b.Ctx(), inProject(redKey, "red"), fleet.ProjectSpec{HolderSpec: holding(policyOf("us", here))})
		stores.Refused(t, fleet.NotOwner, err)
		_, err = b.Declare(b.Ctx(), stores.WriteOf(acme), fleet.OrganizationSpec{HolderSpec: holding(policyOf("us", here))})
		stores.Refused(t, fleet.NotOwner, err)
	})

	t.Run("only a hand-over changes the control region", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.organization(nil)
		b.project("acme", policyOf(here, "us"))
		for _, p := range []*fleet.MultiRegionPolicy{policyOf("us", here), policyOf("us")} {
			_, err := b.Declare(b.Ctx(), inProject(redKey, "red"), fleet.ProjectSpec{HolderSpec: holding(p), Organization: "acme"})
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, "/multiRegionPolicy/defaultControlRegion")
			_, err = b.Declare(b.Ctx(), stores.WriteOf(acme), fleet.OrganizationSpec{HolderSpec: holding(p)})
			stores.Refused(t, fleet.IllegalState, err)
		}
	})

	t.Run("the service and the organization are for life", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.organization(nil)
		b.project("", nil)
		b.service(nil)
		b.pool("a", "web")
		b.pool("a", "") // which it keeps
		require.Equal(t, "web", b.object(poolKey("a")).Service)
		b.declare(inProject(fleet.ServiceKey("db"), "red"), fleet.ServiceSpec{})
		w := inProject(poolKey("a"), "red")
		w.Service = "db"
		_, err := b.Declare(b.Ctx(), w, fleet.PoolSpec{})
		stores.Refused(t, fleet.Conflict, err)
		require.ErrorContains(t, err, "/service")
		_, err = b.Declare(b.Ctx(), inProject(redKey, "red"), fleet.ProjectSpec{Organization: "acme"})
		stores.Refused(t, fleet.Conflict, err)
		require.ErrorContains(t, err, "/organization")
	})

	t.Run("what an object names is declared", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		_, err := b.Declare(b.Ctx(), inProject(redKey, "red"), fleet.ProjectSpec{Organization: "acme"})
		stores.Refused(t, fleet.NotFound, err)
		b.project("", nil)
		b.declare(stores.WriteOf(web), fleet.ServiceSpec{}) // of another project
		for _, service := range []string{"web", "db"} {
			w := inProject(poolKey("a"), "red")
			w.Service = service
			_, err = b.Declare(b.Ctx(), w, fleet.PoolSpec{})
			stores.Refused(t, fleet.NotFound, err)
			require.ErrorContains(t, err, "/service")
		}
	})

	t.Run("a holder is deleted without objects", func(t *testing.T) {
		t.Parallel()
		b := bare(t)
		b.organization(nil)
		b.project("acme", nil)
		b.service(nil)
		b.pool("a", "web")
		for _, row := range []struct {
			w    postgres.Write
			want string
		}{
			{stores.WriteOf(acme), "organization/acme still has 1 projects"},
			{inProject(redKey, "red"), "project red still has 1 pool, 1 service"},
			{inProject(web, "red"), "service/web still has 1 pools"},
		} {
			_, err := b.DeleteDeclared(b.Ctx(), row.w)
			stores.Refused(t, fleet.IllegalState, err)
			require.ErrorContains(t, err, row.want)
		}
		for _, w := range []postgres.Write{inProject(poolKey("a"), "red"), inProject(web, "red"), inProject(redKey, "red"), stores.WriteOf(acme)} {
			_, err := b.DeleteDeclared(b.Ctx(), w)
			require.NoError(t, err)
		}
	})
}

// M4: a write that has read a policy is committed before that policy changes.
func TestPolicyWaitsForWritersUnderIt(t *testing.T) {
	t.Parallel()
	b := bare(t)
	b.project("", policyOf(here, "us"))
	goOn := b.StopAt("objects")
	made := stores.Background(func() (postgres.Written, error) {
		return b.Declare(b.Ctx(), inProject(poolKey("a"), "red"), fleet.PoolSpec{})
	})
	b.WaitsForLock(1)
	changed := stores.Background(func() (postgres.Written, error) {
		return b.Declare(b.Ctx(), inProject(redKey, "red"), fleet.ProjectSpec{HolderSpec: holding(policyOf(here))})
	})
	b.WaitsForLock(2)
	goOn()
	_, err := made()
	require.NoError(t, err)
	_, err = changed()
	require.NoError(t, err)
	b.syncing(poolKey("a"), here, "us")
	b.apply(redKey)
	b.syncing(poolKey("a"), here)
}

// M4: what belongs to the project default costs no statement and no lock of a holder: there is no database here.
func TestDefaultCostsNoQuery(t *testing.T) {
	t.Parallel()
	s := &postgres.Store{Region: here}
	of := func(key fleet.ObjectKey) *fleet.Object {
		return &fleet.Object{ObjectKey: key, Project: fleet.DefaultProject, Spec: []byte(`{}`), Syncing: []byte(alone())}
	}
	governed, err := s.Govern(t.Context(), nil, of(poolKey("a")), of(stores.PressKey), of(fleet.TemplateKey("t")), of(web), of(acme), of(fleet.ProjectKey(fleet.DefaultProject)))
	require.NoError(t, err)
	for _, g := range governed {
		require.True(t, g.Same)
		require.JSONEq(t, alone(), string(g.Syncing))
	}
}
