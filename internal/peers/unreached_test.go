package peers_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/peers"
)

// X8: what an operator reads while a region does not answer says what is the matter, not what TLS says.
func TestUnreached(t *testing.T) {
	t.Parallel()
	serve := func(t *testing.T, with func(net.Conn)) string {
		t.Helper()
		on, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = on.Close() })
		go func() {
			for {
				c, err := on.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = c.Close() })
				with(c)
			}
		}()
		return on.Addr().String()
	}
	closed := serve(t, func(c net.Conn) { _ = c.Close() })
	for name, row := range map[string]struct {
		at, want string
	}{
		"a cut link":        {serve(t, func(net.Conn) {}), "no answer; is the link cut, or its server paused?"},
		"a cut relay":       {closed, "the other side closes the connection"},
		"another program":   {serve(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH\r\n")) }), "another program listens there"},
		"a refused address": {"127.0.0.1:1", "no server listens there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := &http.Client{Transport: &http.Transport{TLSHandshakeTimeout: 200 * time.Millisecond}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+row.at+"/sync", nil)
			require.NoError(t, err)
			_, err = client.Do(req) //nolint:bodyclose // it fails
			err = peers.Unreached("us", req, err)
			require.EqualError(t, err, "region us is unreachable at "+row.at+": "+row.want)
			require.Equal(t, fleet.Unavailable, fleet.KindOf(err))
		})
	}
}
