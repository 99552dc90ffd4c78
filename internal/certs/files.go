// Package certs makes the TLS configurations of both sides from files. A server reads its files again when they
// change, so a certificate is renewed without a restart.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// Pair is a certificate with its chain, and its key, both in PEM.
type Pair struct{ Cert, Key string }

func (p Pair) check(certFlag, keyFlag string) error {
	if (p.Cert == "") != (p.Key == "") {
		return fleet.Errorf(fleet.Invalid, "%s and %s must be given together", certFlag, keyFlag).At("tls").WithHint("give both, or neither")
	}
	return nil
}

func (p Pair) load() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "read the certificate %s with the key %s: %w", p.Cert, p.Key, err).At("tls").
			WithHint("give PEM files, with the key of that certificate")
	}
	return &pair, nil
}

// pool reads authorities.
func pool(flag, path string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return nil, fleet.Errorf(fleet.Invalid, "read %s: %w", flag, err).At("tls").WithHint("give a file of certificates in PEM")
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(raw) {
		return nil, fleet.Errorf(fleet.Invalid, "%s has no certificate in %s", flag, path).At("tls").WithHint("give a file of certificates in PEM")
	}
	return all, nil
}
