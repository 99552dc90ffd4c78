// Package hint says why a TLS connection failed, and what to do about it.
package hint

import (
	"crypto/x509"
	"errors"
	"strings"
)

// Cause is why a TLS connection failed.
type Cause int

// The causes.
const (
	Other Cause = iota // TLS is not the cause
	Authority
	PlainServer
	ClientCert
	TLSServer
	ServerName
	Expired
)

// told identifies errors without a type: alerts of the other side, or errors of gRPC, which keeps only the text.
var told = []struct {
	text  string
	cause Cause
}{
	{"certificate signed by unknown authority", Authority},
	{"server gave HTTP response to HTTPS client", PlainServer},
	{"first record does not look like a TLS handshake", PlainServer},
	{"certificate required", ClientCert},
	{"bad certificate", ClientCert},
	{"unknown certificate authority", ClientCert},
	{"unknown certificate", ClientCert},
	{"unsupported certificate", ClientCert},
	{"revoked certificate", ClientCert},
	{"HTTP request to an HTTPS server", TLSServer},
	{"error reading server preface", TLSServer},
	{"certificate is valid for", ServerName},
	{"certificate is not valid for any names", ServerName},
	{"doesn't contain any IP SANs", ServerName},
	{"certificate has expired or is not yet valid", Expired},
	{"expired certificate", Expired}, // the caller's
}

// Of is the cause of an error.
func Of(err error) Cause {
	if err == nil {
		return Other
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		return Authority
	case errors.As(err, &name):
		return ServerName
	}
	for _, t := range told {
		if strings.Contains(err.Error(), t.text) {
			return t.cause
		}
	}
	return Other
}

// Renew is the advice for an expired certificate.
const Renew = "renew the certificate, and check the clocks of both machines"

var regionHints = map[Cause]string{
	Authority:   "give the authority that signed the region's certificate: --ca FILE or HOLDFAST_CA",
	PlainServer: "that port does not use TLS: use an http:// address, or start the server with --tls-cert and --tls-key",
	ClientCert:  "the region requires a client certificate (--tls-client-ca): give --client-cert and --client-key",
	TLSServer:   "that port uses TLS: use an https:// address, and --ca FILE if its authority is not the system's",
	ServerName:  "use an address that the certificate names, or renew it with this one",
	Expired:     Renew,
}

var peerHints = map[Cause]string{
	Authority:   "give this node the authority that signed the peer's certificate: --ca FILE or HOLDFAST_CA",
	PlainServer: "the peer does not use TLS: start it with --tls-cert and --tls-key as well",
	ClientCert:  "the peer requires a client certificate (--tls-client-ca): start this node with --client-cert and --client-key",
	TLSServer:   "the peer does not answer without TLS: if it uses TLS, start this node with --tls-cert, --tls-key and --ca FILE as well",
	ServerName:  "the peer's certificate must name the host of its --peer address: renew it with that host, or change --peer",
	Expired:     Renew,
}

var executorHints = map[Cause]string{
	Authority:   "start the region's servers with --ca FILE of the authority that signed the executor's certificate",
	PlainServer: "the executor does not use TLS: give it its certificate, or register it without TLS",
	ClientCert:  "the executor requires a client certificate: start the region's servers with --client-cert and --client-key",
	TLSServer:   "if the executor uses TLS, its provider must register it with TLS",
	ServerName:  "the executor's certificate must name the host of its address, or the server name that its provider registers",
	Expired:     Renew,
}

// Region is the advice for an error of a connection to the region, "" if TLS is not its cause.
func Region(err error) string { return regionHints[Of(err)] }

// Peer is Region for a node's connection to its peer.
func Peer(err error) string { return peerHints[Of(err)] }

// Executor is Region for the region's connection to a provider's executor.
func Executor(err error) string { return executorHints[Of(err)] }
