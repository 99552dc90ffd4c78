package main

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

func TestPorts(t *testing.T) {
	t.Parallel()
	free := func(name string) listener { return listener{name, "--" + name, "127.0.0.1:0"} }
	t.Run("are others each time, also while nobody listens at those before", func(t *testing.T) {
		seen := map[int]bool{}
		for range blockPorts {
			chosen, err := choose([]listener{free("api"), free("web")}, nil)
			require.NoError(t, err)
			for _, port := range chosen.ports() {
				require.NotContains(t, seen, port)
				seen[port] = true
			}
		}
	})
	t.Run("are picked when 0 and all differ", func(t *testing.T) {
		t.Parallel()
		chosen, err := choose(listeners(freeOptions("")), nil)
		require.NoError(t, err)
		seen := map[int]bool{}
		for _, port := range chosen.ports() {
			require.NotZero(t, port)
			seen[port] = true
		}
		require.Len(t, seen, len(listeners(freeOptions(""))))
	})
	t.Run("that were picked are none that an outgoing connection may take meanwhile", func(t *testing.T) {
		t.Parallel()
		first := firstOutgoing()
		require.NotZero(t, first)
		chosen, err := choose(listeners(freeOptions("")), nil)
		require.NoError(t, err)
		for name, port := range chosen.ports() {
			require.Less(t, port, first, name)
		}
	})
	t.Run("are looked for elsewhere when there are none below", func(t *testing.T) {
		t.Parallel()
		require.Nil(t, listenBelow(0, loopback), "nobody said where they begin")
		for range 3 { // the two that there are may be taken by others, too
			if l := listenBelow(lowestPort+2, loopback); l != nil {
				t.Cleanup(func() { _ = l.Close() })
			}
		}
		require.Nil(t, listenBelow(lowestPort+2, loopback))
	})
	t.Run("are those of the last start while they are free", func(t *testing.T) {
		t.Parallel()
		first, err := choose([]listener{free("api"), free("web")}, nil)
		require.NoError(t, err)
		again, err := choose([]listener{free("web"), free("api")}, first.ports())
		require.NoError(t, err)
		require.Equal(t, first.ports(), again.ports())
		other, err := choose([]listener{free("api")}, map[string]int{"api": listen(t).Port})
		require.NoError(t, err)
		require.NotZero(t, other["api"].Port)
	})
	t.Run("that are taken are named with the flag that changes them", func(t *testing.T) {
		t.Parallel()
		taken := net.JoinHostPort(loopback, strconv.Itoa(listen(t).Port))
		_, err := choose([]listener{{"api", "--api", taken}}, nil)
		require.Equal(t, fleet.Conflict, fleet.KindOf(err))
		require.ErrorContains(t, err, taken+" is taken")
		require.ErrorContains(t, err, "--api 127.0.0.1:0")
	})
	t.Run("are dialled on the loopback when they listen everywhere", func(t *testing.T) {
		t.Parallel()
		for ip, want := range map[string]string{"0.0.0.0": "127.0.0.1:7", "::": "[::1]:7", "10.1.2.3": "10.1.2.3:7"} {
			require.Equal(t, want, addresses{"api": {IP: net.ParseIP(ip), Port: 7}}.dial("api"))
		}
	})
}
