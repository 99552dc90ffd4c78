//go:build slow

package main

import (
	"context"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease/votefile"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

var faultAway = flag.Duration("faults.away", 5*e2eLease, "how long the region is away")

// abandoned is a site whose region goes away, and then one of its nodes.
type abandoned struct {
	isolation fleet.Isolation
	holder    bool // it is the holder that is left
}

// X21, X23: the region being away changes nothing at a site whose nodes see each other, restarts
// of both included. Of one node that is left, only the holder goes on, and only if the site says so.
func TestFaultRegionAway(t *testing.T) {
	t.Parallel()
	seed := randomSeed(t)
	t.Logf("repeat its choices with %s=%d", seedVariable, seed)
	cases := []abandoned{
		{fleet.IsolationStop, true}, {fleet.IsolationStop, false}, {fleet.IsolationRun, true}, {fleet.IsolationRun, false},
	}
	a := newArena(t, len(cases), e2eLease)
	notes := newLedger()
	t.Cleanup(func() { t.Logf("measured, by %s, the region %v away:\n%s", a.kind(), *faultAway, notes.table()) })
	var parts []part
	for i, c := range cases {
		left := map[bool]string{true: "holder", false: "other"}[c.holder]
		parts = append(parts, part{fmt.Sprintf("%s, the %s is left", c.isolation, left), func(t *testing.T) {
			own := mathrand.New(mathrand.NewPCG(seed, uint64(i)))
			a.isolating(t, a.sites[i], c.isolation)
			th := a.open(t, a.sites[i], own, notes)
			th.abandon(c)
			th.close()
		}})
	}
	together(t, parts)
}

// isolating declares what the last holder of a site does alone, and waits until its nodes know.
func (a *arena) isolating(t *testing.T, site string, isolation fleet.Isolation) {
	t.Helper()
	put := api.SitePut{OnIsolation: isolation}
	for _, n := range laptopSite(fleet.SiteName(site)).Nodes {
		put.Nodes = append(put.Nodes, api.SiteNode{Name: string(n.Name), Role: n.Role})
	}
	_, err := a.api.PutSite(t.Context(), site, put, api.Mutation{})
	require.NoError(t, err)
	for _, node := range pair(site) {
		waitFor(t, node+" knows it", func(context.Context) error {
			var known tenure.Site
			err := readJSON(filepath.Join(a.data, "nodes", node, tenure.SiteFile), &known)
			if os.IsNotExist(err) || err == nil && string(known.OnIsolation) != string(isolation) {
				err = errNotYet
			}
			return err
		})
	}
}

// abandon takes the region away, restarts both nodes, and then lets one of them die.
func (th *theatre) abandon(c abandoned) {
	r := th.round(fault{name: fmt.Sprintf("region away, %s, holder left: %v", c.isolation, c.holder)})
	th.stop()
	r.begin()
	region := append(both(r.active, regionEnd), both(r.standby, regionEnd)...)
	r.cut(r.t, region...)
	r.restarts()
	r.rest(*faultAway - since(r.began))
	r.runs()
	r.left(c, region)
	th.load()
	r.healed(bootNow())
	r.notes.round(r.fault)
}

// restarts restarts the nodes, one after the other and both at once, at random moments.
func (r *round) restarts() {
	part := *faultAway / 4
	r.moment(part)
	for _, node := range []string{r.standby, r.active} {
		r.order(r.t, "stop", node)
		r.order(r.t, "start", node)
		r.runs()
	}
	r.moment(part)
	pids := map[string]int{}
	for _, node := range pair(r.site) {
		pids[node] = r.pid(r.t, node)
		kill9(r.t, pids[node])
	}
	for node, pid := range pids {
		r.back(node, pid)
	}
	r.runs()
}

// rest is for what has to last.
func (r *round) rest(d time.Duration) {
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.t.Context().Done():
	}
}

// runs waits until all instances run on one node, which holds the lease without the region.
func (r *round) runs() {
	r.t.Helper()
	began := bootNow()
	waitFor(r.t, "all instances of "+r.site+" run", func(context.Context) error {
		node := ""
		for _, c := range r.cargo {
			n, err := c.newest()
			switch {
			case err != nil:
				return err
			case !alive(n.pid) || n.last < began:
				return fmt.Errorf("%s does not run", c.key.Name)
			case node != "" && n.node != node:
				return fmt.Errorf("%s runs on %s, another one on %s", c.key.Name, n.node, node)
			}
			node = n.node
		}
		if node != r.active {
			r.active, r.standby = r.standby, r.active
		}
		return nil
	})
	r.note("all runs again after a restart", since(began))
	r.check()
}

// left lets one node die, and looks at what the other does. Then all comes back.
func (r *round) left(c abandoned, region []way) {
	survivor, dies := r.active, r.standby
	if !c.holder {
		survivor, dies = dies, survivor
	}
	goesOn := c.holder && c.isolation == fleet.IsolationRun
	if goesOn { // its agent may be only just back, and then nothing runs on without it
		r.renewed(survivor)
	}
	r.die(dies)
	died := bootNow()
	if !goesOn && c.holder {
		r.stops(survivor)
	}
	r.rest(3 * e2eLease)
	for _, g := range r.cargo {
		n, err := g.newest()
		require.NoError(r.t, err)
		switch {
		case goesOn:
			require.Equal(r.t, survivor, n.node)
			require.True(r.t, alive(n.pid) && n.from < died, "it goes on as it was: %v", n)
		default:
			require.False(r.t, alive(n.pid), "%v", n)
			require.LessOrEqual(r.t, n.last, died.Add(e2eLease), "it has stopped in time: %v", n)
			if !c.holder {
				require.Equal(r.t, dies, n.node, "who did not hold never starts")
			}
		}
	}
	r.check()
	r.heal(r.t, region...)
	if goesOn { // it is to know who else there is before there is somebody else
		r.known(survivor)
	}
	r.restore()
}

// renewed waits until the agent of a holder has renewed its lease a moment ago.
func (r *round) renewed(node string) {
	r.t.Helper()
	waitFor(r.t, node+" renews its lease", func(context.Context) error {
		path := filepath.Join(r.data, "nodes", node, votefile.Name)
		kept, err := votefile.Load(path, votefile.State{Site: fleet.SiteName(r.site), Node: fleet.NodeName(node)}, votefile.Enrolled)
		if err == nil && (kept.Claim.Unbounded || kept.Claim.Deadline < bootNow().Add(2*e2eLease/3)) {
			err = errNotYet
		}
		return err
	})
}

// stops waits until nothing runs on a node.
func (r *round) stops(node string) {
	r.t.Helper()
	waitFor(r.t, node+" stops what runs", func(context.Context) error {
		for _, c := range r.cargo {
			if n, err := c.newest(); err != nil || alive(n.pid) {
				return errNotYet
			}
		}
		return nil
	})
}

// known waits until the region hears a node, and its lease.
func (r *round) known(node string) {
	r.t.Helper()
	counted := func(ctx context.Context) (n int64, err error) {
		return r.count(ctx, `SELECT coalesce((SELECT counter FROM site_leases WHERE site = $1 AND holder = $2), -1)`, r.site, node)
	}
	before, err := counted(r.t.Context())
	require.NoError(r.t, err)
	waitFor(r.t, "the region hears "+node, func(ctx context.Context) error {
		now, err := counted(ctx)
		if err == nil && now == before {
			err = errNotYet
		}
		return err
	})
}
