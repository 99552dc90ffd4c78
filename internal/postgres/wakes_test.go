package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/testkit/stores"
)

func TestWantNode(t *testing.T) {
	t.Parallel()
	b := bare(t)
	number := func(node fleet.NodeName, within time.Duration) int64 {
		n, err := b.WantedNode(b.Ctx(), node, within)
		require.NoError(t, err)
		return n
	}
	b.Exec(`INSERT INTO nodes (name, site, role) VALUES ('plant-1-a', 'plant-1', 'active'), ('plant-1-b', 'plant-1', 'standby')`)
	require.Zero(t, number("plant-1-a", time.Hour))

	require.NoError(t, b.WantNode(b.Ctx(), "plant-1-a"))
	first := number("plant-1-a", time.Hour)
	require.Positive(t, first)
	require.Zero(t, number("plant-1-b", time.Hour))
	require.NoError(t, b.WantNode(b.Ctx(), "plant-1-a"))
	second := number("plant-1-a", time.Hour)
	require.Greater(t, second, first)

	t.Run("a clock that was set back does not lower it", func(t *testing.T) {
		b.Exec(`UPDATE wakes SET number = number + 3600000000`)
		ahead := number("plant-1-a", time.Hour)
		require.NoError(t, b.WantNode(b.Ctx(), "plant-1-a"))
		require.Equal(t, ahead+1, number("plant-1-a", time.Hour))
	})
	t.Run("all at once, and only those of late", func(t *testing.T) {
		require.NoError(t, b.WantNode(b.Ctx(), "plant-1-b"))
		b.Exec(`UPDATE wakes SET at = now() - interval '3 minutes' WHERE node = 'plant-1-a'`)
		all, err := b.WantedNodes(b.Ctx(), 2*time.Minute)
		require.NoError(t, err)
		require.Equal(t, map[fleet.NodeName]int64{"plant-1-b": number("plant-1-b", time.Minute)}, all)
		require.Zero(t, number("plant-1-a", 2*time.Minute))
	})
	t.Run("a node that is unknown is nobody's", func(t *testing.T) {
		require.NoError(t, b.WantNode(b.Ctx(), "x"))
		require.Zero(t, number("x", time.Hour))
	})
}

// What is told of nodes arrives beside what is told of connections, and neither is taken for the other.
func TestListenWanted(t *testing.T) {
	t.Parallel()
	b := bare(t)
	ctx, cancel := context.WithCancel(b.Ctx())
	type word struct {
		node   fleet.NodeName
		number int64
	}
	heard, stopped := make(chan word, 10), make(chan struct{})
	go func() {
		defer close(stopped)
		_ = b.ListenLink(ctx, nodes.LinkHeard{
			Connection: func(id fleet.ConnectionID, on fleet.ConnectionEvent) {
				heard <- word{fleet.NodeName(id) + fleet.NodeName(on), -1}
			},
			Wanted: func(node fleet.NodeName, number int64) { heard <- word{node, number} },
			Set:    func(node fleet.NodeName, version int64) { heard <- word{"set of " + node, version} },
		}) // ends with ctx
	}()
	b.Exec(`INSERT INTO nodes (name, site, role) VALUES ('plant-1-a', 'plant-1', 'active')`)
	stores.Eventually(t, "it listens", func() bool {
		return stores.Scan[int64](b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN holdfast_link%' AND state = 'idle'") == 1
	})
	require.NoError(t, b.WantNode(b.Ctx(), "plant-1-a"))
	number, err := b.WantedNode(b.Ctx(), "plant-1-a", time.Hour)
	require.NoError(t, err)
	require.Equal(t, word{"plant-1-a", number}, <-heard)
	b.Exec(`SELECT pg_notify('holdfast_link', 'replicas plant-1-a 12')`)
	require.Equal(t, word{"set of plant-1-a", 12}, <-heard)
	cancel()
	<-stopped
}
