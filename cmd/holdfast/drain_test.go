package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
)

// drainedNode stands for the workflows, the link and plant-1-b, which lives on it.
type drainedNode struct {
	*testing.T
	*store.Store
}

const drainedServer = "server-1"

func (d drainedNode) connects() fleet.ConnectionID {
	d.Helper()
	require.NoError(d, d.LinkServerSeen(d.Context(), drainedServer, time.Minute))
	reg, err := d.RegisterConnection(d.Context(), fleet.Registration{Identity: "node:plant-1-b", Node: "plant-1-b", Provider: "plant-1-b", Protocol: 1}, drainedServer)
	require.NoError(d, err)
	_, err = d.OpenConnection(d.Context(), reg.ID, "node:plant-1-b", drainedServer)
	require.NoError(d, err)
	return reg.ID
}

// works says what is in flight on a connection, and takes the drain's steps as far as they go.
func (d drainedNode) works(id fleet.ConnectionID, inFlight int) {
	d.Helper()
	require.NoError(d, d.RecordHeartbeats(d.Context(), drainedServer, []nodes.Heartbeat{{ID: id, InFlight: inFlight}}))
	d.steps()
}

func (d drainedNode) steps() {
	d.Helper()
	look := fleet.DrainLook{Node: "plant-1-b", Run: "run-1"}
	for range 10 {
		seen, err := d.SeeDrain(d.Context(), look)
		require.NoError(d, err)
		if seen.Operation == "" {
			return
		}
		a := decide.Drain(seen, decide.DrainRun{})
		look.Phase, look.Rule, look.Message = "", "", ""
		switch a.Do {
		case decide.DrainAsk:
			require.NoError(d, d.AskConnections(d.Context(), "plant-1-b", a.Connections))
		case decide.DrainFinish, decide.DrainClose:
			require.NoError(d, d.EndDrain(d.Context(), fleet.DrainEnd{
				Node: "plant-1-b", Operation: seen.Operation, State: a.State, Reason: a.Rule, Message: a.Message,
			}))
		case decide.DrainWait:
			look.Phase, look.Rule, look.Message = a.Phase, a.Rule, a.Message
		case decide.DrainCut, decide.DrainMove, decide.DrainStop, decide.DrainEvict:
		}
	}
}

// X5, X19, X20: the command line against the region's own handlers.
func TestDrainNode(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	node := drainedNode{t, store}
	s.ok("apply", "-f", write(t, "site.yaml",
		"kind: Site\nname: plant-1\nspec: {nodes: [{name: plant-1-a, role: active}, {name: plant-1-b, role: standby}]}"))

	t.Run("cordons and uncordons, again and again", func(t *testing.T) {
		require.Contains(t, s.ok("cordon", "plant-1-b", "--dry-run").stdout, "plant-1-b")
		require.NotContains(t, s.ok("get", "nodes").stdout, "cordoned")
		require.Contains(t, s.ok("cordon", "plant-1-b", "--reason", "new disk").stdout, "not enrolled, cordoned")
		var n api.Node
		require.NoError(t, json.Unmarshal([]byte(s.ok("cordon", "plant-1-b", "-o", "json").stdout), &n))
		require.Equal(t, "new disk", n.Cordon.Reason)
		require.Contains(t, s.ok("get", "nodes").stdout, "not enrolled, cordoned")
		require.Equal(t, "node/plant-1-b\n", s.ok("uncordon", "plant-1-b", "-o", "name").stdout)
		require.NotContains(t, s.ok("uncordon", "plant-1-b").stdout, "cordoned")
		require.Equal(t, exitNotFound, s.run("cordon", "ghost").code)
		require.Equal(t, exitUsage, s.run("cordon", "Ghost!").code)
		require.Equal(t, exitUsage, s.run("cordon").code)
	})

	t.Run("drains a node, counts down in plain lines, and says how it ended", func(t *testing.T) {
		id := node.connects()
		require.Contains(t, s.ok("drain", "node", "plant-1-b", "--dry-run").stdout, "would drain (dry run, nothing was changed)")
		node.works(id, 4)
		out, stop := s.follow("drain", "node", "plant-1-b", "--deadline", "5m", "--reason", "new disk")
		out.await(t, "node/plant-1-b drain accepted, operation ")
		node.works(id, 4)
		out.await(t, "drain node/plant-1-b: running, waiting for the node to acknowledge the drain, 4 in flight, deadline ")
		require.Contains(t, s.ok("get", "nodes").stdout, "draining")
		require.Contains(t, s.ok("describe", "node", "plant-1-b").stdout, "waits: ack")
		require.Equal(t, exitConflict, s.run("uncordon", "plant-1-b").code)
		require.NoError(t, store.MoveConnections(t.Context(), drainedServer, nodes.ConnectionMoves{Acked: map[fleet.ConnectionID]int{id: 3}}))
		node.steps()
		out.await(t, "waiting for the node to finish its work, 3 in flight, deadline ")
		require.NoError(t, store.MoveConnections(t.Context(), drainedServer, nodes.ConnectionMoves{Ended: map[fleet.ConnectionID]fleet.ConnectionEvent{id: fleet.StreamClosed}}))
		node.steps()
		out.await(t, "drain node/plant-1-b succeeded (drained): the node finished its work and closed its connection")
		require.Equal(t, exitOK, stop())
		require.Contains(t, s.ok("get", "nodes").stdout, "not enrolled, cordoned")
	})

	t.Run("ends the wait, not the drain, and cancels it when asked", func(t *testing.T) { // X7
		node.connects()
		timeout := s.run("drain", "node", "plant-1-b", "--timeout", "3s")
		require.Equal(t, exitTimeout, timeout.code, timeout.stderr)
		require.Contains(t, timeout.stderr, "the operation continues")
		var list api.List[api.Operation]
		require.NoError(t, json.Unmarshal([]byte(s.ok("operations", "list", "--node", "plant-1-b", "--state", "running", "-o", "json").stdout), &list))
		require.Len(t, list.Items, 1)
		require.Contains(t, s.ok("operations", "cancel", list.Items[0].ID).stdout, "cancelled")
		node.steps()
		require.Contains(t, s.ok("uncordon", "plant-1-b").stdout, "plant-1-b")
		require.Equal(t, exitUsage, s.run("drain", "node", "plant-1-b", "--deadline", "0s").code)
		require.Equal(t, exitNotFound, s.run("drain", "node", "ghost").code)
	})
}

// X5, X19
func TestDrainProviderDeadline(t *testing.T) {
	t.Parallel()
	s, store := newRealRegion(t)
	require.NoError(t, store.LinkServerSeen(t.Context(), drainedServer, time.Minute))
	reg, err := store.RegisterConnection(t.Context(), fleet.Registration{Identity: "token:1", Provider: "cam", Protocol: 1}, drainedServer)
	require.NoError(t, err)
	_, err = store.OpenConnection(t.Context(), reg.ID, "token:1", drainedServer)
	require.NoError(t, err)
	for _, deadline := range []string{"0s", "500ms", "-1s"} {
		out := s.run("drain", "provider", string(reg.ID), "--deadline", deadline)
		require.Equal(t, exitUsage, out.code, deadline)
		require.Contains(t, out.stderr, `invalid --deadline "`+deadline+`": want `)
	}
	rows, err := store.ListConnections(t.Context(), reg.ID, "", 1)
	require.NoError(t, err)
	require.Nil(t, rows[0].Drain, "nothing was asked for")
	require.Contains(t, s.ok("drain", "provider", string(reg.ID), "--deadline", "1s").stdout, "cam")
}
