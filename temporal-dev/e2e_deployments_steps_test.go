//go:build slow

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/region"
)

// A node and a guardian that are killed or stand still at any step of a replacement: it ends, as many as
// before stay healthy all the time, and nothing runs twice or is left.
//
// S14, S15, S17, S49, S53, S106, S110, S130, X2, X5, X6
func TestE2EDeploymentNodeFalls(t *testing.T) {
	t.Parallel()
	s := startWith(t, 2, isolated)
	d := newService(t, s, "stepped", 2)
	d.deploy(t)
	for _, step := range []string{
		"after_replica_set", "before_replica_start", "after_replica_start", "before_replica_health",
		"before_replica_stop", "after_replica_stop", "before_replica_drop",
	} {
		t.Run("a node is killed "+step, func(t *testing.T) { d.nodeFallsAt(t, step, "") })
		t.Run("a node is paused "+step, func(t *testing.T) { d.nodeFallsAt(t, step, region.FailpointPause) })
	}
	t.Run("a guardian is killed before it starts the program", d.guardianKilledPreparing)
	t.Run("a guardian is killed while its program starts", d.guardianKilledStarting)
	t.Run("a guardian is paused while its program starts", d.guardianPausedStarting)
	t.Run("a guardian is killed while it stops its program", func(t *testing.T) { d.guardianFallsStopping(t, syscall.SIGKILL) })
	t.Run("a guardian is paused while it stops its program", func(t *testing.T) { d.guardianFallsStopping(t, syscall.SIGSTOP) })
	d.destroy(t)
}

// The same of a region's processes.
//
// S13, S14, S15, S16, S18, S34, S36, X2, X6, X11, X13, X23
func TestE2EDeploymentServerFalls(t *testing.T) {
	t.Parallel()
	s := startWith(t, 2, isolated)
	d := newService(t, s, "stepped", 2)
	d.deploy(t)
	t.Run("the server is killed before a visit", func(t *testing.T) {
		fired := d.arm(t, serverName, "before_visit")
		d.restartedWhile(t, func(api.Operation, []fleet.ReplicaID) {
			waitFor(t, "it was killed", func(context.Context) error { return unless(fired()) })
		})
	})
	t.Run("the server is killed after each visit", d.serverKilledAfterEachVisit)
	for _, step := range []string{"before_visit", "after_visit"} {
		t.Run("one of two servers is paused "+step, func(t *testing.T) { d.serverPausedAt(t, step) })
	}
	for _, name := range []string{temporalName, postgresName, serverName} {
		t.Run(name+" is paused", func(t *testing.T) { d.regionPaused(t, name) })
	}
	d.destroy(t)
	requireSmall(t, s.histories(t))
}

// restartedWhile restarts all replicas while something happens, and checks how it ends.
func (d *service) restartedWhile(t *testing.T, happens func(op api.Operation, before []fleet.ReplicaID)) {
	t.Helper()
	d.restartedUnder(t, func(op api.Operation, before []fleet.ReplicaID) (fallen []string) {
		happens(op, before)
		return nil
	})
}

// restartedUnder is restartedWhile with nodes that fall: the region may end a replica because a new one is healthy on a
// node that has just fallen, until it notices.
func (d *service) restartedUnder(t *testing.T, happens func(op api.Operation, before []fleet.ReplicaID) (fallen []string)) {
	t.Helper()
	before := ids(d.healthy(t, 2))
	fewest := d.least(t)
	op := d.restart(t)
	fallen := happens(op, before)
	requireSucceeded(t, d.ended(t, op.ID))
	after := d.healthy(t, 2)
	require.GreaterOrEqual(t, fewest(fallen...), 2)
	for _, r := range after {
		require.NotContains(t, before, r.ID)
	}
	d.alone(t, after)
	d.confirmed(t)
}

// alone checks that of all processes that ever were those of the replicas live, and no others, and
// that none was started twice.
func (d *service) alone(t *testing.T, all []api.Replica) {
	t.Helper()
	now := pidsByID(all)
	traces := d.traces(t)
	waitFor(t, "nothing else runs", func(context.Context) error {
		for pid, of := range traces {
			if alive(pid) != (now[of] == pid) {
				return fmt.Errorf("%w: process %d of replica %s, alive %t", errNotYet, pid, of, alive(pid))
			}
		}
		return nil
	})
	for _, id := range d.everRan(t) {
		require.Len(t, d.processesOf(t, id), 1, "replica %s was started more than once", id)
	}
}

// anywhere arms a step at all nodes; where waits until one comes there, and disarms the others.
func (d *service) anywhere(t *testing.T, step, word string) (where func() []string) {
	t.Helper()
	var nodes []string
	for _, site := range siteNames(2) {
		nodes = append(nodes, pair(string(site))...)
	}
	fired := map[string]func() bool{}
	for _, node := range nodes {
		fired[node] = d.armWith(t, node, step, word)
	}
	came := func(node string) bool { return fired[node]() }
	return func() []string {
		waitFor(t, "a node comes "+step, func(context.Context) error { return unless(slices.ContainsFunc(nodes, came)) })
		return slices.DeleteFunc(nodes, func(node string) bool {
			return !errors.Is(os.Remove(filepath.Join(d.failpoints, node+"."+step)), os.ErrNotExist)
		})
	}
}

// nodeFallsAt kills the agent that comes first to a step, or has it stand still there until the region
// goes on without it.
func (d *service) nodeFallsAt(t *testing.T, step, word string) {
	where := d.anywhere(t, step, word)
	d.restartedUnder(t, func(_ api.Operation, before []fleet.ReplicaID) []string {
		nodes := where()
		t.Logf("%v came %s", nodes, step)
		if word == "" {
			return nil
		}
		d.until(t, "two new ones are healthy elsewhere", func(all []api.Replica) error {
			n := 0
			for _, r := range all {
				if !slices.Contains(nodes, r.Node) && !slices.Contains(before, r.ID) && r.State == fleet.ReplicaHealthy {
					n++
				}
			}
			return unless(n == 2)
		})
		for _, node := range nodes {
			d.signal(t, node, syscall.SIGCONT)
		}
		return nodes
	})
}

// comesTo waits until the server is at an armed step, or has no more to do for an operation, which the
// database knows while nobody serves.
func (d *service) comesTo(t *testing.T, fired func() bool, op api.Operation) (over bool) {
	t.Helper()
	waitFor(t, "the server is there, or it is done", func(ctx context.Context) error {
		n, err := d.count(ctx, `SELECT count(*) FROM operations WHERE id = $1 AND state <> 'running'`, op.ID)
		if err != nil {
			return err
		}
		over = n == 1
		return unless(over || fired())
	})
	return over
}

// serverKilledAfterEachVisit: what a visit did is done, though nobody was told of it.
func (d *service) serverKilledAfterEachVisit(t *testing.T) {
	killed := 0
	d.restartedWhile(t, func(op api.Operation, _ []fleet.ReplicaID) {
		for over := false; !over; {
			fired := d.arm(t, serverName, "after_visit")
			if over = d.comesTo(t, fired, op); fired() {
				killed++
			}
		}
		_ = os.Remove(filepath.Join(d.failpoints, serverName+".after_visit")) // it may have come there once more
	})
	require.GreaterOrEqual(t, killed, 3)
	t.Logf("killed %d times", killed)
}

// serverPausedAt: another server goes on, and what the paused one does when it wakes is too late. Nodes
// read their sets at the paused one, as no balancer is before the two, so it has to wake.
func (d *service) serverPausedAt(t *testing.T, step string) {
	at := filepath.Join(d.failpoints, serverName+"."+step)
	for paused := false; !paused; { // it may be done before
		d.restartedWhile(t, func(op api.Operation, _ []fleet.ReplicaID) {
			d.comesTo(t, d.armWith(t, serverName, step, region.FailpointPause), op)
			if paused = errors.Is(os.Remove(at), os.ErrNotExist); !paused {
				return
			}
			t.Cleanup(func() { d.signal(t, serverName, syscall.SIGCONT) })
			before := d.turn(t)
			d.serve(t, "")
			waitFor(t, "the other server visits", func(context.Context) error { return unless(d.turn(t) != before) })
			d.signal(t, serverName, syscall.SIGCONT)
		})
	}
	d.restartedWhile(t, func(api.Operation, []fleet.ReplicaID) {})
}

// turn differs once any server has completed another workflow task of the deployment's entity.
func (d *service) turn(t *testing.T) string {
	t.Helper()
	events := d.events(t, &commonpb.WorkflowExecution{WorkflowId: fleet.DeploymentSubject(fleet.DeploymentName(d.name))})
	done := 0
	for _, e := range events {
		if e.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			done++
		}
	}
	return fmt.Sprint(events[0].GetEventTime().AsTime(), done)
}

// pauseOf is how many calls in a row find no answer before a process of the region goes on; each waits
// for 2 s.
const pauseOf = 3

// regionPaused has a process of the region stand still for long, up and down again.
func (d *service) regionPaused(t *testing.T, name string) {
	before := d.healthy(t, 2)
	call := map[string]func(context.Context) error{
		serverName:   func(ctx context.Context) error { return answers(ctx, d.doc.API+"/healthz") },
		postgresName: d.pg.Ping,
		temporalName: func(ctx context.Context) error {
			_, err := d.temporal.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
			return err
		},
	}[name]
	for _, n := range []int{4, 2} {
		op := d.scale(t, n)
		goOn := d.pauseAll(t, name)
		for range pauseOf {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			require.Error(t, call(ctx))
			cancel()
		}
		goOn()
		requireSucceeded(t, d.ended(t, op.ID))
		all := d.healthy(t, n)
		if n == 4 {
			require.Subset(t, ids(all), ids(before))
		}
		d.alone(t, all)
	}
}

// pauseAll has a child and its own children stand still.
func (d *service) pauseAll(t *testing.T, name string) (goOn func()) {
	t.Helper()
	pid := d.pid(t, name)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	require.NoError(t, err)
	all := []int{pid}
	for _, child := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(child)
		require.NoError(t, err)
		_ = syscall.Kill(pid, syscall.SIGSTOP) // one may have ended
		all = append(all, pid)
	}
	goOn = sync.OnceFunc(func() {
		for _, pid := range all {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	t.Cleanup(goOn)
	for _, pid := range all {
		eventually(t, "it stands still", func() bool { return !moves(t, pid) })
	}
	return goOn
}

// newOne waits for a replica that came after others, and is as it should be.
func (d *service) newOne(t *testing.T, what string, before []fleet.ReplicaID, so func(api.Replica) bool) (one api.Replica) {
	t.Helper()
	d.until(t, what, func(all []api.Replica) error {
		for _, r := range all {
			if !slices.Contains(before, r.ID) && so(r) {
				one = r
				return nil
			}
		}
		return errNotYet
	})
	return one
}

func (d *service) guards(t *testing.T, r api.Replica) int {
	t.Helper()
	return d.guardianOf(t, r.Node, filepath.Join("..", "replicas", "run", string(r.ID)))
}

// guardianKilledPreparing: the commands before the program ran in vain; another replica is made.
func (d *service) guardianKilledPreparing(t *testing.T) {
	asked, may := filepath.Join(d.ledger, "asked"), filepath.Join(d.ledger, "may")
	d.put.PreStart = [][]string{{"/bin/sh", "-c", fmt.Sprintf("touch %s; until test -e %s; do sleep 0.05; done", asked, may)}}
	before, fewest := ids(d.healthy(t, 2)), d.least(t)
	op := d.declare(t)
	eventually(t, "its first command runs", func() bool { _, err := os.Stat(asked); return err == nil })
	one := d.newOne(t, "one is prepared", before, func(r api.Replica) bool { return r.Phase == fleet.PhasePreStart })
	kill9(t, d.guards(t, one))
	d.newOne(t, "another takes its place", append(before, one.ID), func(api.Replica) bool { return true })
	require.NoError(t, os.WriteFile(may, nil, 0o600))
	requireSucceeded(t, d.ended(t, op.ID))
	all := d.healthy(t, 2)
	require.GreaterOrEqual(t, fewest(), 2)
	require.Empty(t, d.processesOf(t, one.ID), "its program never ran")
	d.alone(t, all)
}

// slow has its replicas start no more from now on until the function is called.
func (d *service) slow(t *testing.T) (start func()) {
	t.Helper()
	may := filepath.Join(d.ledger, "may-start")
	start = func() { require.NoError(t, os.WriteFile(may, nil, 0o600)) }
	start()
	if d.put.Env["AWAIT"] == "" {
		d.put.Env["AWAIT"] = may
		requireSucceeded(t, d.ended(t, d.declare(t).ID))
	}
	require.NoError(t, os.Remove(may))
	return start
}

func starting(r api.Replica) bool {
	return r.Phase == fleet.PhaseRunning && r.State == fleet.ReplicaStarting
}

func (d *service) guardianKilledStarting(t *testing.T) {
	start := d.slow(t)
	d.restartedWhile(t, func(_ api.Operation, before []fleet.ReplicaID) {
		one := d.newOne(t, "one starts", before, starting)
		kill9(t, d.guards(t, one))
		d.newOne(t, "another takes its place", append(before, one.ID), func(api.Replica) bool { return true })
		start()
	})
}

// guardianPausedStarting: it is its program that is probed, and that is well.
func (d *service) guardianPausedStarting(t *testing.T) {
	start := d.slow(t)
	d.restartedWhile(t, func(_ api.Operation, before []fleet.ReplicaID) {
		one := d.newOne(t, "one starts", before, starting)
		guardian := d.guards(t, one)
		standStill(t, guardian)
		start()
		d.newOne(t, "it is healthy", before, func(r api.Replica) bool { return r.ID == one.ID && r.State == fleet.ReplicaHealthy })
		require.NoError(t, syscall.Kill(guardian, syscall.SIGCONT))
	})
}

// guardianFallsStopping: a program that does not heed SIGTERM ends all the same.
func (d *service) guardianFallsStopping(t *testing.T, sig syscall.Signal) {
	d.put.Env["STUBBORN"], d.put.StopSeconds = sig.String(), 5
	requireSucceeded(t, d.ended(t, d.declare(t).ID))
	d.restartedWhile(t, func(_ api.Operation, before []fleet.ReplicaID) {
		var old api.Replica
		d.until(t, "one stops", func(all []api.Replica) error {
			for _, r := range all {
				if slices.Contains(before, r.ID) && r.Phase == fleet.PhaseStopping {
					old = r
					return nil
				}
			}
			return errNotYet
		})
		guardian := d.guards(t, old)
		require.NoError(t, syscall.Kill(guardian, sig))
		eventually(t, "it ended", func() bool { return !alive(old.PID) })
	})
}
