package tasks

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/holdfast-io/holdfast/internal/fleet"
)

// SecretBytes is the length of the region's secret.
const SecretBytes = 32

const (
	tokenVersion = 1
	tokenHead    = 1 + sha256.Size
	tokenPurpose = "holdfast task token 1"
)

// wrap binds a task token to the node that is given the task.
func (s *Server) wrap(node fleet.NodeName, token []byte) []byte {
	out := make([]byte, 0, tokenHead+len(token))
	out = append(out, tokenVersion)
	out = append(out, s.mac(node, token)...)
	return append(out, token...)
}

// unwrap returns the task's token, but only for that node.
func (s *Server) unwrap(node fleet.NodeName, wrapped []byte) ([]byte, bool) {
	if len(wrapped) <= tokenHead || wrapped[0] != tokenVersion {
		return nil, false
	}
	token := wrapped[tokenHead:]
	return token, hmac.Equal(wrapped[1:tokenHead], s.mac(node, token))
}

// mac is over purpose, node and token; a name has no NUL, so the three cannot run together.
func (s *Server) mac(node fleet.NodeName, token []byte) []byte {
	h := hmac.New(sha256.New, s.opt.Secret)
	h.Write([]byte(tokenPurpose + "\x00" + string(node) + "\x00"))
	h.Write(token)
	return h.Sum(nil)
}
