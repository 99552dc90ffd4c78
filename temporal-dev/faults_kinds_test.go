//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// ttl is that of --fast, by which the figures are: a node that is silent for as long has lost its
// lease.
const ttl = 3 * time.Second

// fault is one kind of what can go wrong with a site.
type fault struct {
	name string
	do   func(*round)
}

// siteFaults are those of one site. What a round does to it is undone when its observation ends.
var siteFaults = []fault{
	{"agent killed", func(r *round) {
		pid := r.pid(r.t, r.active)
		r.begin()
		kill9(r.t, pid)
		r.back(r.active, pid)
	}},
	{"agent killed, node cut off", func(r *round) {
		pid := r.pid(r.t, r.active)
		r.begin()
		r.isolate(r.active)
		kill9(r.t, pid)
		r.moved()
	}},
	{"agent paused, shorter than the lease", func(r *round) {
		r.begin()
		r.pause(r.pid(r.t, r.active))
		r.moment(ttl / 3)
	}},
	{"agent paused until the other took over", func(r *round) {
		r.begin()
		r.pause(r.pid(r.t, r.active))
		r.lost(r.active)
		r.moved()
	}},
	{"guardian killed", func(r *round) {
		c := r.any()
		r.strike(c, syscall.SIGKILL)
		r.again(c)
	}},
	{"guardian paused", func(r *round) {
		r.resume(r.strike(r.any(), syscall.SIGSTOP))
		r.moment(2 * ttl)
	}},
	{"guardian paused until the other took over", func(r *round) {
		r.resume(r.strike(r.any(), syscall.SIGSTOP))
		r.isolate(r.active)
		r.moved()
	}},
	{"active cut from the region", func(r *round) { r.cutFrom(both(r.active, regionEnd)) }},
	{"active does not reach the region", func(r *round) { r.cutFrom([]way{{r.active, regionEnd}}) }},
	{"region does not reach the active", func(r *round) { r.cutFrom([]way{{regionEnd, r.active}}) }},
	{"active cut from its peer", func(r *round) { r.severed(both(r.active, r.standby)) }},
	{"active does not reach its peer", func(r *round) { r.severed([]way{{r.active, r.standby}}) }},
	{"active cut off", func(r *round) {
		r.begin()
		r.isolate(r.active)
		r.lost(r.active)
		r.moved()
	}},
	{"nobody hears the active", func(r *round) {
		r.begin()
		r.cutAll(way{r.active, regionEnd}, way{r.active, r.standby})
		r.moved()
	}},
	{"the active hears nobody", func(r *round) {
		r.begin()
		r.cutAll(way{regionEnd, r.active}, way{r.standby, r.active})
		r.moved()
	}},
	{"standby cut off", func(r *round) {
		r.begin()
		r.isolate(r.standby)
		r.lost(r.standby)
	}},
	{"node dies", func(r *round) {
		r.die(r.active)
		r.lost(r.active)
		r.moved()
	}},
	{"graceful failover", func(r *round) {
		r.begin()
		r.handOver()
	}},
}

// serverFaults are those of the region. A site whose nodes see each other goes on without it.
var serverFaults = []fault{
	{"server killed", func(r *round) {
		pid := r.pid(r.t, serverName)
		r.begin()
		kill9(r.t, pid)
		r.back(serverName, pid)
	}},
	{"server paused", func(r *round) {
		r.begin()
		r.pause(r.pid(r.t, serverName))
		r.moment(2 * ttl)
	}},
}

// cutFrom cuts the active from its region for longer than the lease: the pair goes on alone.
func (r *round) cutFrom(ways []way) {
	r.begin()
	r.cutAll(ways...)
	r.lost(r.active)
}

// severed cuts the pair for longer than the lease: active and region go on.
func (r *round) severed(ways []way) {
	r.begin()
	r.cutAll(ways...)
	r.moment(2 * ttl)
}

func (r *round) isolate(node string) {
	peer := r.active
	if node == peer {
		peer = r.standby
	}
	r.cutAll(append(both(node, regionEnd), both(node, peer)...)...)
}

func (r *round) cutAll(ways ...way) {
	r.t.Helper()
	r.cut(r.t, ways...)
	r.undo = append(r.undo, func() { r.heal(r.t, ways...) })
}

// pause stops a process until the round's fault is undone.
func (r *round) pause(pid int) {
	r.t.Helper()
	require.NoError(r.t, syscall.Kill(pid, syscall.SIGSTOP))
	r.resume(pid)
}

// resume has a stopped process go on when the round's fault is undone.
func (r *round) resume(pid int) {
	r.undo = append(r.undo, func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(err, syscall.ESRCH) { // it may have been killed for it
			require.NoError(r.t, err)
		}
	})
}

// die takes a whole machine away, as a power cut does: nobody is told, and nothing of it runs.
func (r *round) die(node string) {
	r.t.Helper()
	pid, guardians := r.pid(r.t, node), r.guardians(node)
	r.begin()
	r.isolate(node)
	kill9(r.t, pid)
	for _, g := range guardians {
		_ = syscall.Kill(g, syscall.SIGKILL) // one may have ended for a new revision
	}
	r.order(r.t, "stop", node) // it stays down
	for _, g := range r.guardians(node) {
		_ = syscall.Kill(g, syscall.SIGKILL) // one may have been begun meanwhile
	}
	r.undo = append(r.undo, func() { r.order(r.t, "start", node) })
}

// strike begins the fault with a signal to an instance's guardian on the active. Between two revisions
// there is none, and one that ended for a new revision has a successor.
func (r *round) strike(c *cargo, sig syscall.Signal) (pid int) {
	r.t.Helper()
	waitFor(r.t, c.key.Name+" has a guardian", func(context.Context) error {
		if pid = r.guardians(r.active)[c.key.Name]; pid == 0 {
			return errNotYet
		}
		r.begin()
		return syscall.Kill(pid, sig)
	})
	return pid
}

// guardians are those of a node that live, by instance.
func (r *round) guardians(node string) map[string]int {
	pids := map[string]int{}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(r.t, err)
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(text), "\x00")
		if len(args) > 3 && args[1] == guardian.Command && filepath.Dir(args[3]) == filepath.Join(r.data, "nodes", node, "run") {
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			require.NoError(r.t, err)
			pids[filepath.Base(args[3])] = pid
		}
	}
	return pids
}

// moment passes before something is undone: a part of the fault, at random.
func (r *round) moment(most time.Duration) {
	pause := time.NewTimer(time.Duration(r.draw.Int64N(int64(most))))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.t.Context().Done():
	}
}

// back waits until another process of a node runs.
func (r *round) back(node string, before int) {
	waitFor(r.t, node+" runs again", func(context.Context) error {
		if r.pid(r.t, node) == before {
			return errNotYet
		}
		return nil
	})
}

// again waits until an instance runs anew.
func (r *round) again(c *cargo) {
	waitFor(r.t, c.key.Name+" runs again", func(context.Context) error {
		n, err := c.newest()
		if err == nil && n.from <= r.began {
			err = errNotYet
		}
		return err
	})
	r.note("instance runs again", since(r.began))
}

// moved waits until every instance runs on the other node, and notes when the last began.
func (r *round) moved() {
	var last lease.Instant
	for _, c := range r.cargo {
		waitFor(r.t, c.key.Name+" runs on "+r.standby, func(context.Context) error {
			first, err := c.firstOn(r.standby, r.began)
			last = max(last, first.from)
			return err
		})
	}
	r.went = true
	r.note("failover to running", last.Sub(r.began))
}

// firstOn is the first run on a node after an instant.
func (c *cargo) firstOn(node string, after lease.Instant) (life, error) {
	all, err := c.all()
	if err != nil {
		return life{}, err
	}
	for _, n := range all {
		if n.node == node && n.from > after {
			return n, nil
		}
	}
	return life{}, errNotYet
}

// lost waits until the region has seen that a node is not there, and notes after how long.
func (r *round) lost(node string) {
	id := r.links[node]
	waitFor(r.t, "the region sees that "+node+" is lost", func(ctx context.Context) error {
		var ended *time.Time
		if err := r.pg.QueryRow(ctx, `SELECT ended_at FROM connections WHERE id = $1`, id).Scan(&ended); err != nil {
			return err
		}
		if ended == nil {
			return errNotYet
		}
		r.note("loss detected", ended.Sub(r.wall))
		return nil
	})
}

// handOver asks the region to move the lease, and notes for how long nothing ran.
func (r *round) handOver() {
	var op api.Accepted
	require.NoError(r.t, insist(r.t, "fail over", func(ctx context.Context) (err error) {
		op, err = r.api.FailoverSite(ctx, r.site, api.FailoverRequest{To: r.standby}, api.Mutation{})
		return err
	}))
	ended := r.ended(r.t, op.Operation.ID)
	require.Equal(r.t, fleet.OperationSucceeded, ended.State, "%+v", ended)
	r.moved()
	gap := time.Duration(0)
	for _, c := range r.cargo {
		first, err := c.firstOn(r.standby, r.began)
		require.NoError(r.t, err)
		gap = max(gap, first.from.Sub(r.until(c, first)))
	}
	r.note("nothing ran", gap)
}

// until is when the last run before another one ended.
func (r *round) until(c *cargo, before life) lease.Instant {
	all, err := c.all()
	require.NoError(r.t, err)
	var last lease.Instant
	for _, n := range all {
		if n.from < before.from {
			last = max(last, n.last)
		}
	}
	require.NotZero(r.t, last, fmt.Sprint(before))
	return last
}
