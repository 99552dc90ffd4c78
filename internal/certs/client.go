package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ClientFiles are a caller's: the authorities that it trusts instead of the system's, and what
// it shows of itself where that is asked for.
type ClientFiles struct {
	CA string
	Pair
}

// Client makes the configuration of a caller. What it shows of itself is read anew for each
// connection.
func Client(files ClientFiles) (*tls.Config, error) {
	if err := files.check("--client-cert", "--client-key"); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		var err error
		if c.RootCAs, err = pool("--ca", files.CA); err != nil {
			return nil, err
		}
	}
	if files.Cert == "" {
		return c, nil
	}
	if _, err := files.load(); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.load() }
	return c, nil
}

// For is Client for a region's address: nil where that is plain HTTP, which files contradict.
func For(address string, files ClientFiles) (*tls.Config, error) {
	if strings.HasPrefix(strings.ToLower(address), "https://") {
		return Client(files)
	}
	if files != (ClientFiles{}) {
		return nil, fleet.Errorf(fleet.Invalid, "certificates were given, and the address %.200q is not https://", address).At("tls").
			WithHint("give the address with https://, or leave out --ca, --client-cert and --client-key")
	}
	return nil, nil //nolint:nilnil // nil is what a plain connection has
}

// what the text of an error says where no type does: of a message by the other side, or of gRPC,
// which keeps only the text.
var told = []struct{ text, hint string }{
	{"certificate signed by unknown authority", hintAuthority},
	{"server gave HTTP response to HTTPS client", hintPlainServer},
	{"first record does not look like a TLS handshake", hintPlainServer},
	{"certificate required", hintClientCert},
	{"bad certificate", hintClientCert},
	{"unknown certificate authority", hintClientCert},
	{"HTTP request to an HTTPS server", hintTLSServer},
	{"error reading server preface", hintTLSServer},
	{"certificate is valid for", hintName},
	{"doesn't contain any IP SANs", hintName},
	{"certificate has expired or is not yet valid", hintExpired},
}

const (
	hintAuthority   = "give the authority that signed the region's certificate: --ca FILE or HOLDFAST_CA"
	hintPlainServer = "that port does not speak TLS: use an http:// address, or start the server with --tls-cert and --tls-key"
	hintClientCert  = "the region wants a client certificate by its --tls-client-ca: give --client-cert and --client-key"
	hintTLSServer   = "that port speaks TLS: use an https:// address, and --ca FILE if its authority is not the system's"
	hintName        = "use an address that the certificate names, or renew it with this one"
	hintExpired     = "renew the certificate, and check the clocks of both machines"
)

// Hint says what to do about an error of a connection, "" when TLS is not its cause.
func Hint(err error) string {
	if err == nil {
		return ""
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &authority):
		return hintAuthority
	case errors.As(err, &name):
		return hintName
	}
	for _, t := range told {
		if strings.Contains(err.Error(), t.text) {
			return t.hint
		}
	}
	return ""
}
