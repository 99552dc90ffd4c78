package postgres

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// NewID gives 32 hex digits: those of the time in ms, 12 of them, then random ones, as in a
// UUID of version 7. What is made together then lies together in an index.
func NewID() (string, error) {
	const timed = 6 // bytes
	var b [16]byte
	if _, err := rand.Read(b[timed:]); err != nil {
		return "", err
	}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(b[:timed], ms[8-timed:])
	return hex.EncodeToString(b[:]), nil
}

// HashBytes is a hash as it is stored, nil for one that is none.
func HashBytes(h fleet.Hash) []byte {
	b, err := hex.DecodeString(string(h))
	if err != nil || len(b) == 0 {
		return nil
	}
	return b
}

// HashText is a stored hash in hex.
func HashText(b []byte) fleet.Hash { return fleet.Hash(hex.EncodeToString(b)) }

// HashesBytes are hashes as they are stored.
func HashesBytes(hashes []fleet.Hash) [][]byte {
	out := make([][]byte, len(hashes))
	for i, h := range hashes {
		out[i] = HashBytes(h)
	}
	return out
}
