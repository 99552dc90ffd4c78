package link_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	nodev1 "github.com/holdfast-io/holdfast/api/node/v1"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

func asNode(name, peer string) *nodev1.RegisterRequest {
	return &nodev1.RegisterRequest{ProtocolVersion: 1, Provider: name, PeerAddress: peer}
}

func (l *live) siteWith(what string, so func(*nodev1.Site) bool) *nodev1.Site {
	l.t.Helper()
	return l.await(what, func(m *nodev1.ConnectResponse) bool { return m.GetSite() != nil && so(m.GetSite()) }).GetSite()
}

// X21, C82, C87: a node learns of its site when it registers, and of each change of it on its
// stream, also when the change was made at another server.
func TestNodesLearnOfTheirSite(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	a, b := r.node("plant-1-a"), r.node("plant-1-b")
	first, second := r.serve(slow()), r.serve(slow())
	one := r.dial(first.address, signed(a))
	got := one.register(asNode("plant-1-a", "10.0.0.1:7462"))
	require.NotNil(t, got.GetSite())
	require.Equal(t, "plant-1", got.GetSite().GetName())
	require.Len(t, got.GetSite().GetMembers(), 2)
	require.Equal(t, "10.0.0.1:7462", got.GetSite().GetMembers()[0].GetPeerAddress())
	require.Equal(t, []byte(a.SigningPublic()), got.GetSite().GetMembers()[0].GetSigningKey())
	l := one.open(got.GetConnectionId())
	l.acked()

	r.dial(second.address, signed(b)).connect(asNode("plant-1-b", "10.0.0.2:7462"))
	l.siteWith("the peer's address", func(s *nodev1.Site) bool { return s.GetMembers()[1].GetPeerAddress() == "10.0.0.2:7462" })

	renewed := r.node("plant-1-b") // enrols anew, with another key
	r.exec(`SELECT pg_notify('holdfast_link', 'plant-1 site_changed')`)
	l.siteWith("the peer's new key", func(s *nodev1.Site) bool {
		return string(s.GetMembers()[1].GetSigningKey()) == string(renewed.SigningPublic())
	})
	require.NoError(t, r.store.AskRotation(t.Context(), "plant-1-b"))
	changed, err := identity.Generate("plant-1-b")
	require.NoError(t, err)
	require.NoError(t, r.store.OfferKey(t.Context(), nodes.KeyOffer{
		Node: "plant-1-b", Signer: renewed.SigningPublic(), Signing: changed.SigningPublic(), Sealing: changed.SigningPublic(),
	}))
	l.siteWith("the peer's next key, before its first use", func(s *nodev1.Site) bool {
		b := s.GetMembers()[1]
		return string(b.GetSigningKey()) == string(renewed.SigningPublic()) && string(b.GetNextSigningKey()) == string(changed.SigningPublic())
	})
	require.NoError(t, r.store.AskRotation(t.Context(), "plant-1-b"))
	l.siteWith("an offer taken back", func(s *nodev1.Site) bool { return len(s.GetMembers()[1].GetNextSigningKey()) == 0 })
	require.NoError(t, r.store.OfferKey(t.Context(), nodes.KeyOffer{
		Node: "plant-1-b", Signer: renewed.SigningPublic(), Signing: changed.SigningPublic(), Sealing: changed.SigningPublic(),
	}))
	require.NoError(t, r.store.UseKey(t.Context(), "plant-1-b", changed.SigningPublic()))
	l.siteWith("the next key alone", func(s *nodev1.Site) bool {
		b := s.GetMembers()[1]
		return string(b.GetSigningKey()) == string(changed.SigningPublic()) && len(b.GetNextSigningKey()) == 0
	})
	cordon := func(since string) {
		r.exec(`UPDATE nodes SET cordoned_at = ` + since + ` WHERE name = 'plant-1-b'`)
		r.exec(`SELECT pg_notify('holdfast_link', 'plant-1 site_changed')`)
	}
	cordon("now()")
	cordoned := l.siteWith("the peer's cordon", func(s *nodev1.Site) bool { return s.GetMembers()[1].GetCordoned() })
	require.False(t, cordoned.GetMembers()[0].GetCordoned())
	cordon("NULL")
	l.siteWith("that it ended", func(s *nodev1.Site) bool { return !s.GetMembers()[1].GetCordoned() })
	require.NoError(t, r.store.RevokeNode(t.Context(), "plant-1-b"))
	l.siteWith("a key taken back", func(s *nodev1.Site) bool { return len(s.GetMembers()[1].GetSigningKey()) == 0 })
}

// C78: where a peer would be dialled is checked, and only nodes have one.
func TestPeerAddressIsRefused(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.serve(slow())
	key := r.node("plant-1-a")
	for name, row := range map[string]struct {
		as   bearer
		in   *nodev1.RegisterRequest
		says string
	}{
		"with a scheme":  {signed(key), asNode("plant-1-a", "http://10.0.0.1:1"), "invalid address"},
		"of a provider":  {fixed(r.token), offer(func(in *nodev1.RegisterRequest) { in.PeerAddress = "10.0.0.1:1" }), "only nodes"},
		"without a port": {signed(key), asNode("plant-1-a", "10.0.0.1"), "invalid address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := r.dial(s.address, row.as).Register(t.Context(), row.in)
			require.Contains(t, refused(t, codes.InvalidArgument, err), row.says)
		})
	}
}
