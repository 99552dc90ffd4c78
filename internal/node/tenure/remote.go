package tenure

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
)

// tokenAge is how long a token is used: well below its life, for a clock that is behind.
const tokenAge = identity.MaxLifetime / 2

// Remote is a voter on another machine, dialled at the first call. A call that reached its deadline drops the
// connection: it may be half open, and its next answer may take minutes.
//
// A holder keeps a second connection, on which it sends only a release. If a voter's packets no longer arrive,
// neither do its acknowledgements: after one request TCP sends nothing new on a connection, and no new
// connection can be opened. A silent connection can still send its first request.
type Remote struct {
	Key  func() identity.Key
	Wall func() time.Time
	// Redial bounds the pause between attempts to connect.
	Redial time.Duration
	// TLS configures trust; nil is plain text.
	TLS credentials.TransportCredentials
	// keys, for a peer, exchanges which keys each side accepts; nil sends nothing.
	keys *acquaintance

	mu      sync.Mutex
	address string
	aud     string // the audience of tokens
	conn    *grpc.ClientConn
	spare   *grpc.ClientConn
	token   string
	made    time.Time
	of      string // the key that signed it
}

// At sets the voter's address and the audience of tokens; a new address ends the connection.
func (r *Remote) At(address, audience string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.address != address || r.aud != audience {
		r.address, r.aud, r.token = address, audience, ""
		r.hangUp()
	}
}

// Close ends the connection.
func (r *Remote) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangUp()
}

func (r *Remote) hangUp() {
	for _, conn := range []**grpc.ClientConn{&r.conn, &r.spare} {
		if *conn != nil {
			_ = (*conn).Close() // nothing that must arrive is on it
			*conn = nil
		}
	}
}

// Vote calls the voter.
func (r *Remote) Vote(ctx context.Context, call lease.Call, q lease.Request) (lease.Answer, error) {
	var out *nodev1.VoteResponse
	in := wireRequest(call, q)
	in.KnowsKey = r.keys.knows()
	err := r.callBy(ctx, call, func(ctx context.Context, c nodev1.LeasesClient) (err error) {
		out, err = c.Vote(ctx, in)
		return err
	})
	if err != nil {
		return lease.Answer{}, err
	}
	r.keys.hear(out.GetKnowsKey())
	if call == lease.Grant {
		r.prepare()
	}
	return answerOf(out), nil
}

// Tell reports what a site of one node decided.
func (r *Remote) Tell(ctx context.Context, site fleet.SiteName, epoch int64) error {
	return r.call(ctx, func(ctx context.Context, c nodev1.LeasesClient) error {
		_, err := c.Tell(ctx, &nodev1.TellRequest{Site: string(site), Epoch: epoch})
		return err
	})
}

func (r *Remote) call(ctx context.Context, f func(context.Context, nodev1.LeasesClient) error) error {
	return r.callBy(ctx, "", f)
}

func (r *Remote) callBy(ctx context.Context, call lease.Call, f func(context.Context, nodev1.LeasesClient) error) error {
	conn, token, err := r.open(call)
	if err != nil {
		return err
	}
	err = f(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nodev1.NewLeasesClient(conn))
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unauthenticated {
		r.drop(conn)
	}
	return err
}

func (r *Remote) drop(conn *grpc.ClientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token = ""
	switch conn {
	case r.conn:
		r.conn = nil
	case r.spare:
		r.spare = nil
	default:
		return
	}
	_ = conn.Close() // nothing that must arrive is on it
}

// prepare opens the second connection.
func (r *Remote) prepare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.spare == nil {
		conn, err := grpc.NewClient(r.address, r.options()...)
		if err != nil {
			return // the next call returns the error
		}
		r.spare = conn
	}
	r.spare.Connect() // a no-op once it is connected
}

func (r *Remote) open(call lease.Call) (*grpc.ClientConn, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := r.Key(), r.Wall()
	of := identity.EncodePublic(key.SigningPublic())
	if r.token == "" || r.of != of || now.Sub(r.made) > tokenAge || now.Before(r.made) {
		token, err := key.Sign(r.aud, now)
		if err != nil {
			return nil, "", err
		}
		r.token, r.made, r.of = token, now, of
	}
	if r.address == "" {
		return nil, "", fleet.Errorf(fleet.Unavailable, "the address of this voter is not known yet")
	}
	if r.conn == nil {
		conn, err := grpc.NewClient(r.address, r.options()...)
		if err != nil {
			return nil, "", fleet.Errorf(fleet.Invalid, "prepare to dial %s: %w", r.address, err)
		}
		r.conn = conn
	}
	if call == lease.Release && r.spare != nil && r.spare.GetState() == connectivity.Ready {
		return r.spare, r.token, nil
	}
	return r.conn, r.token, nil
}

func (r *Remote) options() []grpc.DialOption {
	security := r.TLS
	if security == nil {
		security = insecure.NewCredentials()
	}
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: r.Redial / 2, Multiplier: 1.5, Jitter: 0.2, MaxDelay: r.Redial},
			MinConnectTimeout: 2 * r.Redial,
		}),
		grpc.WithIdleTimeout(0),
	}
	if strings.HasPrefix(r.aud, peerPrefix) {
		all = append(all, grpc.WithNoProxy()) // it is on the same site
	}
	return all
}

// peerTarget reads a peer's address as host and port: "unix:1" would otherwise be a file.
func peerTarget(address string) string {
	if address == "" {
		return ""
	}
	return "dns:///" + address
}

const peerPrefix = "holdfast-peer:"

// PeerAudience is the audience of a token that one node of a pair shows to the other.
func PeerAudience(target fleet.NodeName) string { return peerPrefix + string(target) }
