package policies_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/deliveries"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is the region of the tests.
const here = testkit.Region

var (
	redKey = fleet.ProjectKey("red")
	acme   = fleet.OrganizationKey("acme")
	web    = fleet.ServiceKey("web")
)

// bench is a region, and what the tests of this area do to it.
type bench struct{ *stores.Bench }

// bare opens a fresh region in which nothing is declared.
func bare(t *testing.T) *bench {
	t.Helper()
	return &bench{stores.Bare(t)}
}

// policyOf is a policy whose first region is the control region.
func policyOf(regions ...string) *fleet.MultiRegionPolicy {
	return &fleet.MultiRegionPolicy{EnabledRegions: regions, DefaultControlRegion: regions[0]}
}

func holding(p *fleet.MultiRegionPolicy) fleet.HolderSpec {
	return fleet.HolderSpec{MultiRegionPolicy: p}
}

func inProject(key fleet.ObjectKey, project fleet.ProjectName) postgres.Write {
	w := stores.WriteOf(key)
	w.Project = project
	return w
}

func (b *bench) declare(w postgres.Write, spec any) postgres.Written {
	b.T.Helper()
	out, err := b.Declare(b.Ctx(), w, spec)
	require.NoError(b.T, err)
	return out
}

// project declares the project red.
func (b *bench) project(organization string, p *fleet.MultiRegionPolicy) postgres.Written {
	b.T.Helper()
	return b.declare(inProject(redKey, "red"), fleet.ProjectSpec{HolderSpec: holding(p), Organization: organization})
}

func (b *bench) organization(p *fleet.MultiRegionPolicy) postgres.Written {
	b.T.Helper()
	return b.declare(stores.WriteOf(acme), fleet.OrganizationSpec{HolderSpec: holding(p)})
}

// service declares the service web of the project red.
func (b *bench) service(p *fleet.MultiRegionPolicy) postgres.Written {
	b.T.Helper()
	return b.declare(inProject(web, "red"), fleet.ServiceSpec{HolderSpec: holding(p)})
}

func poolKey(name string) fleet.ObjectKey { return fleet.ObjectKey{Kind: fleet.KindPool, Name: name} }

// pool declares a pool of the project red, of a service or none.
func (b *bench) pool(name, service string) postgres.Written {
	b.T.Helper()
	w := inProject(poolKey(name), "red")
	w.Service = service
	return b.declare(w, fleet.PoolSpec{})
}

// pools makes many pools of the project red at once, as if nothing governed them.
func (b *bench) pools(n int) {
	b.T.Helper()
	b.Exec(`INSERT INTO objects (kind, project, name, generation, resource_version, spec, syncing, created_by)
		SELECT 'pool', 'red', 'p-' || to_char(i, 'FM0000'), 1, 1, '{}', $1, 'ann' FROM generate_series(1, $2) i`, alone(), n)
}

func alone() string { return fmt.Sprintf(`{"owningRegion": %q, "regions": [%q]}`, here, here) }

func (b *bench) object(key fleet.ObjectKey) fleet.Object {
	b.T.Helper()
	o, err := b.GetObject(b.Ctx(), key)
	require.NoError(b.T, err)
	return o
}

// syncing requires where an object is.
func (b *bench) syncing(key fleet.ObjectKey, regions ...string) {
	b.T.Helper()
	require.Equal(b.T, fleet.Syncing{OwningRegion: here, Regions: regions}, syncingOf(b.T, b.object(key).Syncing), key)
}

func syncingOf(t *testing.T, raw json.RawMessage) fleet.Syncing {
	t.Helper()
	var s fleet.Syncing
	require.NoError(t, json.Unmarshal(raw, &s))
	return s
}

// page applies one page of a holder's policy.
func (b *bench) page(holder fleet.ObjectKey) fleet.PolicyTurn {
	b.T.Helper()
	turn := b.pageOf(holder, 0)
	turn.Feed = 0
	return turn
}

// pageOf applies a page of so many objects at most.
func (b *bench) pageOf(holder fleet.ObjectKey, objects int) fleet.PolicyTurn {
	b.T.Helper()
	turn, err := b.ApplyPolicyPage(b.Ctx(), fleet.PolicyVisit{Kind: holder.Kind, Name: holder.Name, Run: stores.Run1, Build: "b1", Objects: objects})
	require.NoError(b.T, err)
	return turn
}

// apply applies all pages, and counts them.
func (b *bench) apply(holder fleet.ObjectKey) (fleet.PolicyTurn, int) {
	b.T.Helper()
	for pages := 1; ; pages++ {
		if turn := b.page(holder); turn.Done {
			return turn, pages
		}
		require.Less(b.T, pages, 100)
	}
}

// turnOf is a turn of the press, in the project red.
func turnOf(kind fleet.OperationKind) deliveries.InstanceTurn {
	turn := stores.TurnOf(kind)
	turn.Project = "red"
	return turn
}
