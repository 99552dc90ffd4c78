package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/decide"
	"github.com/holdfast-io/holdfast/internal/fleet"
	store "github.com/holdfast-io/holdfast/internal/postgres/peers"
)

// Door is what refusals of the peer listener are recorded under.
const Door = "region"

// membership is what the network needs of the region's truth.
type membership interface {
	// Members lists all regions that were ever known, this one included.
	Members(ctx context.Context) ([]store.Member, error)
	Announce(ctx context.Context, sign func(stored fleet.MemberRecord) fleet.MemberRecord) error
	TakeMembers(ctx context.Context, records []fleet.MemberRecord) ([]decide.MemberDecision, error)
	// SawEra is a conflict when the database of a peer went back.
	SawEra(ctx context.Context, name fleet.RegionName, is fleet.RegionEra) error
	Era(ctx context.Context) (fleet.RegionEra, error)
	SawPeer(ctx context.Context, name fleet.RegionName, problem string) error
	Invite(ctx context.Context, in store.Invitation, life time.Duration) (store.Invitation, error)
	// Admit and Joined may be repeated: an answer can be lost.
	Admit(ctx context.Context, tokenHash []byte, r fleet.MemberRecord, by store.Signer) error
	Joined(ctx context.Context, own, admitter fleet.MemberRecord, all []fleet.MemberRecord, by store.Signer) ([]decide.MemberDecision, error)
}

// Options are what a Network works with.
type Options struct {
	Identity Identity
	// Address is where peers reach this region: https://HOST:PORT.
	Address string
	Store   membership
	// Every is the mean time between two calls to a peer for its members.
	Every time.Duration
	// Metrics is where the network's metrics go; nil keeps them.
	Metrics prometheus.Registerer
	Log     *slog.Logger
	Refuse  func(audit.Refusal)
	// Dial connects to a peer; nil dials its address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Failpoint is for tests: it is called before and after each step of a join.
	Failpoint func(name string)
}

// Network is this region's end of the links to its peers.
type Network struct {
	opt   Options
	mux   *http.ServeMux
	calls *prometheus.CounterVec

	mu      sync.Mutex
	links   map[fleet.RegionName]link
	running map[*running]bool
	alarms  map[string]bool
}

// link is the client of one peer.
type link struct {
	address string
	key     ed25519.PublicKey
	client  *http.Client
	conns   *connections
}

// Peer is an enabled peer. Its client accepts only the peer's key.
type Peer struct {
	store.Member
	Client *http.Client
}

// URL is the address of a path on the peer's listener.
func (p Peer) URL(path string) string { return p.Address + path }

// Open makes the network of a region and stores its own record.
func Open(ctx context.Context, o Options) (*Network, error) {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialLimit, KeepAlive: keepAlive}).DialContext
	}
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Failpoint == nil {
		o.Failpoint = func(string) {}
	}
	n := &Network{opt: o, mux: http.NewServeMux(), links: map[fleet.RegionName]link{}, running: map[*running]bool{}, alarms: map[string]bool{}}
	n.calls = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_peer_calls_total", Help: "Calls to peer regions for their members, by peer and outcome.",
	}, []string{"peer", "outcome"})
	if err := o.Metrics.Register(n.calls); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "register metrics: %w", err)
	}
	n.mux.HandleFunc("GET "+membersPath, n.serveMembers)
	return n, n.announce(ctx)
}

// announce writes the record by which others know this region; a new address gets a higher number.
func (n *Network) announce(ctx context.Context) error {
	id := n.opt.Identity
	return n.opt.Store.Announce(ctx, func(r fleet.MemberRecord) fleet.MemberRecord {
		if !r.Key.Equal(id.Public()) {
			r = fleet.MemberRecord{Name: id.Name, Key: id.Public(), Number: 1}.SignAdmission(id.Name, id.Key)
		}
		if r.Address == n.opt.Address {
			return r
		}
		r.Address, r.AddressNumber = n.opt.Address, r.AddressNumber+1
		return r.SignAddress(id.Key)
	})
}

// Handle mounts a handler for enabled peers; CallerOf returns the one that calls.
func (n *Network) Handle(pattern string, h http.Handler) { n.mux.Handle(pattern, h) }

// TLS is the configuration of the listener.
func (n *Network) TLS() *tls.Config { return n.opt.Identity.serverTLS() }

func (n *Network) signer() store.Signer {
	return store.Signer{Name: n.opt.Identity.Name, Key: n.opt.Identity.Key}
}

// Peers lists the enabled peers, each with its client.
func (n *Network) Peers(ctx context.Context) ([]Peer, error) {
	all, err := n.opt.Store.Members(ctx)
	if err != nil {
		return nil, err
	}
	var out []Peer
	for _, m := range all {
		if !m.Self && !m.Disabled && !m.Removed {
			out = append(out, Peer{Member: m, Client: n.clientOf(m)})
		}
	}
	return out, nil
}

// clientOf keeps one client per peer, until its key or address changes.
func (n *Network) clientOf(m store.Member) *http.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	l, known := n.links[m.Name]
	if known && l.address == m.Address && l.key.Equal(m.Key) {
		return l.client
	}
	if known {
		l.client.CloseIdleConnections()
	}
	l = link{address: m.Address, key: m.Key, conns: &connections{open: map[*connection]bool{}}}
	l.client = n.pinned(m.Key, l.conns.dial(n.opt.Dial))
	l.client.Transport = &eraWatch{l.client.Transport, n.opt.Store, m.Name}
	n.links[m.Name] = l
	return l.client
}

// eraHeader has the era of the region that answers, and its random id.
const eraHeader = "Holdfast-Era"

// eraWatch rejects the answers of a peer whose database went back.
type eraWatch struct {
	http.RoundTripper
	store membership
	peer  fleet.RegionName
}

// CloseIdleConnections closes what no call uses.
func (e *eraWatch) CloseIdleConnections() {
	(&http.Client{Transport: e.RoundTripper}).CloseIdleConnections()
}

// RoundTrip is a conflict for an era that is lower than before, or another one of the same number.
func (e *eraWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.RoundTripper.RoundTrip(r)
	if err != nil || answer.Header.Get(eraHeader) == "" { // a region of an older version says nothing
		return answer, err
	}
	var is fleet.RegionEra
	if _, err = fmt.Sscanf(answer.Header.Get(eraHeader), "%d %36s", &is.Number, &is.ID); err == nil {
		err = e.store.SawEra(r.Context(), e.peer, is)
	}
	if err != nil {
		_ = answer.Body.Close() // it was not read
		return nil, err
	}
	return answer, nil
}

// Close closes the connections that no call uses.
func (n *Network) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		l.client.CloseIdleConnections()
	}
}

const (
	dialLimit   = 5 * time.Second
	keepAlive   = 15 * time.Second
	answerLimit = 30 * time.Second
	idleLimit   = 90 * time.Second
	idleConns   = 4
	maxHeaders  = 16 << 10
)

// pinned makes a client that talks to the holder of a key only. Bodies may take as long as their callers allow.
func (n *Network) pinned(key ed25519.PublicKey, dial dialer) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: n.opt.Identity.clientTLS(key), TLSHandshakeTimeout: dialLimit,
			ResponseHeaderTimeout: answerLimit, IdleConnTimeout: idleLimit, MaxIdleConnsPerHost: idleConns, MaxResponseHeaderBytes: maxHeaders,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
