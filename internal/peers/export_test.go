package peers

import (
	"crypto/ed25519"
	"crypto/tls"
)

// Client is how this region calls the holder of a key.
func (n *Network) Client(pin ed25519.PublicKey) *tls.Config { return n.opt.Identity.clientTLS(pin) }
