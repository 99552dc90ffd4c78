package certs

import (
	"crypto/tls"
	"strings"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// ClientFiles are a caller's: the authorities that it trusts instead of the system's, and what
// it shows of itself where that is asked for.
type ClientFiles struct {
	CA string
	Pair
}

// clientFlags are what a caller's files are named where they are given.
type clientFlags struct{ ca, cert, key string }

// Client makes the configuration of a caller. What it shows of itself is read anew for each
// connection.
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

// Secure says whether an address is one of TLS.
func Secure(address string) bool { return strings.HasPrefix(strings.ToLower(address), "https://") }

// For is Client for a region's address: nil where that is plain HTTP, which files contradict.
func For(address string, files ClientFiles) (*tls.Config, error) {
	if Secure(address) {
		return Client(files)
	}
	if files != (ClientFiles{}) {
		return nil, fleet.Errorf(fleet.Invalid, "certificates were given, and the address %.200q is not https://", address).At("tls").
			WithHint("give the address with https://, or leave out --ca, --client-cert and --client-key")
	}
	return nil, nil //nolint:nilnil // nil is what a plain connection has
}
