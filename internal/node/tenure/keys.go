package tenure

import (
	"context"
	"crypto/ed25519"
	"slices"
	"sync"
)

// acquaintance is what the two nodes of a pair know of each other's keys. With every vote, each names the key
// of the other that it accepts, so a new key is first used when it is known. Methods of a nil acquaintance do
// nothing.
type acquaintance struct {
	known func() ed25519.PublicKey // the peer's newest, from the region

	mu    sync.Mutex
	takes ed25519.PublicKey // this node's newest, as the peer reported
	said  chan struct{}     // closed when takes changes
}

func newAcquaintance(known func() ed25519.PublicKey) *acquaintance {
	return &acquaintance{known: known, said: make(chan struct{})}
}

func (a *acquaintance) knows() []byte {
	if a == nil {
		return nil
	}
	return a.known()
}

func (a *acquaintance) hear(key []byte) {
	if a == nil || len(key) != ed25519.PublicKeySize {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.takes.Equal(ed25519.PublicKey(key)) {
		return
	}
	a.takes = slices.Clone(key)
	close(a.said)
	a.said = make(chan struct{})
}

// await returns when the peer accepts a key.
func (a *acquaintance) await(ctx context.Context, key ed25519.PublicKey) error {
	for {
		a.mu.Lock()
		takes, said := a.takes, a.said
		a.mu.Unlock()
		if takes.Equal(key) {
			return nil
		}
		select {
		case <-said:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// PeerTakes returns when the peer accepts this node's votes by a key, at once without a peer.
func (k *Keeper) PeerTakes(ctx context.Context, key ed25519.PublicKey) error {
	site := k.site.Load()
	if site == nil {
		return nil
	}
	if at := site.seat(k.opt.Node); !at.votes || at.peer.newest() == nil || at.peer.PeerAddress == "" {
		return nil
	}
	return k.keys.await(ctx, key)
}

// peerKey is the newest key of the peer that this node accepts.
func (k *Keeper) peerKey() ed25519.PublicKey {
	if site := k.site.Load(); site != nil {
		return site.seat(k.opt.Node).peer.newest()
	}
	return nil
}
