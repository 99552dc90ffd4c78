package peers_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/peers"
)

// M14, M30: two regions, one invitation, one pinned GET.
func TestJoin(t *testing.T) {
	t.Parallel()
	t.Run("makes both know each other, and handlers know who calls", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us := w.region(t, "eu"), w.region(t, "us")
		eu.Handle("GET /peer/v1/whoami", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, string(peers.CallerOf(r.Context())))
		}))
		us.join(eu)
		code, body := us.get("eu", "/peer/v1/whoami")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, "us", body)
		code, body = eu.get("us", "/peer/v1/members")
		require.Equal(t, http.StatusOK, code, body)
		answer := decode[struct{ Members []fleet.MemberRecord }](t, body)
		require.Len(t, answer.Members, 2)
	})
	t.Run("with a used, expired, foreign, cut or forged token is refused and changes nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap")
		used := eu.invite("us")
		_, err := us.Join(t.Context(), eu.address, used)
		require.NoError(t, err)
		expired, _, err := eu.Invite(t.Context(), "ap", "test", -time.Minute)
		require.NoError(t, err)
		_, secret, _ := strings.Cut(eu.invite("ap"), ".")
		key, _, _ := strings.Cut(us.invite("ap"), ".")
		for name, c := range map[string]struct {
			token string
			kind  fleet.Kind
			says  string
		}{
			"used":                      {used, fleet.Invalid, "unknown, used or expired"},
			"expired":                   {expired, fleet.Invalid, "unknown, used or expired"},
			"for another region":        {eu.invite("br"), fleet.Invalid, "is for region br"},
			"of another region":         {us.invite("ap"), fleet.Unavailable, "the other side has key"},
			"with another region's key": {key + "." + secret, fleet.Unavailable, "the other side has key"},
			"cut":                       {used[:20], fleet.Invalid, "invalid invitation token"},
			"empty":                     {"", fleet.Invalid, "invalid invitation token"},
		} {
			_, err := ap.Join(t.Context(), eu.address, c.token)
			require.Equal(t, c.kind, fleet.KindOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, c.says, name)
			for _, part := range strings.Split(c.token, ".") { // X10
				if part != "" {
					require.NotContains(t, err.Error(), part, name)
					require.NotContains(t, eu.log.String()+ap.log.String(), part, name)
				}
			}
		}
		all, err := ap.Peers(t.Context())
		require.NoError(t, err)
		require.Empty(t, all)
		require.Len(t, mustPeers(t, eu), 1)
		eu.refused("unauthenticated", "?region:ap")
	})
	t.Run("as a name that is known with another key is refused with an alarm", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, other := w.region(t, "eu"), w.region(t, "us"), w.regionWith(t, "us", 2)
		us.join(eu)
		_, err := other.Join(t.Context(), eu.address, eu.invite("us"))
		require.Equal(t, fleet.Conflict, fleet.KindOf(err), "%v", err)
		eu.refused("other_key", "?region:us")
		require.Contains(t, eu.log.String(), "alarm: ")
		require.True(t, us.id.Public().Equal(eu.peer("us").Key))
	})
	t.Run("to a region of the same name is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		one, two, us := w.region(t, "eu"), w.regionWith(t, "eu", 2), w.region(t, "us")
		us.join(one)
		_, err := us.Join(t.Context(), two.address, two.invite("us"))
		require.Equal(t, fleet.Conflict, fleet.KindOf(err), "%v", err)
		require.True(t, one.id.Public().Equal(us.peer("eu").Key))
	})
}

func mustPeers(t *testing.T, r *region) []peers.Peer {
	t.Helper()
	all, err := r.Peers(t.Context())
	require.NoError(t, err)
	return all
}

// M45: a region does not serve or follow before it is in its own list of members; then it hears of each one that comes or goes.
func TestRegistersFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	eu, us := w.region(t, "eu"), w.region(t, "us")
	all, err := us.store.Members(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1, "before anything else runs")
	require.True(t, all[0].Self)
	require.Equal(t, us.address, all[0].Address)
	us.store.Close()
	_, err = peers.Open(t.Context(), peers.Options{Identity: us.id, Address: us.address, Store: us.store})
	require.Error(t, err, "a region that cannot register has no network")

	ap := w.region(t, "ap")
	eu.run()
	ap.run()
	ap.join(eu)
	eu.knows("ap")
	require.NoError(t, eu.store.RemovePeer(t.Context(), "ap"))
	require.Empty(t, mustPeers(t, eu), "it is followed no more")
}

// M15, M30: regions that joined through one member know each other, also while a link is cut.
func TestMesh(t *testing.T) {
	t.Parallel()
	t.Run("completes itself", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap")
		for _, r := range []*region{eu, us, ap} {
			r.run()
		}
		us.join(eu)
		ap.join(eu)
		eu.knows("ap", "us")
		us.knows("ap", "eu")
		ap.knows("eu", "us")
	})
	t.Run("completes itself although the admitting region is cut off from the other member", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap")
		us.join(eu)
		w.cut(eu, us)
		w.cut(us, eu)
		ap.join(eu)
		for _, r := range []*region{eu, us, ap} {
			r.run()
		}
		require.Eventually(t, func() bool { return len(mustPeers(t, us)) == 2 && us.peer("ap").Reachable }, patience, 10*time.Millisecond)
		require.False(t, us.peer("eu").Reachable)
		require.Eventually(t, func() bool { return strings.Contains(us.peer("eu").Problem, "cut off") }, patience, 10*time.Millisecond)
		w.heal()
		us.knows("ap", "eu")
	})
	t.Run("learns a new address from the region itself", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us := w.region(t, "eu"), w.region(t, "us")
		us.join(eu)
		require.NoError(t, us.store.Announce(t.Context(), func(r fleet.MemberRecord) fleet.MemberRecord {
			r.Address, r.AddressNumber = "https://127.0.0.1:1", r.AddressNumber+1
			return r.SignAddress(us.id.Key)
		}))
		us.run()
		require.Eventually(t, func() bool { return eu.peer("us").Address == "https://127.0.0.1:1" }, patience, 10*time.Millisecond)
		require.NoError(t, us.store.Announce(t.Context(), func(r fleet.MemberRecord) fleet.MemberRecord { // as a restored backup
			r.Address, r.AddressNumber = us.address, 1
			return r.SignAddress(us.id.Key)
		}))
		require.Eventually(t, func() bool { return eu.peer("us").Address == us.address }, patience, 10*time.Millisecond)
	})
	t.Run("rejects a record with another key for a known name, with one alarm", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.regionWith(t, "ap", 1)
		us.join(eu)
		ap.join(eu)
		forged := w.regionWith(t, "ap", 2)
		forged.join(us) // which has not heard of ap yet
		eu.run()
		eu.refused("other_key", "region:us")
		require.True(t, ap.id.Public().Equal(eu.peer("ap").Key))
		require.Equal(t, 1, strings.Count(eu.log.String(), "alarm: "))
	})
	t.Run("passes on members whose admitting region was removed", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap, br := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap"), w.region(t, "br")
		us.join(eu) // admitted by eu
		ap.join(us)
		_, err := ap.store.TakeMembers(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, ap.store.RemovePeer(t.Context(), "us"))
		require.Equal(t, fleet.RegionName("us"), ap.peer("eu").AdmittedBy)
		br.join(ap)
		require.Equal(t, fleet.RegionName("ap"), br.peer("eu").AdmittedBy)
	})
}

// M30, M46: a disabled or removed peer is refused by name before any handler, and an unknown key too.
func TestRefusals(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (eu, us *region, called func() int) {
		t.Helper()
		w := newWorld()
		eu, us = w.region(t, "eu"), w.region(t, "us")
		count := 0
		eu.Handle("GET /peer/v1/test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { count++ }))
		us.join(eu)
		return eu, us, func() int { return count }
	}
	t.Run("disabled, and enabled again", func(t *testing.T) {
		t.Parallel()
		eu, us, called := setup(t)
		require.NoError(t, eu.store.DisablePeer(t.Context(), "us"))
		require.Empty(t, mustPeers(t, eu))
		code, body := us.get("eu", "/peer/v1/test")
		require.Equal(t, http.StatusForbidden, code)
		require.Equal(t, "disabled: region eu has disabled region us", decode[api.Problem](t, body).Detail)
		eu.refused("disabled", "region:us")
		us.run()
		require.Eventually(t, func() bool { return strings.HasPrefix(us.peer("eu").Problem, "disabled: ") }, patience, 10*time.Millisecond)
		require.NoError(t, eu.store.EnablePeer(t.Context(), "us"))
		code, _ = us.get("eu", "/peer/v1/test")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, 1, called())
	})
	t.Run("removed, and joined again", func(t *testing.T) {
		t.Parallel()
		eu, us, called := setup(t)
		require.NoError(t, eu.store.RemovePeer(t.Context(), "us"))
		code, body := us.get("eu", "/peer/v1/test")
		require.Equal(t, http.StatusForbidden, code)
		require.Equal(t, "removed: region eu has removed region us", decode[api.Problem](t, body).Detail)
		eu.refused("removed", "region:us")
		us.join(eu)
		code, _ = us.get("eu", "/peer/v1/test")
		require.Equal(t, http.StatusOK, code)
		require.Equal(t, 1, called())
		us.run()
		eu.run()
		eu.knows("us")
	})
	for _, side := range []string{"serves", "makes"} {
		t.Run("a running call ends when the region that "+side+" it disables the peer", func(t *testing.T) {
			t.Parallel()
			eu, us, _ := setup(t)
			began, served, made := make(chan struct{}), make(chan struct{}), make(chan struct{})
			eu.Handle("GET /peer/v1/long", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				close(began)
				<-r.Context().Done()
				close(served)
			}))
			eu.run()
			us.run()
			p := us.peer("eu")
			go func() {
				defer close(made)
				req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.URL("/peer/v1/long"), nil)
				if err != nil {
					return
				}
				if res, err := p.Client.Do(req); err == nil {
					_ = res.Body.Close()
				}
			}()
			<-began
			if side == "serves" {
				require.NoError(t, eu.store.DisablePeer(t.Context(), "us"))
			} else {
				require.NoError(t, us.store.DisablePeer(t.Context(), "eu"))
			}
			for what, ended := range map[string]chan struct{}{"served": served, "made": made} {
				select {
				case <-ended:
				case <-time.After(patience / 2): // before the client's own limit
					require.Fail(t, "the call is still "+what)
				}
			}
		})
	}
	t.Run("an unknown key, whatever it asks for", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap")
		us.join(eu)
		eu.Handle("GET /peer/v1/test", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { require.Fail(t, "a stranger got in") }))
		for _, path := range []string{"/peer/v1/test", "/peer/v1/members", "/api/v1/regions", "/peer/v1/join/../test"} {
			code, body := ap.call(eu, http.MethodGet, path, nil, "")
			require.Equal(t, http.StatusUnauthorized, code, path)
			require.Contains(t, body, "unknown_key: ")
		}
		code, _ := us.get("eu", "/api/v1/regions")
		require.Equal(t, http.StatusNotFound, code, "the listener has sync endpoints only")
	})
	t.Run("a join with an oversized, foreign or unsigned record", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		eu, us, ap := w.region(t, "eu"), w.region(t, "us"), w.region(t, "ap")
		_, secret, _ := strings.Cut(eu.invite("ap"), ".")
		own := func(r *region) fleet.MemberRecord {
			all, err := r.store.Members(t.Context())
			require.NoError(t, err)
			return all[0].MemberRecord
		}
		unsigned := own(ap)
		unsigned.Address = "https://127.0.0.1:1"
		for name, c := range map[string]struct {
			code int
			body any
		}{
			"another region's record": {http.StatusForbidden, map[string]any{"token": secret, "record": own(us)}},
			"an unsigned address":     {http.StatusBadRequest, map[string]any{"token": secret, "record": unsigned}},
			"no record":               {http.StatusForbidden, map[string]any{"token": secret}},
			"too much":                {http.StatusRequestEntityTooLarge, strings.Repeat("x", 20<<10)},
			"no object":               {http.StatusBadRequest, []int{}},
		} {
			raw, err := json.Marshal(c.body)
			require.NoError(t, err)
			code, body := ap.call(eu, http.MethodPost, "/peer/v1/join", raw, "")
			require.Equal(t, c.code, code, "%s: %s", name, body)
		}
		require.Empty(t, mustPeers(t, eu))
	})
}

// call is one of a region that does not have to be a peer.
func (r *region) call(at *region, method, path string, body []byte, header string) (int, string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: r.Client(at.id.Public()), DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(r.t.Context(), method, at.address+path, bytes.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Holdfast-Region", header)
	res, err := client.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.StatusCode, string(text)
}

// M14: both sides pin a key; nothing else in a certificate counts, and TLS before 1.3 is refused.
func TestPins(t *testing.T) {
	t.Parallel()
	w := newWorld()
	eu, us := w.region(t, "eu"), w.region(t, "us")
	us.join(eu)
	dial := func(c *tls.Config) error {
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", strings.TrimPrefix(eu.address, "https://"))
		if err == nil {
			_, err = conn.Read(make([]byte, 1)) // the server's alert comes after a handshake of TLS 1.3
			_ = conn.Close()
		}
		return err
	}
	require.ErrorContains(t, dial(us.Client(us.id.Public())), "the other side has key")
	old := us.Client(eu.id.Public())
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	require.Error(t, dial(old))
	bare := us.Client(eu.id.Public())
	bare.Certificates = nil
	require.ErrorContains(t, dial(bare), "certificate required")
	_, err := peers.NewIdentity("x", make([]byte, ed25519.SeedSize-1))
	require.Error(t, err)
}
