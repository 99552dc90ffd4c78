package peers

import (
	"context"
	"net"
	"sync"
)

// dialer connects to a peer.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// connections are those of one client, so that they can be cut.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

// connection is one of them.
type connection struct {
	net.Conn
	of *connections
}

// dial keeps what a dialer connects.
func (c *connections) dial(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := &connection{raw, c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[conn] = true
		return conn, nil
	}
}

// Close forgets the connection.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// cut closes all connections, which ends the calls on them.
func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Conn.Close() // the call on it ends either way
		delete(c.open, conn)
	}
}
