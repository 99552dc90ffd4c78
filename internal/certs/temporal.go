package certs

import (
	"crypto/tls"
	"net"
	"regexp"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Temporal makes the configuration of a caller of Temporal. name is what Temporal's certificate
// has to name, "" the host of its address.
func Temporal(files ClientFiles, name string) (*tls.Config, error) {
	if name != "" && net.ParseIP(name) == nil && !hostName.MatchString(name) {
		return nil, fleet.Errorf(fleet.Invalid, "--temporal-tls-server-name %.100q is neither the name of a host nor an IP address", name).At("tls").
			WithHint("give the name alone, as the certificate has it, without https:// and without a port")
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
	plainServer: "Temporal speaks in the clear there: leave out --temporal-tls, or give the address at which it speaks TLS",
	clientCert:  "Temporal wants a client certificate by an authority that it trusts: give --temporal-tls-cert and --temporal-tls-key",
	tlsServer:   "nobody answers there in the clear: if Temporal speaks TLS, give --temporal-tls, and --temporal-tls-ca FILE if its authority is not the system's",
	serverName:  "Temporal's certificate has to name the host of --temporal-address: give another address, or the name that it has by --temporal-tls-server-name",
	expired:     hintExpired,
}

// temporalKinds says which of them waiting may mend: a certificate is renewed without a setting
// being changed, and who closes a connection in the clear may be a Temporal that only starts.
var temporalKinds = map[cause]fleet.Kind{
	authority:   fleet.Invalid,
	plainServer: fleet.Invalid,
	clientCert:  fleet.Unauthenticated,
	tlsServer:   fleet.Unavailable,
	serverName:  fleet.Invalid,
	expired:     fleet.Unavailable,
}

// TemporalError gives an error of a call to Temporal its kind and what to do, where TLS is its
// cause; any other stays as it is.
func TemporalError(address string, err error) error {
	why := causeOf(err)
	if why == other {
		return err
	}
	return fleet.Errorf(temporalKinds[why], "reach Temporal at %s: %w", address, err).WithHint(temporalHints[why])
}

// TemporalTLSError is TemporalError of a call over TLS: closed once TLS stands, it lacks no TLS.
func TemporalTLSError(address string, err error) error {
	if causeOf(err) != tlsServer {
		return TemporalError(address, err)
	}
	return fleet.Errorf(fleet.Unavailable, "reach Temporal at %s: %w", address, err).
		WithHint("the connection was closed after TLS: is Temporal up behind that address?")
}
