package certs

import (
	"crypto/tls"
	"net"
	"regexp"

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

var temporalHints = map[cause]string{
	authority:   "give the authority that signed Temporal's certificate: --temporal-tls-ca FILE or HOLDFAST_TEMPORAL_TLS_CA",
	plainServer: "Temporal does not use TLS there: leave out --temporal-tls, or give the address at which it uses TLS",
	clientCert:  "Temporal requires a client certificate of an authority that it trusts: give --temporal-tls-cert and --temporal-tls-key",
	tlsServer:   "Temporal does not answer without TLS: if it uses TLS, give --temporal-tls, and --temporal-tls-ca FILE if its authority is not the system's",
	serverName:  "Temporal's certificate must name the host of --temporal-address: give another address, or its name with --temporal-tls-server-name",
	expired:     hintExpired,
}

// temporalKinds tells for which causes a retry may help: a certificate is renewed without a change of settings,
// and a Temporal that is just starting may close plain connections too.
var temporalKinds = map[cause]fleet.Kind{
	authority:   fleet.Invalid,
	plainServer: fleet.Invalid,
	clientCert:  fleet.Unauthenticated,
	tlsServer:   fleet.Unavailable,
	serverName:  fleet.Invalid,
	expired:     fleet.Unavailable,
}

// TemporalError adds the kind and a hint to an error of a call to Temporal if TLS is its cause; other errors
// stay the same.
func TemporalError(address string, err error) error {
	why := causeOf(err)
	if why == other {
		return err
	}
	return fleet.Errorf(temporalKinds[why], "reach Temporal at %s: %w", address, err).WithHint(temporalHints[why])
}

// TemporalTLSError is TemporalError for a call over TLS: if the connection closes after the handshake, TLS is
// not the cause.
func TemporalTLSError(address string, err error) error {
	if causeOf(err) != tlsServer {
		return TemporalError(address, err)
	}
	return fleet.Errorf(fleet.Unavailable, "reach Temporal at %s: %w", address, err).
		WithHint("the connection closed after the TLS handshake: check that Temporal is running behind that address")
}
