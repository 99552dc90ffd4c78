package guardian

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseListeners(t *testing.T) {
	t.Parallel()
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for name, c := range map[string]struct {
		table string
		want  []string
	}{
		"nothing":        {head, nil},
		"every address":  {head + "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n", []string{"8080"}},
		"one address":    {head + "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n", []string{"127.0.0.1:8080"}},
		"every IPv6":     {head + "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 4711 1\n", []string{"80"}},
		"one IPv6":       {head + "   0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 4711 1\n", []string{"[::1]:80"}},
		"a connection":   {head + "   0: 0100007F:1F90 0100007F:ABCD 01 0:0 0:0 0 0 0 4711 1\n", nil},
		"a line cut off": {head + "   0: 0100007F:1F90 0100007F\n", nil},
		"no address":     {head + "   0: 01007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, l := range parseListeners([]byte(c.table)) {
				got = append(got, l.String())
			}
			require.Equal(t, c.want, got)
		})
	}
}

// This process listens where it was told to, and a process that has ended nowhere.
func TestListening(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	at, err := Listening(os.Getpid())
	require.NoError(t, err)
	require.Contains(t, at, l.Addr().String())
	_, err = Listening(1 << 30)
	require.Error(t, err)
}
