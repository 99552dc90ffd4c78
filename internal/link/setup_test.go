package link_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/link"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
	"github.com/holdfast-io/holdfast/internal/store"
	"github.com/holdfast-io/holdfast/internal/testkit"
	"github.com/holdfast-io/holdfast/internal/testkit/waits"
)

func TestMain(m *testing.M) {
	waits.Parallel()
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = time.Minute

// quick are terms by which failures show in a second or two.
func quick() fleet.LinkTiming {
	return fleet.LinkTiming{
		HeartbeatEvery: 300 * time.Millisecond, HeartbeatTimeout: 1200 * time.Millisecond, StreamRequired: 1500 * time.Millisecond,
		Report: 500 * time.Millisecond, DrainAck: 500 * time.Millisecond,
	}
}

// slow are terms by which nothing lapses during a test.
func slow() fleet.LinkTiming {
	return fleet.LinkTiming{
		HeartbeatEvery: 300 * time.Millisecond, HeartbeatTimeout: time.Minute, StreamRequired: time.Minute,
		Report: time.Minute, DrainAck: time.Minute,
	}
}

// region is a database with servers of the link on it.
type region struct {
	t     *testing.T
	store *store.Store
	pool  *pgxpool.Pool
	token string       // of a provider that may claim acme and below
	id    string       // of that token
	key   identity.Key // of the node that connected last
}

func newRegion(t *testing.T) *region {
	t.Helper()
	url := testkit.DatabaseURL(t)
	store, err := store.Open(t.Context(), url, testkit.Region)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := &region{t: t, store: store, pool: pool}
	r.token, r.id = r.provider("acme")
	return r
}

// provider makes a token that may claim module namespaces.
func (r *region) provider(namespaces ...fleet.ModuleNamespace) (token, id string) {
	return r.apiToken("provider", namespaces...)
}

func (r *region) apiToken(role string, namespaces ...fleet.ModuleNamespace) (token, id string) {
	r.t.Helper()
	token, hash, err := identity.NewToken(32)
	require.NoError(r.t, err)
	row, err := r.store.AddAPIToken(r.t.Context(), keyring.APIToken{Hash: hash[:], Role: role, Namespaces: namespaces, CreatedBy: "test"})
	require.NoError(r.t, err)
	return token, row.ID
}

// node enrols a node, and gives its key.
func (r *region) node(name fleet.NodeName) identity.Key {
	r.t.Helper()
	k, err := identity.Generate(name)
	require.NoError(r.t, err)
	_, err = r.pool.Exec(r.t.Context(), `INSERT INTO nodes (name, site, role, signing_key, sealing_key, enrolled_at)
		VALUES ($1, 'plant-1', 'worker', $2, $2, now() - interval '1 minute')
		ON CONFLICT (name) DO UPDATE SET signing_key = excluded.signing_key, enrolled_at = now()`, string(name), []byte(k.SigningPublic()))
	require.NoError(r.t, err)
	return k
}

func (r *region) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.pool.Exec(r.t.Context(), sql, args...)
	require.NoError(r.t, err, sql)
}

// row reads a connection.
func (r *region) row(id string) nodes.Connection {
	r.t.Helper()
	c, err := r.store.GetConnection(context.Background(), fleet.ConnectionID(id))
	require.NoError(r.t, err)
	return c
}

// ends waits until a connection's row has ended, and wants this reason.
func (r *region) ends(id string, reason fleet.ConnectionEvent) {
	r.t.Helper()
	r.eventually("connection ends", func() bool { return !r.row(id).State.Live() })
	require.Equal(r.t, reason, r.row(id).Reason)
}

func (r *region) eventually(what string, so func() bool) {
	r.t.Helper()
	require.Eventually(r.t, so, patience, 5*time.Millisecond, what)
}

// server is one server of the link on a real socket.
type server struct {
	*link.Server
	id      string
	address string
	metrics *prometheus.Registry
	audit   *audit.Log
	stop    func()
}

// serve starts a server; options may be changed.
func (r *region) serve(timing fleet.LinkTiming, change ...func(*link.Options)) *server {
	r.t.Helper()
	id, err := postgres.NewID()
	require.NoError(r.t, err)
	o := link.Options{
		Store: r.store, ID: id, Timing: timing, Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
		Executors: fleet.ExecutorNetworks{netip.MustParsePrefix("10.0.0.0/8")}, // where offer has its executor
	}
	audited, err := audit.NewLog(r.store, o.Log, now, o.Metrics)
	require.NoError(r.t, err)
	o.Refuse = audited.Refuse
	for _, f := range change {
		f(&o)
	}
	s, err := link.New(o)
	require.NoError(r.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	auditing, endAudit := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() { written <- audited.Run(auditing) }()
	var once sync.Once
	out := &server{Server: s, id: id, address: l.Addr().String(), metrics: o.Metrics, audit: audited, stop: func() {
		once.Do(func() {
			cancel()
			require.NoError(r.t, <-done)
			endAudit()
			require.ErrorIs(r.t, <-written, context.Canceled)
		})
	}}
	r.t.Cleanup(out.stop)
	return out
}

// now is the real clock: sockets and the database run by it.
var now = time.Now //nolint:forbidigo // see above

// bearer sends a token with each call.
type bearer func() (string, error)

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b()
	return map[string]string{"authorization": "Bearer " + token}, err
}

func (bearer) RequireTransportSecurity() bool { return false }

func fixed(token string) bearer { return func() (string, error) { return token, nil } }

func signed(k identity.Key) bearer {
	return func() (string, error) { return k.Sign(identity.LinkAudience, now()) }
}

// client is the generated one, with an identity.
type client struct {
	t *testing.T
	nodev1.ControlPlaneClient
	conn *grpc.ClientConn
}

func (r *region) dial(address string, as bearer) *client {
	r.t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(as))
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return &client{r.t, nodev1.NewControlPlaneClient(conn), conn}
}

func (r *region) client(s *server) *client { return r.dial(s.address, fixed(r.token)) }

// offer is a good registration, changed.
func offer(change ...func(*nodev1.RegisterRequest)) *nodev1.RegisterRequest {
	in := &nodev1.RegisterRequest{
		ProtocolVersion: 1, Provider: "vision-1", ModuleNamespace: "acme.vision", ExecutorAddress: "10.0.0.7:9091",
		Modules: []*nodev1.Module{{Name: "detect", InputSchema: `{"type":"object"}`}, {Name: "track"}},
	}
	for _, f := range change {
		f(in)
	}
	return in
}

func named(provider string) func(*nodev1.RegisterRequest) {
	return func(in *nodev1.RegisterRequest) { in.Provider = provider }
}

func grouped(group string) func(*nodev1.RegisterRequest) {
	return func(in *nodev1.RegisterRequest) { in.GroupId = group }
}

func bare(in *nodev1.RegisterRequest) {
	in.ModuleNamespace, in.ExecutorAddress, in.Modules = "", "", nil
}

func (c *client) register(in *nodev1.RegisterRequest) *nodev1.RegisterResponse {
	c.t.Helper()
	out, err := c.Register(c.t.Context(), in)
	require.NoError(c.t, err)
	return out
}

// refused wants a code, and gives the message.
func refused(t *testing.T, code codes.Code, err error) string {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, status.Code(err), err.Error())
	return status.Convert(err).Message()
}

// live is an open stream whose messages are read into a channel.
type live struct {
	t      *testing.T
	id     string
	stream nodev1.ControlPlane_ConnectClient
	cancel context.CancelFunc
	in     chan *nodev1.ConnectResponse
	end    chan error
}

// open sends the first heartbeat of a connection and reads what comes.
func (c *client) open(id string, md ...string) *live {
	c.t.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(context.Background(), md...))
	c.t.Cleanup(cancel)
	stream, err := c.Connect(ctx)
	require.NoError(c.t, err)
	l := &live{t: c.t, id: id, stream: stream, cancel: cancel, in: make(chan *nodev1.ConnectResponse, 4096), end: make(chan error, 1)}
	l.beat(0)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				l.end <- err
				return
			}
			l.in <- m
		}
	}()
	return l
}

// connect registers and opens, and waits for the first ack.
func (c *client) connect(in *nodev1.RegisterRequest) *live {
	c.t.Helper()
	l := c.open(c.register(in).GetConnectionId())
	l.acked()
	return l
}

func (l *live) beat(inFlight uint32) {
	l.t.Helper()
	_ = l.say(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_Heartbeat{
		Heartbeat: &nodev1.Heartbeat{ConnectionId: l.id, ProtocolVersion: 1, InFlightCount: inFlight},
	}}) // a stream that ended shows where it is read
}

func (l *live) ackDrain(inFlight uint32) {
	l.t.Helper()
	_ = l.say(&nodev1.ConnectRequest{Message: &nodev1.ConnectRequest_DrainAck{
		DrainAck: &nodev1.DrainAck{ConnectionId: l.id, InFlightCount: inFlight},
	}})
}

func (l *live) say(m *nodev1.ConnectRequest) error { return l.stream.Send(m) }

// keep sends heartbeats until the test or the stream ends.
func (l *live) keep(every time.Duration) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-l.stream.Context().Done():
				return
			case <-tick.C:
				l.beat(0)
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { close(done); <-stopped }) }
	l.t.Cleanup(stop)
	return stop
}

// await gives the first message for which pick is true.
func (l *live) await(what string, pick func(*nodev1.ConnectResponse) bool) *nodev1.ConnectResponse {
	l.t.Helper()
	over := time.After(patience)
	for {
		select {
		case m := <-l.in:
			if pick(m) {
				return m
			}
		case err := <-l.end:
			require.NoError(l.t, err, "the stream ended before %s", what)
		case <-over:
			require.FailNow(l.t, "nothing came: "+what)
		}
	}
}

func (l *live) acked() *nodev1.HeartbeatAck {
	l.t.Helper()
	return l.await("ack", func(m *nodev1.ConnectResponse) bool { return m.GetHeartbeatAck() != nil }).GetHeartbeatAck()
}

func (l *live) drainRequest() *nodev1.DrainRequest {
	l.t.Helper()
	return l.await("drain", func(m *nodev1.ConnectResponse) bool { return m.GetDrainRequest() != nil }).GetDrainRequest()
}

// ended waits for the end of the stream.
func (l *live) ended() error {
	l.t.Helper()
	select {
	case err := <-l.end:
		return err
	case <-time.After(patience):
		require.FailNow(l.t, "the stream did not end")
	}
	return nil
}
