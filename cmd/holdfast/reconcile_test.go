package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
)

// comparedNode stands for the workflows and for plant-1-b, which compares itself.
type comparedNode struct {
	*testing.T
	*store.Store
	n int
}

// enrolled makes plant-1-b a node that can be told.
func (c *comparedNode) enrolled() {
	c.Helper()
	hash := []byte(strings.Repeat("j", 32))
	_, err := c.AddJoinToken(c.Context(), keyring.JoinToken{Hash: hash, Site: "plant-1", Node: "plant-1-b", CreatedBy: "test"}, time.Hour)
	require.NoError(c, err)
	_, err = c.Enrol(c.Context(), nodes.Enrolment{
		JoinTokenHash: hash, Node: "plant-1-b", Site: "plant-1", SigningKey: []byte(strings.Repeat("s", 32)), SealingKey: []byte(strings.Repeat("e", 32)),
	})
	require.NoError(c, err)
}

// compare is one comparison whole: what the node says, and what the workflow makes of it.
func (c *comparedNode) compare(report fleet.ReconcileReport, extras ...fleet.Extra) {
	c.n++
	id := fmt.Sprintf("%032x", c.n)
	begun, err := c.BeginReconcile(c.Context(), fleet.ReconcileStart{
		ID: id, Node: "plant-1-b", Reason: "request", Run: "run-1", Build: "b1", TokenHash: []byte(id), TokenLife: time.Minute,
	})
	require.NoError(c, err)
	pass, err := c.ReconcileOf(c.Context(), []byte(id), time.Minute)
	require.NoError(c, err)
	answer, err := c.ConfirmAbsent(c.Context(), pass, extras)
	require.NoError(c, err)
	report.Set, report.Waiting, report.Dropped = fleet.SetVersion{Era: 1}, len(answer.Wait), len(answer.Drop)
	for _, d := range answer.Wait {
		report.Differ(d.Instance, d.Why)
	}
	require.NoError(c, c.ReportReconcile(c.Context(), pass, report))
	state, reason, message := decide.ReconcileOutcome(decide.ReconcilePass{Report: report})
	require.NoError(c, c.EndReconcile(c.Context(), fleet.ReconcileEnd{
		ID: id, Node: "plant-1-b", By: begun.By, State: state, Reason: reason, Message: message,
	}))
}

// N54, N86, X19, X20: the command line against the region's own handlers.
func TestReconcile(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	node := &comparedNode{T: t, Store: store}
	s.ok("apply", "-f", write(t, "site.yaml",
		"kind: Site\nname: plant-1\nspec: {nodes: [{name: plant-1-a, role: active}, {name: plant-1-b, role: standby}]}"))
	node.enrolled()
	ghosts := []fleet.Extra{{Instance: "ghost-1", Version: fleet.Version{Era: 1, Revision: 4}}, {Instance: "ghost-2", Version: fleet.Version{Era: 1, Revision: 5}}}
	asked := func() []api.Operation {
		var list api.List[api.Operation]
		require.NoError(t, json.Unmarshal([]byte(s.ok("operations", "list", "--node", "plant-1-b", "--state", "running", "-o", "json").stdout), &list))
		return list.Items
	}

	t.Run("asks for a comparison and waits for its end", func(t *testing.T) {
		out, stop := s.follow("reconcile", "node", "plant-1-b")
		out.await(t, "waiting for the workflow of node plant-1-b")
		require.Len(t, asked(), 1)
		node.compare(fleet.ReconcileReport{Expected: 2, Equal: 2}, ghosts...)
		out.await(t, "reconcile node/plant-1-b succeeded (orphans_wait): 2 expected, 2 equal, 0 fetched, 0 dropped, 2 wait for an operator")
		require.Equal(t, exitOK, stop())
	})

	t.Run("describes the last comparison and what differs", func(t *testing.T) {
		got := s.ok("describe", "node", "plant-1-b").stdout
		for _, want := range []string{"name: plant-1-b", "orphans: 2", "Last comparisons:", "2 wait for an operator", "Differs from what its site expects:", "ghost-2", "never_known"} {
			require.Contains(t, got, want)
		}
		require.NotContains(t, s.ok("describe", "node", "plant-1-a").stdout, "comparison")
		require.Contains(t, s.ok("describe", "node", "plant-1-b", "-o", "json").stdout, `"reconcile": {`)
		require.Contains(t, s.ok("get", "nodes").stdout, "ORPHANS")
	})

	t.Run("lists orphans and approves them by name", func(t *testing.T) {
		require.Equal(t, "orphan/plant-1-b/ghost-1\norphan/plant-1-b/ghost-2\n", s.ok("orphans", "list", "plant-1-b", "-o", "name").stdout)
		require.Contains(t, s.ok("orphans", "list", "plant-1-b").stdout, "never_known")
		require.Equal(t, []string{"ghost-1", "ghost-2", ":4"}, strings.Fields(s.ok("__complete", "orphans", "approve", "plant-1-b", "").stdout))
		require.Equal(t, []string{"plant-1-a", "plant-1-b", ":4"}, strings.Fields(s.ok("__complete", "reconcile", "node", "").stdout))

		refused := s.run("orphans", "approve", "plant-1-b", "ghost-1", "press-9")
		require.Equal(t, exitNotFound, refused.code)
		require.Contains(t, refused.stderr, "not listed on node plant-1-b: press-9")
		require.Contains(t, refused.stderr, "hint: holdfast orphans list plant-1-b")
		require.Contains(t, s.ok("orphans", "approve", "plant-1-b", "--all", "--dry-run").stdout, "would reconcile (dry run, nothing was changed)")
		require.NotContains(t, s.ok("orphans", "list", "plant-1-b").stdout, " by ")

		out, stop := s.follow("orphans", "approve", "plant-1-b", "ghost-1", "--reason", "ticket 4711")
		out.await(t, "node/plant-1-b orphans approved, operation ")
		require.Contains(t, s.ok("orphans", "list", "plant-1-b").stdout, " by test@")
		node.compare(fleet.ReconcileReport{Expected: 2, Equal: 2}, ghosts...)
		out.await(t, "1 dropped, 1 wait for an operator")
		require.Equal(t, exitOK, stop())
		require.Equal(t, "orphan/plant-1-b/ghost-2\n", s.ok("orphans", "list", "plant-1-b", "-o", "name").stdout)
		require.Equal(t, exitConflict, s.run("orphans", "approve", "plant-1-a", "--all").code)
	})

	t.Run("lists replicas that nobody knows after the instances, and approves them", func(t *testing.T) { // X3, X28
		_, err := node.ReplicasReported(t.Context(), fleet.ReplicasReport{Node: "plant-1-b", Replicas: []fleet.ReplicaStatus{{
			ID: "0a1b2c3d4e5f", Phase: fleet.PhaseRunning, Health: fleet.HealthHealthy, Deployment: "web", Revision: 3,
		}}})
		require.NoError(t, err)
		require.Equal(t, "orphan/plant-1-b/ghost-2\norphan/plant-1-b/replica/0a1b2c3d4e5f\n", s.ok("orphans", "list", "plant-1-b", "-o", "name").stdout)
		require.Regexp(t, `replica/0a1b2c3d4e5f +web +running +3 .* never_known`, s.ok("orphans", "list", "plant-1-b").stdout)
		require.Contains(t, s.ok("__complete", "orphans", "approve", "plant-1-b", "").stdout, "replica/0a1b2c3d4e5f")
		require.Equal(t, exitUsage, s.run("orphans", "approve", "plant-1-b", "replica/web-1").code)
		require.Equal(t, "node/plant-1-b orphans approved\n", s.ok("orphans", "approve", "plant-1-b", "replica/0a1b2c3d4e5f").stdout)
		require.Contains(t, s.ok("orphans", "list", "plant-1-b").stdout, " by test@")
		set, err := node.NodeReplicas(t.Context(), "plant-1-b")
		require.NoError(t, err)
		require.Equal(t, []fleet.NodeReplica{{ID: "0a1b2c3d4e5f", Deployment: "web"}}, set.Replicas)
	})

	t.Run("ends with a code that says how the comparison ended", func(t *testing.T) {
		var first, again outcome
		args := []string{"reconcile", "node", "plant-1-b", "--wait=false", "--idempotency-key", "once", "-o", "json"}
		require.NoError(t, json.Unmarshal([]byte(s.ok(args...).stdout), &first))
		require.NoError(t, json.Unmarshal([]byte(s.ok(args...).stdout), &again))
		require.Equal(t, first.Operation.ID, again.Operation.ID)
		node.compare(fleet.ReconcileReport{Refused: decide.SetEmpty})
		got := s.run("wait", first.Operation.ID)
		require.Equal(t, exitOperationFailed, got.code)
		require.Contains(t, got.stderr, "error: set_empty: reconcile node/plant-1-b ended as failed")
		require.Contains(t, got.stderr, "hint: holdfast describe node plant-1-b")

		timeout := s.run("reconcile", "node", "plant-1-b", "--timeout", "3s")
		require.Equal(t, exitTimeout, timeout.code, timeout.stderr)
		for _, op := range asked() {
			require.Contains(t, s.ok("operations", "cancel", op.ID).stdout, "cancelled")
		}
		require.Empty(t, asked())
		require.Equal(t, exitNotFound, s.run("reconcile", "node", "ghost").code)
		require.Equal(t, exitNotFound, s.run("reconcile", "site", "ghost").code)
		require.Equal(t, exitNotFound, s.run("orphans", "list", "ghost").code)
	})

	t.Run("asks for each node of a site", func(t *testing.T) {
		got := s.ok("reconcile", "site", "plant-1", "--wait=false")
		require.Contains(t, got.stdout, "node/plant-1-a reconcile accepted, operation ")
		require.Contains(t, got.stdout, "node/plant-1-b reconcile accepted, operation ")
		require.Contains(t, s.ok("reconcile", "site", "plant-1", "--dry-run", "-o", "json").stdout, `"dryRun": true`)
		got = s.run("reconcile", "site", "plant-1", "--idempotency-key", "k", "--timeout", "300ms")
		require.Equal(t, exitTimeout, got.code, got.stderr)
	})
}
