package region

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/sqlite"
)

// oneReplica is a driver by which one replica runs until it is stopped.
type oneReplica struct {
	replicas.Driver
	stop func() error
}

const leftReplica = fleet.ReplicaID("aaaaaaaaaaaa")

func (*oneReplica) List(context.Context) ([]replicas.Found, error) {
	return []replicas.Found{{ID: leftReplica, Running: true, PID: 7}}, nil
}

func (*oneReplica) Look(_ context.Context, id fleet.ReplicaID) (replicas.Found, error) {
	return replicas.Found{ID: id, Running: true, PID: 7}, nil
}

func (*oneReplica) Usage(context.Context) (map[fleet.ReplicaID]replicas.Usage, error) {
	return nil, nil
}
func (d *oneReplica) Stop(context.Context, fleet.ReplicaID, time.Duration) error { return d.stop() }

// awayAPI is a region whose API nobody reaches.
type awayAPI struct{}

var errAway = fleet.Errorf(fleet.Communication, "the API is away")

func (awayAPI) NodeReplicas(context.Context, fleet.SetVersion) (fleet.NodeReplicas, bool, error) {
	return fleet.NodeReplicas{}, false, errAway
}

func (awayAPI) ReplicaDefinition(context.Context, fleet.Hash) ([]byte, error) { return nil, errAway }
func (awayAPI) ReplicaLog(context.Context, replicas.LogPiece) error           { return errAway }
func (awayAPI) ReplicaSamples(context.Context, []replicas.Sample) error       { return errAway }

// S17, S53, X4: a node whose replicas end with it tells the region so with its last word, once they have:
// what ran there failed with its node and is replaced at once, on another one. Where they did not end, it
// says nothing of them.
func TestNodeStopEndsReplicas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stopped              error
		state, phase, reason string
		wakes                int
	}{
		"they ended":       {nil, "UNHEALTHY", "stopped", fleet.ReasonNodeStopped, 1},
		"they did not end": {fleet.Errorf(fleet.Internal, "it hangs"), "HEALTHY", "running", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, db, who := enrolledNode(t)
			close(who.at)
			_, err := db.Exec(t.Context(), `INSERT INTO deployments (name, uid, project, state) VALUES ('web', gen_random_uuid(), 'default', 'RUNNING')`)
			require.NoError(t, err)
			_, err = db.Exec(t.Context(), `INSERT INTO replicas (id, deployment, uid, node, site, revision, process_version, definition, stop_seconds, state, health, phase, listed)
				SELECT $1, name, uid, 'plant-1-a', 'plant-1', 1, 1, '', 10, 'HEALTHY', 'HEALTHY', 'running', 1 FROM deployments`, leftReplica)
			require.NoError(t, err)
			connected := func() bool {
				list, err := store.ListNodes(context.Background(), nodes.NodeFilter{Name: "plant-1-a"}, "", 1)
				return err == nil && len(list) == 1 && list[0].Connection != nil && list[0].Connection.State == fleet.ConnectionActive
			}
			var before atomic.Bool
			driver := &oneReplica{stop: func() error {
				before.Store(connected())
				return c.stopped
			}}
			known, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "node.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, known.Close()) })
			log := slog.New(slog.NewTextHandler(t.Output(), nil))
			keeper := replicas.New(replicas.Options{
				Node: "plant-1-a", Site: "plant-1", Dir: t.TempDir(), Address: "127.0.0.1", Region: awayAPI{}, Store: known, Log: log,
				Drivers: map[fleet.Driver]replicas.Driver{fleet.DriverProcess: driver}, Now: guardian.SinceBoot, Boot: "this boot",
			})
			address, _ := serveLink(t, store, "127.0.0.1:0")
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			n := &nodeLink{
				cfg: NodeConfig{Node: "plant-1-a", Link: address}, agent: who, inFlight: func() int { return 0 },
				gate: idle.New(time.Now, func() bool { return false }), log: log,
				replicas: &nodeReplicas{keeper: keeper, facts: newNodeFacts(NodeMachine{CPU: 1}, fleet.DriverProcess), stop: true, log: log},
			}
			done := make(chan error, 1)
			go func() { done <- n.whileReplicas(ctx, ctx) }()
			require.Eventually(t, connected, time.Minute, 10*time.Millisecond)
			cancel()
			require.ErrorIs(t, <-done, context.Canceled)
			require.True(t, before.Load(), "the link is left first")
			require.False(t, connected())
			var state, phase, reason string
			var counted bool
			require.NoError(t, db.QueryRow(t.Context(), `SELECT state, phase, reason, failed_at IS NOT NULL FROM replicas`).Scan(&state, &phase, &reason, &counted))
			require.Equal(t, []string{c.state, c.phase, c.reason}, []string{state, phase, reason})
			require.False(t, counted, "the node is not a bad one for it")
			var wakes int
			require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE subject = 'deployment.web'`).Scan(&wakes))
			require.Equal(t, c.wakes, wakes)
		})
	}
}
