package leases_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/link/leases"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

const (
	plant = fleet.SiteName("plant")
	nodeA = fleet.NodeName("plant-a")
	nodeB = fleet.NodeName("plant-b")
	ttl   = 15 * time.Second
)

// world is one database, a clock that tests turn, and servers over it.
type world struct {
	t       *testing.T
	url     string
	store   *store.Store
	raw     *pgxpool.Pool
	now     atomic.Int64
	nonce   atomic.Int64
	refused struct {
		sync.Mutex
		list []string
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: testkit.DatabaseURL(t)}
	var err error
	w.store, err = store.Open(t.Context(), w.url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(w.store.Close)
	w.raw, err = pgxpool.New(t.Context(), w.url)
	require.NoError(t, err)
	t.Cleanup(w.raw.Close)
	w.now.Store(int64(time.Hour))
	w.declare(plant, nodeA, nodeB)
	return w
}

func (w *world) declare(site fleet.SiteName, nodes ...fleet.NodeName) {
	w.t.Helper()
	spec := fleet.SiteSpec{}
	for i, n := range nodes {
		spec.Nodes = append(spec.Nodes, fleet.SiteNode{Name: n, Role: []fleet.Role{fleet.RoleActive, fleet.RoleStandby}[i]})
	}
	key := fleet.ObjectKey{Kind: fleet.KindSite, Name: string(site)}
	_, err := w.store.Declare(w.t.Context(), postgres.Write{Request: postgres.Request{Project: "default", Actor: "ann"}, Key: key}, spec)
	require.NoError(w.t, err)
}

func (w *world) refusals() []string {
	w.refused.Lock()
	defer w.refused.Unlock()
	return slices.Clone(w.refused.list)
}

func (w *world) turn(d time.Duration) { w.now.Add(int64(d)) }

type caller struct{}

// options make a server of this world; who calls is what its context says.
func (w *world) options() leases.Options {
	return leases.Options{
		Store: w.store, Timing: fleet.DefaultLinkTiming(), Now: func() time.Time { return time.Unix(0, w.now.Load()) }, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Clock: func() (lease.Instant, error) { return lease.Instant(w.now.Load()), nil },
		Nonce: func() int64 { return w.nonce.Add(1) },
		Caller: func(ctx context.Context) fleet.NodeName {
			if name, ok := ctx.Value(caller{}).(fleet.NodeName); ok {
				return name
			}
			md, _ := metadata.FromIncomingContext(ctx)
			if v := md.Get("node"); len(v) == 1 {
				return fleet.NodeName(v[0])
			}
			return ""
		},
		Status: link.StatusOf,
		Refuse: func(_ context.Context, reason, _ string) {
			w.refused.Lock()
			defer w.refused.Unlock()
			w.refused.list = append(w.refused.list, reason)
		},
	}
}

// server is one that does not run by itself: it ticks when the test says so. Renewals are
// written at once.
func (w *world) server(edits ...func(*leases.Options)) *leases.Service {
	w.t.Helper()
	o := w.options()
	for _, edit := range edits {
		edit(&o)
	}
	s, err := leases.New(o)
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); leases.WriteBatches(ctx, s) }()
	w.t.Cleanup(func() { stop(); <-done })
	return s
}

// ask is one call of a candidate at a server.
func (w *world) ask(s *leases.Service, call nodev1.Call, node fleet.NodeName, epoch, counter int64) *nodev1.VoteResponse {
	w.t.Helper()
	out, err := s.Vote(context.WithValue(w.t.Context(), caller{}, node), &nodev1.VoteRequest{
		Call: call, Site: string(plant), Candidate: string(node), Epoch: epoch, Counter: counter, Ttl: durationpb.New(ttl),
	})
	require.NoError(w.t, err)
	return out
}

// wire serves the vote over gRPC and gives a client of one node.
func wire(t *testing.T, s *leases.Service, node fleet.NodeName) nodev1.LeasesClient {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	nodev1.RegisterLeasesServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }() // it ends with Stop
	conn, err := grpc.NewClient("passthrough:x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return next(metadata.AppendToOutgoingContext(ctx, "node", string(node)), method, req, reply, cc, opts...)
		}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(); g.Stop(); <-done })
	return nodev1.NewLeasesClient(conn)
}
