package certs

import (
	"crypto/x509"
	"errors"
	"strings"
)

// cause is why a TLS connection failed.
type cause int

const (
	other cause = iota // TLS is not the cause
	authority
	plainServer
	clientCert
	tlsServer
	serverName
	expired
)

// told identifies errors without a type: alerts of the other side, or errors of gRPC, which keeps only the text.
var told = []struct {
	text  string
	cause cause
}{
	{"certificate signed by unknown authority", authority},
	{"server gave HTTP response to HTTPS client", plainServer},
	{"first record does not look like a TLS handshake", plainServer},
	{"certificate required", clientCert},
	{"bad certificate", clientCert},
	{"unknown certificate authority", clientCert},
	{"unknown certificate", clientCert},
	{"unsupported certificate", clientCert},
	{"revoked certificate", clientCert},
	{"HTTP request to an HTTPS server", tlsServer},
	{"error reading server preface", tlsServer},
	{"certificate is valid for", serverName},
	{"certificate is not valid for any names", serverName},
	{"doesn't contain any IP SANs", serverName},
	{"certificate has expired or is not yet valid", expired},
	{"expired certificate", expired}, // the caller's
}

func causeOf(err error) cause {
	if err == nil {
		return other
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return authority
	case errors.As(err, &name):
		return serverName
	}
	for _, t := range told {
		if strings.Contains(err.Error(), t.text) {
			return t.cause
		}
	}
	return other
}

const hintExpired = "renew the certificate, and check the clocks of both machines"

var regionHints = map[cause]string{
	authority:   "give the authority that signed the region's certificate: --ca FILE or HOLDFAST_CA",
	plainServer: "that port does not use TLS: use an http:// address, or start the server with --tls-cert and --tls-key",
	clientCert:  "the region requires a client certificate (--tls-client-ca): give --client-cert and --client-key",
	tlsServer:   "that port uses TLS: use an https:// address, and --ca FILE if its authority is not the system's",
	serverName:  "use an address that the certificate names, or renew it with this one",
	expired:     hintExpired,
}

var peerHints = map[cause]string{
	authority:   "give this node the authority that signed the peer's certificate: --ca FILE or HOLDFAST_CA",
	plainServer: "the peer does not use TLS: start it with --tls-cert and --tls-key as well",
	clientCert:  "the peer requires a client certificate (--tls-client-ca): start this node with --client-cert and --client-key",
	tlsServer:   "the peer does not answer without TLS: if it uses TLS, start this node with --tls-cert, --tls-key and --ca FILE as well",
	serverName:  "the peer's certificate must name the host of its --peer address: renew it with that host, or change --peer",
	expired:     hintExpired,
}

var executorHints = map[cause]string{
	authority:   "start the region's servers with --ca FILE of the authority that signed the executor's certificate",
	plainServer: "the executor does not use TLS: give it its certificate, or register it without TLS",
	clientCert:  "the executor requires a client certificate: start the region's servers with --client-cert and --client-key",
	tlsServer:   "if the executor uses TLS, its provider must register it with TLS",
	serverName:  "the executor's certificate must name the host of its address, or the server name that its provider registers",
	expired:     hintExpired,
}

// Hint is the advice for an error of a connection to the region, "" if TLS is not its cause.
func Hint(err error) string { return regionHints[causeOf(err)] }

// PeerHint is Hint for a node's connection to its peer.
func PeerHint(err error) string { return peerHints[causeOf(err)] }

// ExecutorHint is Hint for the region's connection to a provider's executor.
func ExecutorHint(err error) string { return executorHints[causeOf(err)] }
