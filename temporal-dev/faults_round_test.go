//go:build slow

package main

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/lease"
)

// place is one site of a campaign.
type theatre struct {
	*arena
	t     *testing.T // of the site's part
	site  string
	cargo []*cargo
	draw  *mathrand.Rand
	notes *ledger
	stop  func()
}

// round is one fault at a site: done, observed, undone, and healed.
type round struct {
	*theatre
	fault           string
	active, standby string
	links           map[string]string // connections by node
	began           lease.Instant
	wall            time.Time
	undo            []func()
	went            bool // the other node took over, as it had to
}

// healLimit is how long a site may take until it is whole again.
const healLimit = time.Minute

// play does one round of a fault, at a random moment.
func (th *theatre) play(f fault) {
	th.t.Helper()
	r := th.round(f)
	r.moment(time.Second)
	defer func() {
		if th.t.Failed() {
			th.t.Logf("%s: %s, active was %s, began at %d", th.site, f.name, r.active, r.began)
		}
	}()
	func() {
		defer r.restore()
		f.do(r)
	}()
	r.healed(bootNow())
	th.notes.round(f.name)
}

// strike does one round of a fault to all sites at once.
func strike(t *testing.T, all []*theatre, f fault) {
	t.Helper()
	var rounds []*round
	for _, th := range all {
		rounds = append(rounds, th.round(f))
	}
	rounds[0].moment(time.Second)
	func() {
		defer rounds[0].restore()
		f.do(rounds[0])
	}()
	undone := bootNow()
	for _, r := range rounds {
		r.healed(undone)
	}
	rounds[0].notes.round(f.name)
}

// round prepares one at a site that is whole.
func (th *theatre) round(f fault) *round {
	th.t.Helper()
	r := &round{theatre: th, fault: f.name, links: map[string]string{}}
	r.begin()
	r.look()
	return r
}

// healed waits until the site is whole again.
func (r *round) healed(undone lease.Instant) {
	r.t.Helper()
	after := r.puts()
	require.NoError(r.t, pollErr(r.t.Context(), healLimit, func(ctx context.Context) error { return r.whole(ctx, after) }),
		"%s: the site is not whole again after %s", r.site, r.fault)
	r.note("healed", since(undone))
	if n, err := r.cargo[0].newest(); err == nil && n.node != r.active && !r.went {
		r.notes.moved(r.fault)
	}
	r.check()
}

// look finds who is active, and by which connection the region knows each node.
func (r *round) look() {
	r.t.Helper()
	waitFor(r.t, "the region knows both nodes of "+r.site, func(ctx context.Context) error {
		n, err := r.cargo[0].newest()
		if err != nil {
			return err
		}
		r.active, r.standby = pair(r.site)[0], pair(r.site)[1]
		if n.node != r.active {
			r.active, r.standby = r.standby, r.active
		}
		for _, node := range pair(r.site) {
			var id string
			if err := r.pg.QueryRow(ctx, `SELECT id FROM connections WHERE node = $1 AND ended_at IS NULL AND state = 'Active'`, node).Scan(&id); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
			r.links[node] = id
		}
		return nil
	})
}

func (r *round) begin() { r.began, r.wall = bootNow(), time.Now() }

func (r *round) note(what string, took time.Duration) {
	r.t.Logf("%s %s, %s was active: %s: %s after %v", r.wall.UTC().Format("15:04:05.000"), r.site, r.active, r.fault, what, took)
	r.notes.note(r.fault, what, took)
}

func (r *round) restore() {
	for _, undo := range r.undo {
		undo()
	}
}

// any is one instance of the site.
func (r *round) any() *cargo { return r.cargo[r.draw.IntN(len(r.cargo))] }

// puts are the newest numbers of all instances.
func (th *theatre) puts() []int {
	var all []int
	for _, c := range th.cargo {
		put, _ := c.last()
		all = append(all, put)
	}
	return all
}

// whole says how the site lacks what was put after these numbers. All that runs, runs on one node.
func (th *theatre) whole(ctx context.Context, after []int) error {
	node := ""
	for i, c := range th.cargo {
		if err := c.whole(ctx, after[i]); err != nil {
			return err
		}
		n, err := c.newest()
		if err != nil {
			return err
		}
		if node != "" && n.node != node {
			return fmt.Errorf("%s runs on %s, another one on %s", c.key.Name, n.node, node)
		}
		node = n.node
	}
	return nil
}

// check looks at everything that ever ran at the site.
func (th *theatre) check() {
	th.t.Helper()
	for _, c := range th.cargo {
		acks := c.promised() // before the runs: a run that is seen was not acknowledged before
		all, err := c.all()
		require.NoError(th.t, err)
		require.Empty(th.t, broken(all, acks), c.key.String())
	}
}
