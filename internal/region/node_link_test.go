package region

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/link/idle"
	"github.com/holdfast-io/holdfast/internal/node/replicas"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// linked is an enrolled node without anything but its key.
type linked struct {
	key identity.Key
	at  chan struct{}
}

func (l *linked) Enrolled() <-chan struct{} { return l.at }
func (l *linked) Key() identity.Key         { return l.key }

// enrolledNode is a region's store with a node that has a key, and who that is.
func enrolledNode(t *testing.T) (*store.Store, *pgx.Conn, *linked) {
	t.Helper()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	key, err := identity.Generate("plant-1-a")
	require.NoError(t, err)
	sealing, err := key.SealingPublic()
	require.NoError(t, err)
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `INSERT INTO nodes (name, site, role, signing_key, sealing_key, enrolled_at)
		VALUES ('plant-1-a', 'plant-1', 'worker', $1, $2, now() - interval '1 minute')`, []byte(key.SigningPublic()), sealing[:])
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return store, db, &linked{key, make(chan struct{})}
}

// C1, C27, C38, C62: the link of a node, as the list of nodes shows it.
func TestNodeLink(t *testing.T) {
	t.Parallel()
	store, db, who := enrolledNode(t)
	address, stop := serveLink(t, store, "127.0.0.1:0")
	node := func() *nodes.NodeConnection {
		list, err := store.ListNodes(context.Background(), nodes.NodeFilter{Name: "plant-1-a"}, "", 1)
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0].Connection
	}
	is := func(what string, so func(c *nodes.NodeConnection) bool) {
		t.Helper()
		require.Eventually(t, func() bool { return so(node()) }, time.Minute, 10*time.Millisecond, what)
	}
	active := func(c *nodes.NodeConnection) bool { return c != nil && c.State == fleet.ConnectionActive }

	var work atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	n := &nodeLink{NodeConfig{Node: "plant-1-a", Link: address}, who, func() int { return int(work.Load()) }, idle.New(time.Now, func() bool { return false }), slog.New(slog.DiscardHandler), nil, nil}
	facts := newNodeFacts(NodeMachine{CPU: 1}, fleet.DriverProcess)
	n.replicas = &nodeReplicas{keeper: replicas.New(replicas.Options{Now: guardian.SinceBoot}), facts: facts}
	done := make(chan error, 1)
	go func() { done <- n.run(ctx) }()
	require.Nil(t, node(), "before it is enrolled it does not register")
	close(who.at)
	is("active", active)
	require.WithinDuration(t, time.Now(), node().Since, time.Minute)
	work.Store(3)
	is("what is at work is shown", func(c *nodes.NodeConnection) bool { return active(c) && c.InFlight == 3 })

	first := node().ID
	_, err := store.AskDrain(t.Context(), first, "maintenance", time.Hour)
	require.NoError(t, err)
	is("draining", func(c *nodes.NodeConnection) bool {
		return c != nil && c.State == fleet.ConnectionDraining && c.InFlight == 3
	})
	work.Store(0)
	is("it comes back after a drain", func(c *nodes.NodeConnection) bool { return active(c) && c.ID != first })

	stop()
	is("the region is away", func(c *nodes.NodeConnection) bool { return c == nil })
	select {
	case err := <-done:
		require.FailNow(t, "the node ended with the region", "%v", err)
	default:
	}
	_, stop = serveLink(t, store, address)
	is("it comes back with the region", active)
	second := node().ID
	facts.answers(fleet.DriverProcess) // the region knows that
	facts.answers(fleet.DriverDocker)
	is("it tells that an engine came", func(c *nodes.NodeConnection) bool { return active(c) && c.ID != second })
	var told fleet.NodeFacts
	require.NoError(t, db.QueryRow(t.Context(), `SELECT facts FROM nodes WHERE name = 'plant-1-a'`).Scan(&told))
	require.Equal(t, []fleet.Driver{fleet.DriverDocker, fleet.DriverProcess}, told.Drivers)
	last := node().ID
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	is("it said that it goes", func(c *nodes.NodeConnection) bool { return c == nil })
	row, err := store.GetConnection(t.Context(), last)
	require.NoError(t, err)
	require.Equal(t, fleet.Deregistered, row.Reason)
	stop()
}

func serveLink(t *testing.T, store *store.Store, address string, options ...grpc.ServerOption) (string, func()) {
	t.Helper()
	id, err := postgres.NewID()
	require.NoError(t, err)
	timing := fleet.DefaultLinkTiming()
	timing.HeartbeatEvery = 50 * time.Millisecond
	s, err := link.New(link.Options{Store: store, ID: id, Timing: timing, Now: time.Now, Log: slog.New(slog.DiscardHandler), GRPC: options, Replicas: store})
	require.NoError(t, err)
	var l net.Listener
	require.Eventually(t, func() bool { // a port that was let go may be lent to somebody for a moment
		l, err = net.Listen("tcp", address)
		return err == nil
	}, time.Minute, 10*time.Millisecond, "listen at "+address)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop := sync.OnceFunc(func() { cancel(); require.NoError(t, <-done) })
	t.Cleanup(stop)
	return l.Addr().String(), stop
}
