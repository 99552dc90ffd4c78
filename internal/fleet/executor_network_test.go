package fleet_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// C78: where an executor may be.
func TestExecutorNetworks(t *testing.T) {
	t.Parallel()
	networks, err := fleet.ParseExecutorNetworks([]string{"10.1.0.0/16", "fd00::/8", "192.0.2.7"})
	require.NoError(t, err)
	caller := netip.MustParseAddr("198.51.100.4")
	for host, allowed := range map[string]bool{
		"198.51.100.4": true, "::ffff:198.51.100.4": true, "10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00::1": true, "192.0.2.7": true,
		"a.name":    true, // judged when it is dialled
		"127.0.0.1": false, "::1": false, "[::1]": false, "169.254.169.254": false, "::ffff:169.254.169.254": false, "10.2.0.1": false,
		"192.0.2.8": false, "0.0.0.0": false, "::": false, "198.51.100.5": false, "fe80::1%eth0": false,
	} {
		err := networks.AllowHost(caller, host)
		if allowed {
			require.NoError(t, err, host)
			continue
		}
		require.Equal(t, fleet.Denied, fleet.KindOf(err), host)
	}
	require.NoError(t, networks.AllowHost(netip.Addr{}, "127.0.0.1"), "a caller without an address")
	require.Error(t, fleet.ExecutorNetworks(nil).AllowHost(caller, "10.1.2.3"))
	for _, bad := range []string{"", "10.0.0.0/33", "a.name", "10.0.0.0/8,fd00::/8"} {
		_, err := fleet.ParseExecutorNetworks([]string{bad})
		require.Equal(t, fleet.Invalid, fleet.KindOf(err), bad)
	}
}
