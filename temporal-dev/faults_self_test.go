//go:build slow

package main

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/lease"
)

// What a campaign goes by: each way in which runs can contradict the promise is found.
func TestFaultBroken(t *testing.T) {
	t.Parallel()
	ran := func(node string, epoch int64, number int, from, last lease.Instant) life {
		return life{alone: "alone", node: node, epoch: epoch, number: number, from: from, last: last}
	}
	acks := []ack{{number: 2, at: 25}}
	for name, c := range map[string]struct {
		all   []life
		finds int
	}{
		"one after the other":              {[]life{ran("a", 1, 1, 10, 20), ran("b", 2, 2, 30, 40), ran("b", 2, 3, 50, 60)}, 0},
		"acknowledged while another began": {[]life{ran("a", 1, 1, 10, 20), ran("a", 1, 1, 24, 26)}, 0},
		"two at once":                      {[]life{ran("a", 1, 1, 10, 35), ran("b", 2, 2, 30, 40)}, 1},
		"two at once, the short one ended": {[]life{ran("a", 1, 1, 10, 90), ran("b", 2, 2, 30, 40), ran("b", 2, 2, 50, 60)}, 2},
		"the epoch fell":                   {[]life{ran("a", 2, 1, 10, 20), ran("b", 1, 2, 30, 40)}, 1},
		"a revision is missing":            {[]life{ran("a", 1, 2, 10, 20), ran("b", 2, 1, 30, 40)}, 1},
	} {
		require.Len(t, broken(c.all, acks), c.finds, name)
	}
}

// The witness itself, as instances run it: two copies at once are seen by the lock and by their times.
func TestFaultWitness(t *testing.T) {
	t.Parallel()
	realOnly(t)
	program, err := witnessProgram()
	require.NoError(t, err)
	w := lives{dir: folder(t), ended: map[string]life{}}
	config := folder(t) + "/config.json"
	require.NoError(t, os.WriteFile(config, []byte(`{"number":7}`), 0o600))
	begin := func(node string) *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "WITNESS="+w.dir, "HOLDFAST_NODE="+node, "HOLDFAST_EPOCH=3", "HOLDFAST_CONFIG="+config)
		require.NoError(t, cmd.Start())
		return cmd
	}
	counted := func(n int) (all []life) {
		waitFor(t, "runs are seen", func(context.Context) (err error) {
			if all, err = w.all(); err == nil && len(all) < n {
				err = errNotYet
			}
			return err
		})
		return all
	}
	first := begin("a")
	one := counted(1)[0]
	require.Equal(t, []any{"alone", "a", int64(3), 7}, []any{one.alone, one.node, one.epoch, one.number})
	goesOn := func(after lease.Instant) {
		waitFor(t, "it goes on", func(context.Context) error {
			if counted(1)[0].last <= after {
				return errNotYet
			}
			return nil
		})
	}
	goesOn(one.last)
	second := begin("b")
	goesOn(counted(2)[1].from)
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait())
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())
	both := counted(2)
	require.Equal(t, "double", both[1].alone)
	require.Len(t, broken(both, nil), 2)
	third := begin("b")
	require.Equal(t, "alone", counted(3)[2].alone)
	require.NoError(t, third.Process.Kill())
	require.Error(t, third.Wait())
}

// What is cut does not arrive, in that direction only, and nobody is told; healed, it does.
func TestFaultNamespaces(t *testing.T) {
	t.Parallel()
	realOnly(t)
	n, err := newNamespaces(t, pair("plant-1"))
	if err != nil {
		t.Logf("this machine has none, campaigns use relays: %v", err)
		return
	}
	const a, b = "plant-1-a", "plant-1-b"
	ends := map[string]*net.UDPConn{}
	for _, end := range []string{regionEnd, a, b} {
		n.ends[end].inside(t, func() {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(n.address(n.ports[end]))})
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			ends[end] = c
		})
	}
	send := func(from, to, what string) {
		_, err := ends[from].WriteTo([]byte(what), ends[to].LocalAddr())
		require.NoError(t, err, "nobody is told")
	}
	next := func(at string) string {
		buffer := make([]byte, 16)
		require.NoError(t, ends[at].SetReadDeadline(time.Now().Add(testPatience)))
		size, _, err := ends[at].ReadFrom(buffer)
		require.NoError(t, err)
		return string(buffer[:size])
	}
	for _, w := range []way{{a, regionEnd}, {regionEnd, a}, {a, b}, {b, a}} {
		require.NoError(t, n.cut(w))
		send(w.from, w.to, "lost")
		send(w.to, w.from, "back")
		require.Equal(t, "back", next(w.from), "the other direction is open")
		require.NoError(t, n.heal(w))
		send(w.from, w.to, "healed")
		require.Equal(t, "healed", next(w.to), "%v", w)
	}
}

// inside runs something on a thread that is in the namespace; what it opens stays there.
func (s *space) inside(t *testing.T, do func()) {
	t.Helper()
	if s == nil {
		do()
		return
	}
	require.NoError(t, s.within(func() error { do(); return nil }))
}

// The stand-in for namespaces: what is cut waits, in that direction only, and arrives when healed.
func TestFaultRelays(t *testing.T) {
	t.Parallel()
	r := newNodeRelays(t, pair("plant-1"))
	far, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	y := r.begin(t, "a", "b", func() (string, error) { return far.Addr().String(), nil })
	near, err := net.Dial("tcp", y.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close() })
	other, err := far.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	for _, c := range []struct {
		way
		from, to net.Conn
	}{{way{"a", "b"}, near, other}, {way{"b", "a"}, other, near}} {
		require.NoError(t, r.cut(c.way))
		_, err := io.WriteString(c.from, "late")
		require.NoError(t, err)
		_, err = io.WriteString(c.to, "back")
		require.NoError(t, err)
		require.Equal(t, "back", read(t, c.from))
		require.NoError(t, c.to.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = c.to.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, r.heal(c.way))
		require.Equal(t, "late", read(t, c.to))
	}
}

// read gives four bytes.
func read(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, 4)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(testPatience)))
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return string(b)
}
