package certs

import (
	"crypto/tls"
	"net"
	"regexp"

	"github.com/holdfast-io/holdfast/internal/certs/hint"
	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Temporal makes the configuration of a caller of Temporal. Temporal's certificate must name name; "" is the
// host of its address.
func Temporal(files ClientFiles, name string) (*tls.Config, error) {
	if name != "" && net.ParseIP(name) == nil && !hostName.MatchString(name) {
		return nil, fleet.Errorf(fleet.Invalid, "invalid --temporal-tls-server-name %.100q: want a host name or an IP address", name).At("tls").
			WithHint("give the name as in the certificate, without https:// and without a port")
	}
	c, err := files.client(clientFlags{"--temporal-tls-ca", "--temporal-tls-cert", "--temporal-tls-key"})
	if err != nil {
		return nil, err
	}
	c.ServerName = name
	return c, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

var temporalHints = map[hint.Cause]string{
	hint.Authority:   "give the authority that signed Temporal's certificate: --temporal-tls-ca FILE or HOLDFAST_TEMPORAL_TLS_CA",
	hint.PlainServer: "Temporal does not use TLS there: leave out --temporal-tls, or give the address at which it uses TLS",
	hint.ClientCert:  "Temporal requires a client certificate of an authority that it trusts: give --temporal-tls-cert and --temporal-tls-key",
	hint.TLSServer:   "Temporal does not answer without TLS: if it uses TLS, give --temporal-tls, and --temporal-tls-ca FILE if its authority is not the system's",
	hint.ServerName:  "Temporal's certificate must name the host of --temporal-address: give another address, or its name with --temporal-tls-server-name",
	hint.Expired:     hint.Renew,
}

// temporalKinds tells for which causes a retry may help: a certificate is renewed without a change of settings,
// and a Temporal that is just starting may close plain connections too.
var temporalKinds = map[hint.Cause]fleet.Kind{
	hint.Authority:   fleet.Invalid,
	hint.PlainServer: fleet.Invalid,
	hint.ClientCert:  fleet.Unauthenticated,
	hint.TLSServer:   fleet.Unavailable,
	hint.ServerName:  fleet.Invalid,
	hint.Expired:     fleet.Unavailable,
}

// TemporalError adds the kind and a hint to an error of a call to Temporal if TLS is its cause; other errors
// stay the same.
func TemporalError(address string, err error) error {
	why := hint.Of(err)
	if why == hint.Other {
		return err
	}
	return fleet.Errorf(temporalKinds[why], "reach Temporal at %s: %w", address, err).WithHint(temporalHints[why])
}

// TemporalTLSError is TemporalError for a call over TLS: if the connection closes after the handshake, TLS is
// not the cause.
func TemporalTLSError(address string, err error) error {
	if hint.Of(err) != hint.TLSServer {
		return TemporalError(address, err)
	}
	return fleet.Errorf(fleet.Unavailable, "reach Temporal at %s: %w", address, err).
		WithHint("the connection closed after the TLS handshake: check that Temporal is running behind that address")
}
