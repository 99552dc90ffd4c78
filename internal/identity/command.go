package identity

import (
	"crypto/ed25519"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// commandVersion begins all that is signed, so that no signature of another kind or version fits.
const commandVersion = "holdfast-command/1"

// SignCommand gives the region's word for what a node is asked, until a time.
func SignCommand(region ed25519.PrivateKey, node fleet.NodeName, cmd fleet.Command, expires time.Time) fleet.Signature {
	s := fleet.Signature{Node: node, Expires: expires.UTC()}
	s.Value = ed25519.Sign(region, commandBytes(cmd, s))
	return s
}

// VerifyCommand says whether one of the region's keys signed just this.
func VerifyCommand(region []ed25519.PublicKey, cmd fleet.Command, s fleet.Signature) bool {
	said := commandBytes(cmd, s)
	for _, key := range region {
		if ed25519.Verify(key, said, s.Value) {
			return true
		}
	}
	return false
}

// commandBytes are what is signed: each term after its length, so that no two commands read alike.
func commandBytes(cmd fleet.Command, s fleet.Signature) []byte {
	head := []string{commandVersion, string(s.Node), s.Expires.UTC().Format(time.RFC3339Nano)}
	var out []byte
	for _, terms := range [][]string{head, cmd.Terms()} {
		for _, t := range terms {
			out = strconv.AppendInt(out, int64(len(t)), 10)
			out = append(append(append(out, ':'), t...), '\n')
		}
	}
	return out
}
