package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// caller is the TLS of a gRPC client. A server that requires another certificate reports that after the
// client's handshake, when the client writes already. So a failed write returns the server's reason instead of
// its own error.
type caller struct {
	credentials.TransportCredentials
}

// Caller makes the credentials of a gRPC client.
func Caller(conf *tls.Config) credentials.TransportCredentials {
	return caller{credentials.NewTLS(conf)}
}

// Named makes credentials for servers whose certificates are for a name; "" is the address's host.
func Named(conf *tls.Config) func(serverName string) credentials.TransportCredentials {
	return func(serverName string) credentials.TransportCredentials {
		named := conf.Clone()
		named.ServerName = serverName
		return Caller(named)
	}
}

// ClientHandshake does the TLS handshake.
func (c caller) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &explaining{conn}, info, nil
}

// Clone returns an equal value.
func (c caller) Clone() credentials.TransportCredentials {
	return caller{c.TransportCredentials.Clone()}
}

type explaining struct{ net.Conn }

// Write returns the other side's reason if it fails because that side has closed the connection.
func (e *explaining) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		if _, why := e.Read(make([]byte, 1)); why != nil {
			err = errors.Join(why, err)
		}
	}
	return n, err
}
