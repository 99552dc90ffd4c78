package tenure_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/guardian"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/lease"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
	"github.com/holdfast-io/holdfast/internal/testkit"
)

// transcript is a log that may be read while it is written.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *transcript) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *transcript) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// half is one of two nodes whose region is away: neither holds anything without the other's vote.
type half struct {
	*tenure.Keeper
	t      *testing.T
	name   fleet.NodeName
	role   fleet.Role
	listen string
	key    atomic.Pointer[identity.Key]
	said   *transcript

	served certs.ServerFiles
	shown  certs.ClientFiles
}

const (
	duoTTL      = 2 * time.Second
	duoInterval = 500 * time.Millisecond
)

// newDuo makes two nodes; change says how they speak to each other.
func newDuo(t *testing.T, change func(a, b *half)) (a, b *half) {
	t.Helper()
	a, b = newHalf(t, nodeA, fleet.RoleActive), newHalf(t, nodeB, fleet.RoleStandby)
	change(a, b)
	for _, h := range []*half{a, b} {
		h.start()
	}
	for _, h := range []*half{a, b} {
		h.tell(a.member(), b.member())
	}
	return a, b
}

func newHalf(t *testing.T, name fleet.NodeName, role fleet.Role) *half {
	t.Helper()
	h := &half{t: t, name: name, role: role, listen: testkit.Address(), said: &transcript{}}
	h.renew()
	return h
}

// renew gives the node another key, by which it signs from now on.
func (h *half) renew() {
	h.t.Helper()
	key := h.another()
	h.key.Store(&key)
}

func (h *half) another() identity.Key {
	h.t.Helper()
	key, err := identity.Generate(h.name)
	require.NoError(h.t, err)
	return key
}

func (h *half) member() tenure.Member {
	return tenure.Member{Node: h.name, Role: h.role, PeerAddress: h.listen, SigningKey: h.key.Load().SigningPublic()}
}

func (h *half) start() {
	h.t.Helper()
	t, dir := h.t, testkit.Dir(h.t)
	require.NoError(t, tenure.Joined(dir, site, h.name))
	log := slog.New(slog.NewTextHandler(io.MultiWriter(h.said, t.Output()), nil))
	opt := tenure.Options{
		Site: site, Node: h.name, Dir: dir, TTL: duoTTL, Interval: duoInterval, Key: func() identity.Key { return *h.key.Load() },
		Tenant: &fakeTenant{}, Region: &fakeRegion{}, Log: log,
	}
	if h.served.On() {
		conf, err := certs.Server(h.served, time.Now, log)
		require.NoError(t, err)
		dialled, err := certs.Client(h.shown)
		require.NoError(t, err)
		opt.Served, opt.Dialled = certs.Listener(conf, "peer", time.Now, log, func(audit.Refusal) {}), certs.Caller(dialled)
	}
	var err error
	h.Keeper, err = tenure.Open(opt)
	require.NoError(t, err)
	require.NoError(t, h.Begin(t.Context()))
	l, err := net.Listen("tcp", h.listen)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- h.Run(ctx) }()
	go func() { done <- h.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, <-done)
	})
}

func (h *half) tell(members ...tenure.Member) {
	h.t.Helper()
	require.NoError(h.t, h.SetSite(h.t.Context(), tenure.Site{
		Name: site, Generation: 1, Members: members, OnIsolation: lease.IsolationStop,
	}))
}

func (h *half) eventually(what string, so func() bool) {
	h.t.Helper()
	require.Eventually(h.t, so, patience, 5*time.Millisecond, what)
}

func (h *half) says(words string) {
	h.t.Helper()
	h.eventually(string(h.name)+" says: "+words, func() bool { return bytes.Contains([]byte(h.said.String()), []byte(words)) })
}

// secure has a node speak TLS to its peer, with certificates by an authority on both sides.
func secure(t *testing.T, ca *testkit.Authority, all ...*half) {
	t.Helper()
	for _, h := range all {
		cert, key := ca.Issue(filepath.Join(t.TempDir(), string(h.name)), h.listen)
		own := certs.Pair{Cert: cert, Key: key}
		h.served, h.shown = certs.ServerFiles{Pair: own, ClientCA: ca.File}, certs.ClientFiles{CA: ca.File, Pair: own}
	}
}

// C87: votes over TLS, and what a pair says whose nodes do not agree on it.
func TestPeerTLS(t *testing.T) {
	t.Parallel()
	t.Run("with certificates on both sides votes are given", func(t *testing.T) {
		t.Parallel()
		a, b := newDuo(t, func(a, b *half) { secure(t, testkit.NewAuthority(t), a, b) })
		a.eventually("it may run", a.MayRun)
		require.NotContains(t, a.said.String()+b.said.String(), "refused")
		plain := &tenure.Remote{Key: func() identity.Key { return *b.key.Load() }, Wall: time.Now, Redial: duoInterval}
		defer plain.Close()
		plain.At(a.listen, tenure.PeerAudience(nodeA))
		_, err := plain.Vote(t.Context(), lease.Ask, lease.Request{Site: site, Candidate: nodeB, TTL: duoTTL})
		require.Equal(t, codes.Unavailable, status.Code(err), "in the clear the true peer has no vote either")
	})
	t.Run("a peer in the clear is refused, and both say what to do", func(t *testing.T) {
		t.Parallel()
		a, b := newDuo(t, func(a, _ *half) { secure(t, testkit.NewAuthority(t), a) })
		a.says("the caller does not use TLS: configure it to use TLS")
		a.says("the peer does not use TLS: start it with --tls-cert and --tls-key as well")
		b.says("if it uses TLS, start this node with --tls-cert, --tls-key and --ca FILE as well")
		require.False(t, a.MayRun() || b.MayRun())
	})
	t.Run("a peer without a client certificate is refused, and both say what to do", func(t *testing.T) {
		t.Parallel()
		a, b := newDuo(t, func(a, b *half) {
			secure(t, testkit.NewAuthority(t), a, b)
			b.shown.Pair = certs.Pair{}
			b.role, a.role = a.role, b.role
		})
		a.says("the caller sends no certificate: start it with --client-cert and --client-key")
		b.says("the peer requires a client certificate (--tls-client-ca): start this node with --client-cert and --client-key")
	})
	t.Run("a peer by another authority is not trusted, and both say what to do", func(t *testing.T) {
		t.Parallel()
		a, b := newDuo(t, func(a, b *half) {
			secure(t, testkit.NewAuthority(t), a)
			secure(t, testkit.NewAuthority(t), b)
		})
		for _, h := range []*half{a, b} {
			h.says("give this node the authority that signed the peer's certificate: --ca FILE or HOLDFAST_CA")
			h.says("the caller rejects this certificate")
			require.False(t, h.MayRun())
		}
	})
}

// C87, X21: a node changes its key, and no vote between the pair is refused meanwhile.
func TestPeerKeyChanges(t *testing.T) {
	t.Parallel()
	a, b := newDuo(t, func(*half, *half) {})
	a.eventually("it may run", a.MayRun)
	old, next := *a.key.Load(), a.another()
	require.NoError(t, a.PeerTakes(t.Context(), old.SigningPublic()), "that is the key it votes by")

	taken := make(chan error, 1)
	go func() { taken <- a.PeerTakes(t.Context(), next.SigningPublic()) }()
	changing := a.member()
	changing.NextSigningKey = next.SigningPublic()
	a.tell(changing, b.member())
	select {
	case err := <-taken:
		require.Fail(t, "the peer was not told of the key", "%v", err)
	case <-time.After(duoInterval): // votes went both ways
	}
	b.tell(changing, b.member())
	require.NoError(t, <-taken)

	a.key.Store(&next)
	switched := guardian.SinceBoot()
	a.eventually("it is voted for by the next key, while either is good", func() bool {
		return guardian.SinceBoot() > switched+2*duoTTL && a.MayRun()
	})
	b.tell(a.member(), b.member())
	a.tell(a.member(), b.member())
	switched = guardian.SinceBoot()
	a.eventually("it is voted for when the old one is void", func() bool {
		return guardian.SinceBoot() > switched+2*duoTTL && a.MayRun()
	})
	require.NotContains(t, a.said.String()+b.said.String(), "refused")

	thief := &tenure.Remote{Key: func() identity.Key { return old }, Wall: time.Now, Redial: duoInterval}
	defer thief.Close()
	thief.At(b.listen, tenure.PeerAudience(nodeB))
	_, err := thief.Vote(t.Context(), lease.Ask, lease.Request{Site: site, Candidate: nodeA, TTL: duoTTL})
	require.Equal(t, codes.Unauthenticated, status.Code(err))

	alone := newHalf(t, nodeA, fleet.RoleActive)
	alone.start()
	require.NoError(t, alone.PeerTakes(t.Context(), ed25519.PublicKey{}), "nobody has told of a site yet")
	alone.tell(alone.member())
	require.NoError(t, alone.PeerTakes(t.Context(), ed25519.PublicKey{}), "there is no peer to wait for")
}
