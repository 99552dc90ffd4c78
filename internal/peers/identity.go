package peers

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"math/big"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// SeedSize is the length of the secret that a region's key is made from.
const SeedSize = ed25519.SeedSize

// Identity is a region's name and key, with the certificate that carries the key.
type Identity struct {
	Name fleet.RegionName
	Key  ed25519.PrivateKey
	cert tls.Certificate
}

// NewIdentity makes the identity of a region from its secret.
func NewIdentity(name fleet.RegionName, seed []byte) (Identity, error) {
	if len(seed) != SeedSize {
		return Identity{}, fleet.Errorf(fleet.Internal, "the region's key has %d bytes, want %d", len(seed), SeedSize)
	}
	key := ed25519.NewKeyFromSeed(seed)
	// No one reads the dates, but a certificate has to have some.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: string(name)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return Identity{}, fleet.Errorf(fleet.Internal, "make the region's certificate: %w", err)
	}
	return Identity{Name: name, Key: key, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// Public is the key by which peers know the region.
func (id Identity) Public() ed25519.PublicKey { return id.Key.Public().(ed25519.PublicKey) }

// fingerprint names a key in logs and refusals.
func fingerprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// serverTLS accepts every key, so that a region with an invitation can join; ServeHTTP refuses the unknown ones.
func (id Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.cert}, ClientAuth: tls.RequireAnyClientCert,
		NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := keyOf(&state)
			return err
		},
	}
}

// clientTLS pins the key of the other side.
func (id Identity) clientTLS(pin ed25519.PublicKey) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{id.cert}, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection pins the key instead: regions have no authority and no common clock
		VerifyConnection: func(state tls.ConnectionState) error {
			key, err := keyOf(&state)
			if err == nil && !key.Equal(pin) {
				err = fleet.Errorf(fleet.Denied, "the other side has key %s, not %s", fingerprint(key), fingerprint(pin))
			}
			return err
		},
	}
}

// keyOf is the key that the other side of a connection has proven to hold.
func keyOf(state *tls.ConnectionState) (ed25519.PublicKey, error) {
	if state != nil && len(state.PeerCertificates) > 0 {
		if key, is := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey); is {
			return key, nil
		}
	}
	return nil, fleet.Errorf(fleet.Unauthenticated, "the other side shows no Ed25519 key")
}
