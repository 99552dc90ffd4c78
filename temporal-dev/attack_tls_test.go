//go:build slow

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/fleet"
	keys "github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/node/tenure"
)

// X10, X20, X21, N60: the attacks on the votes over mutual TLS, and what a certificate alone, or one beside
// another's key, opens.
func TestAttackTLS(t *testing.T) {
	t.Parallel()
	s := startWith(t, 4, "--tls")
	together(t, []part{
		{"releases above the promise", s.attackReleases}, // plant-1
		{"forged answers", s.attackAnswers},              // plant-2
		{"an address of something else", func(t *testing.T) { s.attackAddress(t, "plant-3") }},
		{"certificates and keys that do not belong together", s.attackCertificates}, // plant-4
	})
}

// authority is that of the region.
func (s *stack) authority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: filepath.Join(s.data, tlsFolder)}
	require.NoError(t, a.load())
	return a
}

// serves is the TLS of a listener with a certificate by an authority.
func (s *stack) serves(t *testing.T, by *authority, name string) *tls.Config {
	t.Helper()
	own := &authority{dir: t.TempDir(), key: by.key, cert: by.cert} // the files of the node itself stay
	require.NoError(t, own.write("ca", by.cert, by.key))
	pair, err := own.pair(name)
	require.NoError(t, err)
	conf, err := certs.Server(certs.ServerFiles{Pair: pair, ClientCA: s.doc.TLS.CA}, time.Now, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return conf
}

// vote asks for one, and gives how it was refused.
func (s *stack) vote(t *testing.T, address string, secure credentials.TransportCredentials, token, site, candidate string) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	ctx := t.Context()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	out, err := nodev1.NewLeasesClient(conn).Vote(ctx, asks(nodev1.Call_CALL_ASK, site, candidate, 0))
	require.False(t, out.GetGranted())
	if err == nil {
		require.Equal(t, "not_a_voter", out.GetReason())
		require.Empty(t, out.GetVote().GetHolder())
	}
	return status.Code(err)
}

func (s *stack) attackCertificates(t *testing.T) {
	const site, foreign = "plant-4", "plant-3-a"
	active, standby := s.holder(t, site), s.standby(t, site)
	sign := func(node, audience string) string {
		t.Helper()
		token, err := s.steal(t, node, audience).key.Sign(audience, time.Now())
		require.NoError(t, err)
		return token
	}
	good := s.security(t)
	bare := good.Clone()
	bare.Certificates, bare.GetClientCertificate = nil, nil
	stranger := &authority{dir: t.TempDir()}
	require.NoError(t, stranger.make())
	pair, err := stranger.pair("stranger")
	require.NoError(t, err)
	forged, err := certs.For(s.doc.API, certs.ClientFiles{CA: s.doc.TLS.CA, Pair: pair})
	require.NoError(t, err)
	peer := s.peerAddress(t, active)

	for name, secure := range map[string]credentials.TransportCredentials{
		"no certificate": credentials.NewTLS(bare), "a stranger's certificate": credentials.NewTLS(forged), "in the clear": insecure.NewCredentials(),
	} {
		require.Equal(t, codes.Unavailable, s.vote(t, s.doc.Link, secure, sign(standby, keys.LinkAudience), site, standby), "%s at the link", name)
		token := sign(standby, tenure.PeerAudience(fleet.NodeName(active)))
		require.Equal(t, codes.Unavailable, s.vote(t, peer, secure, token, site, standby), "%s at the peer", name)
	}
	for name, conf := range map[string]*tls.Config{"no certificate": bare, "a stranger's certificate": forged} {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}}
		t.Cleanup(web.CloseIdleConnections)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.doc.API+"/healthz", nil)
		require.NoError(t, err)
		res, err := web.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		require.Error(t, err, "%s at the API", name)
	}

	certified := credentials.NewTLS(good)
	require.Equal(t, codes.Unauthenticated, s.vote(t, s.doc.Link, certified, "", site, standby), "a certificate without a key")
	require.Equal(t, codes.Unauthenticated, s.vote(t, peer, certified, "", site, standby))
	made, err := keys.Generate(fleet.NodeName(standby))
	require.NoError(t, err)
	unknown, err := made.Sign(keys.LinkAudience, time.Now())
	require.NoError(t, err)
	require.Equal(t, codes.Unauthenticated, s.vote(t, s.doc.Link, certified, unknown, site, standby), "a key that nobody enrolled")
	// The key says who calls, whoever's certificate is beside it.
	require.Equal(t, codes.PermissionDenied, s.vote(t, s.doc.Link, certified, sign(foreign, keys.LinkAudience), site, standby))
	require.Equal(t, codes.OK, s.vote(t, s.doc.Link, certified, sign(foreign, keys.LinkAudience), site, foreign), "it has no vote there")
	token := sign(foreign, tenure.PeerAudience(fleet.NodeName(active)))
	require.Equal(t, codes.Unauthenticated, s.vote(t, peer, certified, token, site, foreign))
	require.Equal(t, codes.Unauthenticated, s.vote(t, peer, certified, token, site, standby))
	require.Equal(t, active, s.holder(t, site))
}

// trap is where a stolen key sends a node: it notes what comes, and answers with one thing.
type trap struct {
	net.Listener
	answer []byte
	mu     sync.Mutex
	heard  [][]byte // of the connections that ended
}

func newTrap(t *testing.T, answer string) *trap {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0") //nolint:noctx // on this machine
	require.NoError(t, err)
	p := &trap{Listener: l, answer: []byte(answer)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.note(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return p
}

func (p *trap) note(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(e2eLease))
	text, piece := []byte{}, make([]byte, 64<<10)
	for {
		n, err := c.Read(piece)
		text = append(text, piece[:n]...)
		if err != nil {
			break
		}
		if len(p.answer) > 0 {
			_, _ = c.Write(p.answer)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = append(p.heard, text)
}

// said waits until some connections have ended, and gives what came by them.
func (p *trap) said(t *testing.T) [][]byte {
	t.Helper()
	const several = 2
	var heard [][]byte
	waitFor(t, "the node has been here", func(context.Context) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if heard = p.heard; len(heard) < several {
			return errNotYet
		}
		return nil
	})
	return heard
}

// requireGreeting checks that a node said no more than who begins to speak HTTP/2, or TLS: nothing of a call.
func requireGreeting(t *testing.T, text []byte) {
	t.Helper()
	const http2, handshake, settings, window = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 22, 4, 8
	if len(text) > 0 && text[0] == handshake {
		require.Equal(t, len(text), 5+int(binary.BigEndian.Uint16(text[3:])), "one record, which is not encrypted")
		return
	}
	rest, is := bytes.CutPrefix(text, []byte(http2))
	require.True(t, is || len(text) == 0, "%q", text)
	for len(rest) > 0 {
		require.GreaterOrEqual(t, len(rest), 9)
		require.Contains(t, []byte{settings, window}, rest[3], "%q", rest)
		rest = rest[9+int(rest[0])<<16+int(rest[1])<<8+int(rest[2]):]
	}
}

// attackAddress has who stole the standby's key say that its node is somewhere else. The active dials there, and
// shows nothing to what is no voter of this region; what a voter is shown is good for nothing elsewhere.
func (s *stack) attackAddress(t *testing.T, site string) {
	was := s.agreed(t, site)
	thief := peerOf(site, was.holder)
	own := s.peerAddress(t, was.holder)
	s.order(t, "stop", thief) // it would say where it is
	link := nodev1.NewControlPlaneClient(s.steal(t, thief, keys.LinkAudience).link)
	moves := func(address string) error {
		_, err := link.Register(t.Context(), &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: thief, PeerAddress: address})
		return err
	}
	for _, address := range []string{"unix:/run/x:1", "http://10.0.0.1:80", "10.0.0.1", "10.0.0.1:0", "a b:1", "@:1"} {
		require.Equal(t, codes.InvalidArgument, status.Code(moves(address)), address)
	}
	_, number, err := net.SplitHostPort(newTrap(t, "").Addr().String()) // nobody else has it
	require.NoError(t, err)
	file, err := net.Listen("unix", "@"+number) //nolint:noctx // on this machine
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	touched := make(chan error, 1)
	go func() {
		c, err := file.Accept()
		if err == nil {
			_ = c.Close()
		}
		touched <- err
	}()
	require.NoError(t, moves("unix-abstract:"+number))

	for _, answer := range []string{"", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "E\x00\x00\x00\x05\x00", "SSH-2.0-x\r\n"} {
		p := newTrap(t, answer)
		require.NoError(t, moves(p.Addr().String()))
		for _, text := range p.said(t) {
			requireGreeting(t, text)
		}
	}
	if s.doc.TLS != nil {
		s.foreignCertificate(t, moves)
	}
	require.NoError(t, moves("169.254.169.254:80"))

	require.NoError(t, moves(own)) // it asks itself, and refuses itself
	s.listed(t, was.holder, "peer", "?node:"+was.holder, "unauthenticated", "Vote")
	require.NoError(t, moves(s.doc.Link))
	s.written(t, "link", "?node:"+was.holder, "node_token", "%Vote")

	l, err := net.Listen("tcp", loopback+":0") //nolint:noctx // on this machine
	require.NoError(t, err)
	f := s.forge(t, l, thief)
	require.NoError(t, moves(l.Addr().String()))
	waitFor(t, "a voter is called", func(context.Context) error {
		if f.calls.Load() == 0 {
			return errNotYet
		}
		return nil
	})
	token, _ := f.token.Load().(string)
	require.NotEmpty(t, token)
	secure := insecure.NewCredentials()
	if s.doc.TLS != nil {
		secure = credentials.NewTLS(s.security(t))
	}
	for _, address := range []string{s.doc.Link, own, s.peerAddress(t, "plant-1-a")} {
		require.Equal(t, codes.Unauthenticated, s.vote(t, address, secure, token, site, was.holder), address)
	}
	web := intruder{stack: s, token: token, web: http.DefaultClient}
	if s.doc.TLS != nil {
		web.web = &http.Client{Transport: &http.Transport{TLSClientConfig: s.security(t)}}
		t.Cleanup(web.web.CloseIdleConnections)
	}
	require.Equal(t, http.StatusUnauthorized, web.call(t, http.MethodPost, "/api/internal/nodes/"+was.holder+"/reports", "{}").status)
	require.Equal(t, http.StatusUnauthorized, web.call(t, http.MethodGet, "/api/v1/nodes", "").status)
	select {
	case err := <-touched:
		require.Fail(t, "the node went to a socket that is no host and port", "%v", err)
	default:
	}
	s.keepsActive(t, site, was)
}

// foreignCertificate is where the node comes to a listener with a certificate that it does not trust.
func (s *stack) foreignCertificate(t *testing.T, moves func(address string) error) {
	t.Helper()
	stranger := &authority{dir: t.TempDir()}
	require.NoError(t, stranger.make())
	l, err := net.Listen("tcp", loopback+":0") //nolint:noctx // on this machine
	require.NoError(t, err)
	conf := s.serves(t, stranger, "stranger")
	met := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			_ = raw.SetDeadline(time.Now().Add(e2eLease))
			c := tls.Server(raw, conf)
			n, err := c.Read(make([]byte, 1))
			if err == nil {
				err = fmt.Errorf("%d bytes were sent", n)
			} else {
				err = nil
			}
			select {
			case met <- err:
			default:
			}
			_ = raw.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	require.NoError(t, moves(l.Addr().String()))
	select {
	case err := <-met:
		require.NoError(t, err)
	case <-time.After(e2ePatience):
		require.Fail(t, "the node did not come")
	}
}
