package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"

	"google.golang.org/grpc/credentials"
)

// caller is the TLS of a gRPC client. A server that wants another certificate says so after the
// client's handshake, when that writes already: what a broken connection still has to say is
// told in place of the write that failed.
type caller struct {
	credentials.TransportCredentials
}

// Caller makes a gRPC client's credentials.
func Caller(conf *tls.Config) credentials.TransportCredentials {
	return caller{credentials.NewTLS(conf)}
}

// Named makes those for servers whose certificates are for a name; "" is the address's host.
func Named(conf *tls.Config) func(serverName string) credentials.TransportCredentials {
	return func(serverName string) credentials.TransportCredentials {
		named := conf.Clone()
		named.ServerName = serverName
		return Caller(named)
	}
}

// ClientHandshake is TLS's.
func (c caller) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &explaining{conn}, info, nil
}

// Clone is another of the same.
func (c caller) Clone() credentials.TransportCredentials {
	return caller{c.TransportCredentials.Clone()}
}

type explaining struct{ net.Conn }

// Write gives the other side's reason when it fails because that has gone.
func (e *explaining) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		if _, why := e.Read(make([]byte, 1)); why != nil {
			err = errors.Join(why, err)
		}
	}
	return n, err
}
