package peers

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	store "github.com/holdfast-io/holdfast/internal/postgres/peers"
)

const secretBytes = 32

// Invite makes a token that lets one region join once. The token carries this region's key, which the new region pins
// before it sends the secret.
func (n *Network) Invite(ctx context.Context, region fleet.RegionName, actor string, life time.Duration) (string, store.Invitation, error) {
	secret, hash, err := identity.NewToken(secretBytes)
	if err != nil {
		return "", store.Invitation{}, err
	}
	in, err := n.opt.Store.Invite(ctx, store.Invitation{Hash: hash[:], Region: region, CreatedBy: actor}, life)
	return base64.RawURLEncoding.EncodeToString(n.opt.Identity.Public()) + "." + secret, in, err
}

// invitation reads a token.
func invitation(token string) (ed25519.PublicKey, string, error) {
	text, secret, _ := strings.Cut(token, ".")
	key, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize || secret == "" {
		return nil, "", fleet.Errorf(fleet.Invalid, "invalid invitation token").At("/token").
			WithHint("give the whole token that holdfast region invite printed on the admitting region")
	}
	return key, secret, nil
}
