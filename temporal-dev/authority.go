package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/certs"
	"github.com/holdfast-io/holdfast/internal/durable"
)

const (
	tlsFolder   = "tls"
	tlsOperator = "operator" // the client certificate for people
	tlsLife     = 10 * 365 * 24 * time.Hour
	tlsSkew     = time.Hour
)

// authority signs the certificates of a region on a laptop. It is created once, in the data directory; the
// certificates are new at each start. A nil one is for a region without TLS.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// openAuthority loads the authority of a data directory, or creates it.
func openAuthority(d *dataDir) (*authority, error) {
	a := &authority{dir: d.file(tlsFolder)}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	err := a.load()
	if errors.Is(err, fs.ErrNotExist) {
		err = a.make()
	}
	if err != nil {
		return nil, fmt.Errorf("open the authority in %s: %w", a.dir, err)
	}
	return a, nil
}

func (a *authority) load() error {
	raw, err := os.ReadFile(a.path("ca.key"))
	if err != nil {
		return err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return errors.New("ca.key is not PEM")
	}
	if a.key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return err
	}
	if raw, err = os.ReadFile(a.ca()); err != nil {
		return err
	}
	if block, _ = pem.Decode(raw); block == nil {
		return errors.New("ca.pem is not PEM")
	}
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return err
}

// make writes the key last: without it the next start makes another authority.
func (a *authority) make() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert, err := sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "holdfast on a laptop"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, key, key)
	if err != nil {
		return err
	}
	a.key, a.cert = key, cert
	return a.write("ca", cert, key)
}

// pair makes the certificate of one of the region's processes, or of a client.
func (a *authority) pair(name string, hosts ...string) (certs.Pair, error) {
	if a == nil {
		return certs.Pair{}, nil
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.ParseIP(loopback), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certs.Pair{}, err
	}
	cert, err := sign(template, a.cert, key, a.key)
	if err == nil {
		err = a.write(name, cert, key)
	}
	if err != nil {
		return certs.Pair{}, fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	return certs.Pair{Cert: a.path(name + ".pem"), Key: a.path(name + ".key")}, nil
}

// sign signs a certificate with another one's key; without one it is self-signed.
func sign(template, by *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	const serialBits = 120
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits)); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-tlsSkew), time.Now().Add(tlsLife)
	if by == nil {
		by = template
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(raw)
}

func (a *authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(a.path(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})); err != nil {
		return err
	}
	return durable.WriteFile(a.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) ca() string { return a.path("ca.pem") }

// serves are the files of a process that listens and requires client certificates.
func (a *authority) serves(own certs.Pair) certs.ServerFiles {
	if a == nil {
		return certs.ServerFiles{}
	}
	return certs.ServerFiles{Pair: own, ClientCA: a.ca()}
}

// calls are the files of a client.
func (a *authority) calls(own certs.Pair) certs.ClientFiles {
	if a == nil {
		return certs.ClientFiles{}
	}
	return certs.ClientFiles{CA: a.ca(), Pair: own}
}
