package policies_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/testkit/sized"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

// chaos writes objects, policies and pages at random, side by side.
type chaos struct {
	*bench
	rand *rand.Rand
}

// policy enables this region and perhaps others, or is none.
func (c *chaos) policy() *fleet.MultiRegionPolicy {
	regions := []string{here}
	for _, r := range []string{"ap", "eu", "us"} {
		if c.rand.IntN(2) == 0 {
			regions = append(regions, r)
		}
	}
	if len(regions) == 1 && c.rand.IntN(2) == 0 {
		return nil
	}
	return policyOf(regions...)
}

func (c *chaos) step() error {
	project := []fleet.ProjectName{"red", "blue"}[c.rand.IntN(2)]
	holder := []fleet.ObjectKey{acme, fleet.ProjectKey(project), fleet.ServiceKey("of-" + string(project))}[c.rand.IntN(3)]
	var err error
	switch c.rand.IntN(6) {
	case 0:
		_, err = c.Declare(c.Ctx(), inProject(fleet.ProjectKey(project), project), fleet.ProjectSpec{HolderSpec: holding(c.policy()), Organization: "acme"})
	case 1:
		_, err = c.Declare(c.Ctx(), inProject(fleet.ServiceKey("of-"+string(project)), project), fleet.ServiceSpec{HolderSpec: holding(c.policy())})
	case 2:
		_, err = c.Declare(c.Ctx(), stores.WriteOf(acme), fleet.OrganizationSpec{HolderSpec: holding(c.policy())})
	case 3:
		_, err = c.ApplyPolicyPage(c.Ctx(), fleet.PolicyVisit{Kind: holder.Kind, Name: holder.Name, Run: stores.Run1})
	case 4:
		_, err = c.DeleteDeclared(c.Ctx(), inProject(c.key(project), project))
		if fleet.KindOf(err) == fleet.NotFound {
			err = nil
		}
	default:
		key := c.key(project)
		w := inProject(key, project)
		if key.Name[len(key.Name)-1] == 's' {
			w.Service = "of-" + string(project)
		}
		_, err = c.Declare(c.Ctx(), w, fleet.PoolSpec{MaxReplicas: c.rand.IntN(3)})
	}
	return err
}

// key is of a pool, which belongs to a service if its name ends with s.
func (c *chaos) key(project fleet.ProjectName) fleet.ObjectKey {
	return poolKey(fmt.Sprintf("%s-%d%s", project, c.rand.IntN(20), []string{"", "s"}[c.rand.IntN(2)]))
}

// M4, M5, M37, X23: whatever is written at the same time, once the turns are done every object has the syncing that
// its holders give it. No two of the writers ever wait for each other.
func TestSyncingConverges(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := bare(t)
	b.organization(nil)
	for _, project := range []fleet.ProjectName{"red", "blue"} {
		b.declare(inProject(fleet.ProjectKey(project), project), fleet.ProjectSpec{Organization: "acme"})
		b.declare(inProject(fleet.ServiceKey("of-"+string(project)), project), fleet.ServiceSpec{})
	}
	var group sync.WaitGroup
	for worker := range uint64(4) {
		group.Go(func() {
			c := &chaos{b, rand.New(rand.NewPCG(seed, worker))}
			for range sized.Many(400) {
				if err := c.step(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, holder := range []fleet.ObjectKey{acme, fleet.ProjectKey("red"), fleet.ProjectKey("blue"), fleet.ServiceKey("of-red"), fleet.ServiceKey("of-blue")} {
		b.apply(holder)
	}
	specs := map[fleet.ObjectKey]*fleet.MultiRegionPolicy{}
	policyAt := func(key fleet.ObjectKey) *fleet.MultiRegionPolicy {
		if _, known := specs[key]; !known {
			spec, err := fleet.HolderOf(key.Kind, b.object(key).Spec)
			require.NoError(t, err)
			specs[key] = spec.MultiRegionPolicy
		}
		return specs[key]
	}
	for _, kind := range []fleet.ObjectKind{fleet.KindOrganization, fleet.KindProject, fleet.KindService, fleet.KindPool} {
		objects, err := b.ListObjects(t.Context(), kind, "", "", "", 1000)
		require.NoError(t, err)
		for _, o := range objects {
			var holders []*fleet.MultiRegionPolicy
			if o.Service != "" {
				holders = append(holders, policyAt(fleet.ServiceKey(o.Service)))
			}
			if kind == fleet.KindService {
				holders = append(holders, policyAt(o.ObjectKey))
			}
			if kind != fleet.KindOrganization {
				holders = append(holders, policyAt(fleet.ProjectKey(o.Project)))
			}
			holders = append(holders, policyAt(acme))
			require.Equal(t, decide.Syncing(kind, here, holders...), o.SyncingNow(), o.String())
		}
	}
	require.Zero(t, stores.Scan[int](b, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
}
