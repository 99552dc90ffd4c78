package provider

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// transport records the TCP connections below a gRPC transport, so that they can be reset.
type transport struct {
	credentials.TransportCredentials
	conns *conns
}

type conns struct {
	mu  sync.Mutex
	all []net.Conn
}

func newTransport(security credentials.TransportCredentials) *transport {
	return &transport{security, &conns{}}
}

// ClientHandshake is called with each connection that was dialled.
func (t *transport) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t.conns.mu.Lock()
	t.conns.all = append(t.conns.all, raw)
	t.conns.mu.Unlock()
	return t.TransportCredentials.ClientHandshake(ctx, authority, raw) //nolint:wrapcheck // gRPC inspects the error
}

// Clone shares the record.
func (t *transport) Clone() credentials.TransportCredentials {
	return &transport{t.TransportCredentials.Clone(), t.conns}
}

// reset drops the connections without waiting for an answer: if only the way back is cut, the region learns of
// it at once, and not after a wait for heartbeats that TCP holds back behind unacknowledged data.
func (t *transport) reset() {
	t.conns.mu.Lock()
	defer t.conns.mu.Unlock()
	for _, c := range t.conns.all {
		if tcp, is := c.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // it may have ended
		}
		_ = c.Close()
	}
}
