//go:build slow

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// traces are the processes that ran, with the replica that each was.
func (d *service) traces(t *testing.T) map[int]fleet.ReplicaID {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(d.ledger, "*.pid"))
	require.NoError(t, err)
	out := map[int]fleet.ReplicaID{}
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(f), ".pid"))
		require.NoError(t, err)
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		out[pid] = fleet.ReplicaID(text)
	}
	return out
}

// processesOf are the processes that a replica ever was.
func (d *service) processesOf(t *testing.T, id fleet.ReplicaID) (out []int) {
	t.Helper()
	for pid, of := range d.traces(t) {
		if of == id {
			out = append(out, pid)
		}
	}
	slices.Sort(out)
	return out
}

// everRan are the replicas of which a process ever ran.
func (d *service) everRan(t *testing.T) []fleet.ReplicaID {
	t.Helper()
	return slices.Compact(slices.Sorted(maps.Values(d.traces(t))))
}

// pidsByID are the processes of the replicas that are there.
func pidsByID(all []api.Replica) map[fleet.ReplicaID]int {
	out := map[fleet.ReplicaID]int{}
	for _, r := range all {
		out[r.ID] = r.PID
	}
	return out
}

// busiest is a node that runs a replica of it.
func (d *service) busiest(t *testing.T) string {
	t.Helper()
	return d.replicas(t)[0].Node
}

// elsewhere waits until three are healthy, none of them on a node.
func (d *service) elsewhere(t *testing.T, node string) []api.Replica {
	t.Helper()
	return d.until(t, "all healthy, none on "+node, func(all []api.Replica) error {
		on := slices.ContainsFunc(all, func(r api.Replica) bool { return r.Node == node })
		if on || len(all) != 3 || !allHealthy(all) {
			return errNotYet
		}
		return nil
	})
}

// agentKilled: replicas outlive their agent, which finds them again.
func (d *service) agentKilled(t *testing.T) {
	before := d.healthy(t, 3)
	node := before[0].Node
	connection := d.connection(t, node)
	d.kill(t, node)
	waitFor(t, node+" is connected again", func(context.Context) error {
		if now := d.connection(t, node); now == "" || now == connection {
			return errNotYet
		}
		return nil
	})
	require.Equal(t, pidsByID(before), pidsByID(d.healthy(t, 3)), "the same processes")
	require.Equal(t, ids(before), d.everRan(t), "and no others ever")
	kill9(t, before[0].PID) // its new agent sees that
	d.until(t, "the killed one is replaced", func(all []api.Replica) error {
		if len(all) != 3 || slices.Contains(ids(all), before[0].ID) || !allHealthy(all) {
			return errNotYet
		}
		return nil
	})
}

func (d *service) connection(t *testing.T, node string) (id string) {
	t.Helper()
	require.NoError(t, d.pg.QueryRow(t.Context(), `SELECT coalesce(max(id), '') FROM connections
		WHERE node = $1 AND ended_at IS NULL AND state = 'Active'`, node).Scan(&id))
	return id
}

// guardianKilled: what a guardian ran ends with it, and runs elsewhere.
func (d *service) guardianKilled(t *testing.T) {
	r := d.healthy(t, 3)[0]
	kill9(t, d.guardianOf(t, r.Node, filepath.Join("..", "replicas", "run", string(r.ID))))
	d.until(t, "it is replaced", func(all []api.Replica) error {
		if len(all) != 3 || slices.Contains(ids(all), r.ID) || !allHealthy(all) {
			return errNotYet
		}
		return nil
	})
	require.False(t, alive(r.PID))
}

// regionKilled: whatever of the region dies, what it was at goes on, and nothing runs twice.
func (d *service) regionKilled(t *testing.T) {
	for _, name := range []string{serverName, temporalName, postgresName} {
		t.Run(name, func(t *testing.T) { d.killedWhileScaled(t, name) })
	}
}

func (d *service) killedWhileScaled(t *testing.T, name string) {
	before := d.healthy(t, 3)
	up := d.scale(t, 6)
	d.kill(t, name)
	requireSucceeded(t, d.ended(t, up.ID))
	six := d.healthy(t, 6)
	require.Subset(t, ids(six), ids(before))
	down := d.scale(t, 3)
	d.kill(t, name)
	requireSucceeded(t, d.ended(t, down.ID))
	three := d.healthy(t, 3)
	d.alone(t, three)
}

// nodeDrained: replicas move, new before old, and as many as before stay healthy (S110).
func (d *service) nodeDrained(t *testing.T) {
	d.healthy(t, 3)
	node := d.busiest(t)
	fewest := d.least(t)
	op := d.change(t, "drain "+node, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.DrainNode(ctx, node, api.NodeDrainRequest{}, m)
	})
	requireSucceeded(t, d.ended(t, op.ID))
	d.elsewhere(t, node)
	require.GreaterOrEqual(t, fewest(), 3)
	_, err := d.api.UncordonNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
}

// canaryDrained: in the pause of a canary a drain moves what is there, each replica as its own revision, and the canary waits on (F62, S110, S125).
func (d *service) canaryDrained(t *testing.T) {
	stable := d.put.Env["GREETING"]
	d.put.Strategy = api.Strategy{Type: fleet.StrategyCanary, Steps: []api.CanaryStep{{Weight: 30, Pause: true}}}
	defer func() { d.put.Strategy = api.Strategy{} }()
	op := d.greets(t, "canary")
	paused := func(r api.Rollout) bool { return r.State == fleet.RolloutPaused }
	d.under(t, "it is paused", paused)
	both := map[string]int{stable: 2, "canary": 1}
	require.Equal(t, both, d.greetings(t, 3))
	all := d.replicas(t)
	node := all[len(all)-1].Node // that of the canary
	fewest := d.least(t)
	drain := d.change(t, "drain "+node, func(ctx context.Context, m api.Mutation) (api.Accepted, error) {
		return d.api.DrainNode(ctx, node, api.NodeDrainRequest{}, m)
	})
	requireSucceeded(t, d.ended(t, drain.ID))
	d.elsewhere(t, node)
	require.Equal(t, both, d.greetings(t, 3))
	require.True(t, paused(d.rollouts(t)[0]))
	require.GreaterOrEqual(t, fewest(), 3)
	_, err := d.api.UncordonNode(t.Context(), node, api.Mutation{})
	require.NoError(t, err)
	d.verb(t, "promote", api.RolloutRequest{})
	requireSucceeded(t, d.ended(t, op.ID))
	d.answering(t, 3, "canary")
}

// regionAway: a region that was away itself for longer than a node may be, stopped cleanly or killed, takes no
// node for lost when it is back: the same processes go on.
func (d *service) regionAway(t *testing.T) {
	before := pidsByID(d.healthy(t, 3))
	d.order(t, "stop", serverName)
	waitFor(t, "the region is away for longer than lostSeconds", func(ctx context.Context) error {
		n, err := d.count(ctx, `SELECT count(*) FROM connections WHERE ended_at IS NULL OR ended_at > now() - make_interval(secs => $1)`,
			d.put.Recovery.LostSeconds+1)
		if err == nil && n > 0 {
			err = errNotYet
		}
		return err
	})
	d.order(t, "start", serverName)
	waitFor(t, "its nodes are back, and it was looked at since", func(ctx context.Context) error {
		n, err := d.count(ctx, `SELECT count(*) FROM deployments d WHERE d.name = $1 AND NOT EXISTS (
			SELECT 1 FROM replicas r JOIN replica_nodes n ON n.name = r.node
			WHERE r.deployment = d.name AND r.ended_at IS NULL AND (NOT n.heard OR n.heard_since > d.seen_at))`, string(d.name))
		if err == nil && n == 0 {
			err = errNotYet
		}
		return err
	})
	require.Equal(t, before, pidsByID(d.healthy(t, 3)), d.decisions(t))
}

// nodeCutOff: what the region does not hear of for too long runs elsewhere; when the node is heard
// again it ends what it still ran (S130).
func (d *service) nodeCutOff(t *testing.T) {
	before := d.healthy(t, 3)
	node := d.busiest(t)
	d.signal(t, node, syscall.SIGSTOP)
	waitFor(t, "its health is out of date", func(context.Context) error {
		all := d.replicas(t)
		for _, r := range all {
			if r.Node == node && r.Health == fleet.HealthDegraded {
				return nil
			}
		}
		if !slices.ContainsFunc(all, func(r api.Replica) bool { return r.Node == node }) {
			return nil // and it is replaced already
		}
		return fmt.Errorf("%w: %s", errNotYet, describe(all))
	})
	d.until(t, "three healthy ones elsewhere", func(all []api.Replica) error {
		n := 0
		for _, r := range all {
			if r.Node != node && r.State == fleet.ReplicaHealthy {
				n++
			}
		}
		if n != 3 {
			return errNotYet
		}
		return nil
	})
	d.signal(t, node, syscall.SIGCONT)
	d.elsewhere(t, node)
	for _, r := range before {
		if r.Node == node {
			waitFor(t, "the old one ends", func(context.Context) error {
				if alive(r.PID) {
					return errNotYet
				}
				return nil
			})
		}
	}
}

// nodeLost: a node that is gone with all that ran there is done without.
func (d *service) nodeLost(t *testing.T) {
	d.healthy(t, 3)
	node := d.busiest(t)
	d.order(t, "stop", node)
	d.until(t, "three healthy ones elsewhere", func(all []api.Replica) error {
		n := 0
		for _, r := range all {
			if r.Node != node && r.State == fleet.ReplicaHealthy && alive(r.PID) {
				n++
			}
		}
		if n != 3 {
			return errNotYet
		}
		return nil
	})
	d.order(t, "start", node)
	d.elsewhere(t, node)
	d.confirmed(t)
}

// confirmed waits until nodes said that nothing runs of what they were told to end: before that nobody knows
// how a restart, stop or destroy ends (X4).
func (d *service) confirmed(t *testing.T) {
	t.Helper()
	waitFor(t, "nothing uncounted may run", func(ctx context.Context) error {
		e, err := d.api.Explain(ctx, d.name)
		if err == nil && len(e.Uncounted) > 0 {
			err = fmt.Errorf("%w: %+v", errNotYet, e.Uncounted)
		}
		return err
	})
}
