package region

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// M30, X19: where peers reach a region is told, or follows from where it listens.
func TestPeerAddress(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]PeerConfig{
		"https://10.0.0.1:7462":      {Listen: "10.0.0.1:7462"},
		"https://eu.example.com:443": {Listen: "0.0.0.0:7462", URL: "https://eu.example.com:443"},
	} {
		got, err := c.address()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, c := range []PeerConfig{{Listen: "0.0.0.0:7462"}, {Listen: ":7462"}, {Listen: "[::]:7462"}, {Listen: "x"}, {URL: "http://eu:1"}} {
		_, err := c.address()
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), "%+v", c)
	}
	require.False(t, PeerConfig{}.enabled())
}
