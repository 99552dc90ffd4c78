package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates for a test. File has its own.
type Authority struct {
	File string

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one that nobody else knows.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.write(a.File, "CERTIFICATE", a.cert.Raw)
	return a
}

// Issue writes a certificate for 127.0.0.1, localhost and what listens at some addresses, good for
// both sides, into files that begin with a path.
func (a *Authority) Issue(path string, addresses ...string) (cert, key string) {
	a.t.Helper()
	hosts := []net.IP{net.IPv4(127, 0, 0, 1)}
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		require.NoError(a.t, err)
		hosts = append(hosts, net.ParseIP(host))
	}
	c, k := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"}, IPAddresses: hosts,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	require.NoError(a.t, err)
	cert, key = path+".pem", path+".key"
	a.write(cert, "CERTIFICATE", c.Raw)
	a.write(key, "PRIVATE KEY", raw)
	return cert, key
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(a.t, err)
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key // its own, of an authority
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(raw)
	require.NoError(a.t, err)
	return cert, key
}

func (a *Authority) write(path, kind string, raw []byte) {
	a.t.Helper()
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}
