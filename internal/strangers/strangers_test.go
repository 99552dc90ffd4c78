package strangers

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greeting is what a connection begins with here: the shortest request that there is.
const greeting = "GET / HTTP/1.0\r\n\r\n"

// listening gives a limited listener, and a way to connect.
func listening(t *testing.T, l *Limit) (accept func() net.Conn, dial func() net.Conn) {
	t.Helper()
	raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	on := l.Listen(raw)
	t.Cleanup(func() { _ = on.Close() })
	accept = func() net.Conn {
		c, err := on.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		began := make([]byte, len(greeting))
		_, err = io.ReadFull(c, began)
		require.NoError(t, err)
		require.Equal(t, greeting, string(began))
		return c
	}
	dial = func() net.Conn {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", raw.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, greeting)
		require.NoError(t, err)
		return c
	}
	return accept, dial
}

// gone waits until the other side of a connection was closed.
func gone(t *testing.T, c net.Conn) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second))) //nolint:forbidigo // a deadline of the socket
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	require.False(t, errors.Is(err, context.DeadlineExceeded) || isTimeout(err), "it is still open: %v", err)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// X21
func TestLimit(t *testing.T) {
	t.Parallel()
	t.Run("the one that came first goes when there are too many", func(t *testing.T) {
		t.Parallel()
		l := NewLimit(2, time.Hour)
		accept, dial := listening(t, l)
		first, second, third := dial(), net.Conn(nil), net.Conn(nil)
		accept()
		second = dial()
		accept()
		third = dial()
		last := accept()
		gone(t, first)
		go func() { _, _ = last.Write([]byte("x")) }()
		_, err := io.ReadFull(third, make([]byte, 1))
		require.NoError(t, err, "the newest stays")
		_ = second.Close()
		here, expired, evicted := l.Counts()
		require.Equal(t, []int64{2, 0, 1}, []int64{int64(here), expired, evicted})
	})
	t.Run("who is admitted takes no place and stays", func(t *testing.T) {
		t.Parallel()
		l := NewLimit(1, 50*time.Millisecond)
		accept, dial := listening(t, l)
		known := dial()
		server := accept()
		s := At(server.RemoteAddr())
		require.False(t, s.Known())
		s.Admit()
		require.True(t, Of(With(t.Context(), server)).Known())
		late := dial()
		accept()
		gone(t, late)
		go func() { _, _ = server.Write([]byte("x")) }()
		_, err := io.ReadFull(known, make([]byte, 1))
		require.NoError(t, err)
		here, expired, evicted := l.Counts()
		require.Equal(t, []int64{0, 1, 0}, []int64{int64(here), expired, evicted})
		s.Doubt()
		require.False(t, s.Known())
	})
	t.Run("one that has sent less than any request is not handed on, and takes its place like others", func(t *testing.T) {
		t.Parallel()
		l := NewLimit(1, time.Hour)
		raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		on := l.Listen(raw)
		defer func() { _ = on.Close() }()
		short, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", raw.Addr().String())
		require.NoError(t, err)
		defer func() { _ = short.Close() }()
		_, err = io.WriteString(short, greeting[:firstBytes-1])
		require.NoError(t, err)
		whole, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", raw.Addr().String())
		require.NoError(t, err)
		defer func() { _ = whole.Close() }()
		_, err = io.WriteString(whole, greeting)
		require.NoError(t, err)
		came, err := on.Accept()
		require.NoError(t, err)
		require.Equal(t, whole.LocalAddr().String(), came.RemoteAddr().String())
		gone(t, short)
		here, _, evicted := l.Counts()
		require.Equal(t, []int64{1, 1}, []int64{int64(here), evicted})
	})
	t.Run("a listener that closes waits for no stranger", func(t *testing.T) {
		t.Parallel()
		l := NewLimit(8, time.Hour)
		raw, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		on := l.Listen(raw)
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", raw.Addr().String())
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		_, err = io.WriteString(c, greeting)
		require.NoError(t, err)
		_, err = on.Accept()
		require.NoError(t, err)
		require.NoError(t, on.Close())
		gone(t, c)
		cut := false
		l.Enter(func() { cut = true })
		require.True(t, cut, "who comes later is cut at once")
	})
	t.Run("nobody is limited without a limit", func(t *testing.T) {
		t.Parallel()
		var s *Stranger
		s.Admit()
		s.Doubt()
		require.True(t, s.Known())
		require.False(t, s.Leave())
		require.Nil(t, Of(t.Context()))
		require.Nil(t, At(&net.TCPAddr{}))
	})
}
