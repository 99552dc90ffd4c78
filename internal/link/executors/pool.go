package executors

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/schema"
)

// directory knows which providers offer a module.
type directory interface {
	// ModuleMembers returns the live connections that offer a module; it is not an error if there are none.
	ModuleMembers(ctx context.Context, of fleet.ModuleRef) ([]fleet.ModuleMember, error)
	// LastOffer is nil if no known provider ever offered it.
	LastOffer(ctx context.Context, of fleet.ModuleRef) (*fleet.LastOffer, error)
}

// Options configure a pool; zero values are the defaults.
type Options struct {
	Directory directory
	Schemas   *schema.Checker
	// InFlight limits the concurrent executions of this server at one executor (C87), 32.
	InFlight int
	// Wait is how long an execution waits for a slot, 2 s.
	Wait time.Duration
	// Limit is the deadline of an execution whose caller has none, 30 s.
	Limit time.Duration
	// Life is how long a lookup is cached, 1 s.
	Life time.Duration
	Now  func() time.Time
	// Done, if set, is called at the end of each execution ("" is success) with its duration.
	Done func(kind fleet.Kind, took time.Duration)
	// TLS makes the credentials for executors with TLS, for a certificate name ("": the address's host); nil trusts
	// the system's authorities and presents no certificate.
	TLS func(serverName string) credentials.TransportCredentials
	// Networks are where executors may be dialled, besides the address that their provider registered from.
	Networks fleet.ExecutorNetworks
	// Hint is what to do about a TLS error, "" for other errors; nil gives no hints.
	Hint func(error) string
}

func (o Options) orDefault() Options {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&o.Wait, 2*time.Second)
	set(&o.Limit, 30*time.Second)
	set(&o.Life, time.Second)
	if o.InFlight <= 0 {
		o.InFlight = 32
	}
	if o.Schemas == nil {
		o.Schemas = schema.NewChecker()
	}
	if o.TLS == nil {
		o.TLS = func(serverName string) credentials.TransportCredentials {
			return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName})
		}
	}
	if o.Hint == nil {
		o.Hint = func(error) string { return "" }
	}
	if o.Done == nil {
		o.Done = func(fleet.Kind, time.Duration) {}
	}
	return o
}

// Pool runs executions; it is safe for concurrent use.
type Pool struct {
	o       Options
	members *members

	mu     sync.Mutex
	lines  map[place]*line
	of     map[fleet.ConnectionID]*line
	closed bool
}

// New makes an empty pool.
func New(o Options) *Pool {
	o = o.orDefault()
	p := &Pool{o: o, lines: map[place]*line{}, of: map[fleet.ConnectionID]*line{}}
	p.members = newMembers(o)
	return p
}

// place is an executor's address, and how to connect to it.
type place struct {
	address string
	tls     fleet.ExecutorTLS
	caller  netip.Addr // of its provider
}

func placeOf(m fleet.ModuleMember) place { return place{m.Executor, m.ExecutorTLS, m.Caller} }

// line is the gRPC connection to one executor.
type line struct {
	at      place
	conn    *grpc.ClientConn
	users   int // registrations
	busy    int
	waiting list.List // of *waiter, the longest first
}

const (
	pingEvery   = 10 * time.Second
	pingTimeout = 5 * time.Second
	dialTimeout = 3 * time.Second
	// answerRoom limits the size of an answer on the wire; a larger one is rejected unread.
	answerRoom = 4 << 20
)

// security are the credentials for a place.
func (p *Pool) security(at place) credentials.TransportCredentials {
	if !at.tls.On {
		return insecure.NewCredentials()
	}
	return p.o.TLS(at.tls.ServerName)
}

func (p *Pool) dial(at place) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+at.address,
		grpc.WithTransportCredentials(p.security(at)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerRoom)),
		grpc.WithDisableServiceConfig(), grpc.WithStatsHandler(traces{}),
		grpc.WithNoProxy(), // executors are dialled directly
		grpc.WithContextDialer(p.dialer(at)),
	)
}

// dialer connects to a place only if its resolved address is one that its provider may use.
func (p *Pool) dialer(at place) func(context.Context, string) (net.Conn, error) {
	d := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return p.o.Networks.Allow(at.caller, to.Addr())
	}}
	return func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
}

// Add allows executions at a registration's executor; it may be repeated.
func (p *Pool) Add(m fleet.ModuleMember) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.add(m.Connection, placeOf(m))
	return err
}

func (p *Pool) add(id fleet.ConnectionID, at place) (*line, error) {
	if p.closed {
		return nil, fleet.Errorf(fleet.Unavailable, "this server is stopping").WithHint("retry")
	}
	if l, ok := p.of[id]; ok {
		return l, nil
	}
	l, ok := p.lines[at]
	if !ok {
		conn, err := p.dial(at)
		if err != nil {
			return nil, fleet.Errorf(fleet.Unavailable, "invalid executor address %.80q", at.address)
		}
		l = &line{at: at, conn: conn}
		p.lines[at] = l
	}
	l.users++
	p.of[id] = l
	return l, nil
}

// Remove removes a registration, and reports whether the pool is empty now. Executions in flight continue.
func (p *Pool) Remove(id fleet.ConnectionID) (empty bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.of[id]; ok {
		delete(p.of, id)
		l.users--
		p.closeUnused(l)
	}
	return len(p.of) == 0
}

// closeUnused closes an unneeded connection, and lets its waiters look again.
func (p *Pool) closeUnused(l *line) {
	if l.users > 0 {
		return
	}
	for l.waiting.Len() > 0 {
		l.waiting.Front().Value.(*waiter).settle(nil)
	}
	if l.busy > 0 {
		return
	}
	if p.lines[l.at] == l {
		delete(p.lines, l.at)
	}
	_ = l.conn.Close() // the only error is that it was already closed
}

// Close closes the pool and all of its connections, including executions in flight.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, l := range p.lines {
		l.users = 0
		for l.waiting.Len() > 0 {
			l.waiting.Front().Value.(*waiter).settle(nil)
		}
		_ = l.conn.Close() // see closeUnused
	}
	clear(p.lines)
	clear(p.of)
}

// Changed drops cached lookups with a connection: it registered, drains or has ended.
func (p *Pool) Changed(id fleet.ConnectionID) {
	p.members.forget(id)
	p.Remove(id) // a lookup that finds it alive adds it again
}

// Listening means that Changed will be called for every change from now on; some may still be missed. Without it,
// each execution looks up the members itself.
func (p *Pool) Listening(on bool) {
	p.members.listen(on)
}

// Prune removes registrations that no current lookup refers to.
func (p *Pool) Prune() {
	named := p.members.named()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, l := range p.of {
		if !named[id] {
			delete(p.of, id)
			l.users--
			p.closeUnused(l)
		}
	}
}
