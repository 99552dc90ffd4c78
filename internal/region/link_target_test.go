package region

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/resolver"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// told is a connection that hears of addresses.
type told struct {
	resolver.ClientConn
	state resolver.State
}

func (c *told) UpdateState(s resolver.State) error { c.state = s; return nil }

func TestLinkTarget(t *testing.T) {
	t.Parallel()
	t.Run("one address is what it is", func(t *testing.T) {
		t.Parallel()
		target, err := linkTarget("region:7461")
		require.NoError(t, err)
		require.Equal(t, "region:7461", target)
	})
	t.Run("of several any will do, each under its own name", func(t *testing.T) {
		t.Parallel()
		target, err := linkTarget("a:1,b:2")
		require.NoError(t, err)
		require.Equal(t, linkScheme+":///a:1,b:2", target)
		var c told
		_, err = linkResolver{}.Build(resolver.Target{URL: *mustParse(t, target)}, &c, resolver.BuildOptions{})
		require.NoError(t, err)
		require.ElementsMatch(t, []resolver.Address{{Addr: "a:1", ServerName: "a"}, {Addr: "b:2", ServerName: "b"}}, c.state.Addresses)
	})
	t.Run("none is refused", func(t *testing.T) {
		t.Parallel()
		_, err := linkTarget("")
		require.Equal(t, fleet.Invalid, fleet.KindOf(err))
	})
}

func mustParse(t *testing.T, target string) *url.URL {
	t.Helper()
	u, err := url.Parse(target)
	require.NoError(t, err)
	return u
}
