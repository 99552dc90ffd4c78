package region

import (
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// tokens makes fetch tokens of a configured length.
type tokens struct{ bytes int }

// New makes a random token and the hash that the region stores.
func (t tokens) New() (string, []byte, error) {
	token, hash, err := identity.NewToken(t.bytes)
	return token, hash[:], err
}

// Seal encrypts a token to a node's X25519 key, so that only that node can read it (N104).
func (t tokens) Seal(sealingKey []byte, token string) (string, error) {
	if len(sealingKey) != 32 {
		return "", fleet.Errorf(fleet.Unavailable, "the node has no sealing key")
	}
	return identity.Seal((*[32]byte)(sealingKey), token)
}
