package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// The steps of a rotation, for tests that kill the node there.
const (
	failRotateSaved     = "rotate.saved"     // both keys are in the file, the region knows the old one
	failRotateOffered   = "rotate.offered"   // the region knows both
	failRotateUsed      = "rotate.used"      // the region knows only the new one
	failRotateConfirmed = "rotate.confirmed" // so does the file
)

// KeyOffer has a node's new public keys, in base64.
type KeyOffer struct {
	SigningKey string `json:"signingKey"`
	SealingKey string `json:"sealingKey"`
}

// OfferKey sends the public halves of a new key in a request that is signed by another key, or by itself.
// Confirmed means that the region knows no other key any more.
func (c *Client) OfferKey(ctx context.Context, offered, signer identity.Key) (confirmed bool, err error) {
	sealing, err := offered.SealingPublic()
	if err != nil {
		return false, err
	}
	var out struct {
		Confirmed bool `json:"confirmed"`
	}
	err = c.signedBy(ctx, signer, "key", KeyOffer{
		SigningKey: identity.EncodePublic(offered.SigningPublic()), SealingKey: identity.EncodePublic(sealing[:]),
	}, &out)
	return out.Confirmed, err
}

const (
	// resumeLimit is how long an unfinished rotation may delay the node's start.
	resumeLimit = 5 * time.Second
	// refusedRotation is the pause after a refused rotation.
	refusedRotation = time.Minute
)

// resumeRotation finishes a rotation that a kill interrupted, before the node uses a key that may be void. It
// waits only a limited time for the region.
func (a *Agent) resumeRotation(ctx context.Context) error {
	if !a.saved().Changing() {
		close(a.enrolled)
		return nil
	}
	first, cancel := context.WithTimeout(ctx, resumeLimit)
	defer cancel()
	err := a.rotate(first)
	close(a.enrolled)
	if err != nil {
		return a.rotate(ctx)
	}
	return nil
}

// rotateIfAsked changes the key when the region requested it, or an earlier change was refused.
func (a *Agent) rotateIfAsked(ctx context.Context) error {
	if !a.rotateAsked.Load() && !a.saved().Changing() || a.opt.Now().Before(a.rotateResume) {
		return nil
	}
	return a.rotate(ctx)
}

// rotate finishes the change of the key from any step. After a refusal the node keeps its key.
func (a *Agent) rotate(ctx context.Context) error {
	a.rotateAsked.Store(false)
	err := a.change(ctx)
	if fleet.KindOf(err) == fleet.Unauthenticated { // the offer was withdrawn before its use
		err = a.change(ctx)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case fleet.KindOf(err) == fleet.Denied: // the region knows the old key, and was never offered another
		return a.save(a.saved().Unchanged())
	}
	a.signBy(a.saved())
	a.rotateResume = a.opt.Now().Add(refusedRotation)
	a.opt.Log.Error("change the key of this node", "err", err, "hint", rotateHint(err))
	return nil
}

func rotateHint(err error) string {
	switch fleet.KindOf(err) { //nolint:exhaustive // the others have no hint
	case fleet.Conflict:
		return "the region has an offer of another new key: if this node was restored from a backup, run holdfast node rotate-key again, else revoke the node"
	case fleet.Unauthenticated:
		return "the region knows neither key of this node: remove node.key and enrol it with a join token"
	}
	return "the node retries when the region requests it again"
}

// change is safe to repeat after a kill at any point: each step is either not done yet, or gets the same answer
// as the first time.
func (a *Agent) change(ctx context.Context) error {
	resumed := a.saved().Changing()
	key, err := a.saved().Renewed()
	if err != nil {
		return err
	}
	if err := a.save(key); err != nil {
		return err
	}
	a.reached(failRotateSaved)
	if resumed { // the region may already have seen it used
		confirmed, err := a.offer(ctx, key.Next(), key.Next())
		if err == nil && confirmed {
			return a.confirm(key)
		}
		if err != nil && fleet.KindOf(err) != fleet.Unauthenticated {
			return err
		}
	}
	if _, err := a.offer(ctx, key.Next(), key); err != nil {
		return err
	}
	a.reached(failRotateOffered)
	if err := a.introduce(ctx, key.Next()); err != nil {
		return err
	}
	a.signBy(key.Next()) // calls under way with the old key are sent again with the new one
	confirmed, err := a.offer(ctx, key.Next(), key.Next())
	if err == nil && !confirmed {
		err = fleet.Errorf(fleet.Communication, "the region did not confirm the new key")
	}
	if err != nil {
		return err
	}
	return a.confirm(key)
}

// introduceTTLs is how long an unreachable peer may delay a change of the key. A reachable peer learns of the
// key when the region next checks its connections, and confirms it with the next vote: a heartbeat each. A TTL
// is three heartbeats, so on a busy machine one TTL is not enough.
const introduceTTLs = 3

// introduce waits until the peer knows a key from the region, so that it refuses no vote by it.
func (a *Agent) introduce(ctx context.Context, key identity.Key) error {
	if a.Leases == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, introduceTTLs*a.opt.Lease.TTL)
	defer cancel()
	if err := a.Leases.PeerTakes(limited, key.SigningPublic()); err != nil && ctx.Err() == nil {
		a.opt.Log.Warn("the peer does not accept the new key yet; it refuses votes until it has the key from the region")
	}
	return ctx.Err()
}

func (a *Agent) offer(ctx context.Context, offered, signer identity.Key) (confirmed bool, err error) {
	err = a.insist(ctx, "change the key", func() (err error) {
		confirmed, err = a.client.OfferKey(ctx, offered, signer)
		return err
	})
	return confirmed, err
}

func (a *Agent) confirm(key identity.Key) error {
	a.reached(failRotateUsed)
	if err := a.save(key.Confirmed()); err != nil {
		return err
	}
	a.reached(failRotateConfirmed)
	a.opt.Log.Info("the key of this node was changed")
	return nil
}

// saved is the key in its file.
func (a *Agent) saved() identity.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.key
}

// save writes a key to its file; the node signs by it from then on. learn changes the region's keys.
func (a *Agent) save(key identity.Key) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key = key.CommandedAs(a.key)
	if err := key.Save(filepath.Join(a.opt.Dir, "node.key")); err != nil {
		return err
	}
	a.key, a.signing = key, key
	return nil
}

// learn stores the public keys by which the region signs commands.
func (a *Agent) learn(keys [][]byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := a.key.Commanded(keys)
	if len(key.CommandKeys()) == 0 || key.SameCommands(a.key) {
		return nil
	}
	if err := key.Save(filepath.Join(a.opt.Dir, "node.key")); err != nil {
		return err
	}
	a.key = key
	a.opt.Log.Info("stored the region's keys for commands", "keys", len(keys))
	return nil
}

func (a *Agent) signBy(key identity.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.signing = key
}

func (a *Agent) reached(at string) {
	if a.opt.Failpoint != nil {
		a.opt.Failpoint(at)
	}
}
