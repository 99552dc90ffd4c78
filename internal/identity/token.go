package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"

	"golang.org/x/crypto/nacl/box"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// MinTokenBytes is the least randomness that a token may have.
const MinTokenBytes = 16

// NewToken makes a random URL-safe token and the hash under which it may be stored.
func NewToken(bytes int) (token string, hash [32]byte, err error) {
	if bytes < MinTokenBytes {
		return "", hash, fleet.Errorf(fleet.Invalid, "a token needs at least %d random bytes", MinTokenBytes)
	}
	raw := make([]byte, bytes)
	if _, err := rand.Read(raw); err != nil {
		return "", hash, fmt.Errorf("read randomness: %w", err)
	}
	token = base64.RawURLEncoding.EncodeToString(raw)
	return token, HashToken(token), nil
}

// HashToken is the only form in which a token is stored.
func HashToken(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// TokenMatches compares a presented token with a stored hash in constant time; a stored
// value of another length matches nothing.
func TokenMatches(token string, stored []byte) bool {
	h := HashToken(token)
	return subtle.ConstantTimeCompare(h[:], stored) == 1
}

// Seal encrypts a token so that only the holder of the key's other half reads it.
func Seal(pub *[32]byte, token string) (string, error) {
	sealed, err := box.SealAnonymous(nil, []byte(token), pub, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("seal token: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// Open reads what was sealed to this key. What was sealed to another, or was changed, is
// unauthenticated: the region has an older key of this node on record.
func (k Key) Open(sealed string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return "", fleet.Errorf(fleet.Unauthenticated, "the sealed token is not base64")
	}
	for _, sealing := range k.sealings() {
		pub, err := sealingPublic(sealing)
		if err != nil {
			return "", err
		}
		if token, ok := box.OpenAnonymous(nil, raw, pub, sealing); ok {
			return string(token), nil
		}
	}
	return "", fleet.Errorf(fleet.Unauthenticated, "the token was not sealed to this node's key").
		WithHint("enrol the node again if its key was replaced")
}

// sealings are those that something on its way may be sealed to.
func (k Key) sealings() []*[32]byte {
	all := []*[32]byte{&k.sealing}
	if k.next != nil {
		all = append(all, &k.next.sealing)
	}
	if k.retired != nil {
		all = append(all, k.retired)
	}
	return all
}
