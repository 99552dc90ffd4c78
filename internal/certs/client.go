package certs

import (
	"crypto/tls"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ClientFiles are a caller's files: the authorities that it trusts instead of the system's, and its client
// certificate.
type ClientFiles struct {
	CA string
	Pair
}

// clientFlags are the flags of a caller's files.
type clientFlags struct{ ca, cert, key string }

// Client makes the configuration of a caller. It reads the client certificate again for each connection.
func Client(files ClientFiles) (*tls.Config, error) {
	return files.client(clientFlags{"--ca", "--client-cert", "--client-key"})
}

func (files ClientFiles) client(named clientFlags) (*tls.Config, error) {
	if err := files.check(named.cert, named.key); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		var err error
		if c.RootCAs, err = pool(named.ca, files.CA); err != nil {
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

// Secure tells whether an address uses TLS.
func Secure(address string) bool { return strings.HasPrefix(strings.ToLower(address), "https://") }

// For is Client for a region's address: nil for plain HTTP, which allows no files.
func For(address string, files ClientFiles) (*tls.Config, error) {
	if Secure(address) {
		return Client(files)
	}
	if files != (ClientFiles{}) {
		return nil, fleet.Errorf(fleet.Invalid, "address %.200q must start with https:// if certificates are given", address).At("tls").
			WithHint("give the address with https://, or leave out --ca, --client-cert and --client-key")
	}
	return nil, nil //nolint:nilnil // nil means a plain connection
}
