package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	store "github.com/holdfast-io/holdfast/internal/postgres/peers"
)

func identityOf(t *testing.T, name fleet.RegionName, key string) Identity {
	t.Helper()
	seed := sha256.Sum256([]byte(key))
	id, err := NewIdentity(name, seed[:])
	require.NoError(t, err)
	return id
}

// M30, M46: the client of a peer goes with its key: a region that was removed and joined again at the same address is called by its new
// key, and whoever has the old one is not.
func TestClientFollowsTheKey(t *testing.T) {
	t.Parallel()
	before, after := identityOf(t, "us", "before"), identityOf(t, "us", "after")
	serve := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	serve.TLS = after.serverTLS()
	serve.StartTLS()
	t.Cleanup(serve.Close)
	n := &Network{
		opt:   Options{Identity: identityOf(t, "eu", "own"), Dial: (&net.Dialer{}).DialContext},
		links: map[fleet.RegionName]link{},
	}
	t.Cleanup(n.Close)
	member := func(key ed25519.PublicKey) store.Member {
		m := store.Member{}
		m.Name, m.Key, m.Address = "us", key, serve.URL
		return m
	}
	call := func(client *http.Client) error {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, serve.URL, nil)
		require.NoError(t, err)
		answer, err := client.Do(req)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}

	old := n.clientOf(member(before.Public()))
	require.Error(t, call(old))
	current := n.clientOf(member(after.Public()))
	require.NoError(t, call(current))
	require.Same(t, current, n.clientOf(member(after.Public())), "as long as nothing changes")
	require.Error(t, call(n.clientOf(member(before.Public()))), "who has the old key is not taken for it")
}
