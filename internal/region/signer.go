package region

import (
	"context"
	"crypto/ed25519"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
)

// keyKept is how long the signing key is cached: a stolen key that was replaced is not used for longer.
const keyKept = time.Second

// signer signs commands to nodes.
type signer struct {
	read func(context.Context) (ed25519.PrivateKey, error)
	now  func() time.Time

	mu  sync.Mutex
	key ed25519.PrivateKey
	at  time.Time
}

// Sign returns the region's signature for a command.
func (s *signer) Sign(ctx context.Context, node fleet.NodeName, cmd fleet.Command) (fleet.Signature, error) {
	now := s.now()
	key, err := s.current(ctx, now)
	if err != nil {
		return fleet.Signature{}, err
	}
	return identity.SignCommand(key, node, cmd, now.Add(keyring.CommandLife)), nil
}

func (s *signer) current(ctx context.Context, now time.Time) (ed25519.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil && now.Sub(s.at).Abs() < keyKept {
		return s.key, nil
	}
	key, err := s.read(ctx)
	if err == nil {
		s.key, s.at = key, now
	}
	return key, err
}
