package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
)

// What a rotation has done, for tests that kill the node there.
const (
	failRotateSaved     = "rotate.saved"     // both keys are in the file, the region knows the old one
	failRotateOffered   = "rotate.offered"   // the region knows both
	failRotateUsed      = "rotate.used"      // the region knows the new one only
	failRotateConfirmed = "rotate.confirmed" // so does the file
)

// KeyOffer are a node's new public halves, in base64.
type KeyOffer struct {
	SigningKey string `json:"signingKey"`
	SealingKey string `json:"sealingKey"`
}

// OfferKey sends the public halves of a new key in a request that is signed by another, or by
// itself. Confirmed says that the region knows no other any more.
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
	// resumeLimit is how long a change that was left half way may hold up the node's start.
	resumeLimit = 5 * time.Second
	// refusedRotation is the pause after a change was refused.
	refusedRotation = time.Minute
)

// resumeRotation ends a change that a kill left half way, before the node speaks by a key that
// may be void. What needs no region waits only a little for it.
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

// rotateIfAsked changes the key when the region asked for it, or a change was refused before.
func (a *Agent) rotateIfAsked(ctx context.Context) error {
	if !a.rotateAsked.Load() && !a.saved().Changing() || a.opt.Now().Before(a.rotateResume) {
		return nil
	}
	return a.rotate(ctx)
}

// rotate brings the change of the key to its end, from wherever it was left. After a refusal
// the node goes on by the key that it has.
func (a *Agent) rotate(ctx context.Context) error {
	a.rotateAsked.Store(false)
	err := a.change(ctx)
	if fleet.KindOf(err) == fleet.Unauthenticated { // the offer was taken back before its use
		err = a.change(ctx)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case fleet.KindOf(err) == fleet.Denied: // by who knows the old key, and was never offered another
		return a.save(a.saved().Unchanged())
	}
	a.signBy(a.saved())
	a.rotateResume = a.opt.Now().Add(refusedRotation)
	a.opt.Log.Error("the key of this node was not changed", "err", err, "hint", rotateHint(err))
	return nil
}

func rotateHint(err error) string {
	switch fleet.KindOf(err) { //nolint:exhaustive // the others have no advice of their own
	case fleet.Conflict:
		return "the region was offered another new key: if this node was set back, run holdfast node rotate-key again, else revoke it"
	case fleet.Unauthenticated:
		return "the region knows neither key of this node: remove node.key and enrol it with a join token"
	}
	return "it is tried again when the region asks"
}

// change is safe to repeat after a kill at any point: each step is either not done yet, or
// answered as the first time.
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
	if resumed { // the region may have seen it used already
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
	a.signBy(key.Next()) // calls that are under way by the old key are sent again by the new one
	confirmed, err := a.offer(ctx, key.Next(), key.Next())
	if err == nil && !confirmed {
		err = fleet.Errorf(fleet.Communication, "the region did not confirm the new key")
	}
	if err != nil {
		return err
	}
	return a.confirm(key)
}

// introduceTTLs is how long a peer that is away may hold a change of the key up. One that is there
// hears of it with the region's next look at its connections, and says so with the next vote: a
// heartbeat each, of which three make a TTL, so on a busy machine one TTL is not enough.
const introduceTTLs = 3

// introduce waits until the peer has heard of a key from the region, so that no vote by it is
// refused.
func (a *Agent) introduce(ctx context.Context, key identity.Key) error {
	if a.Leases == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, introduceTTLs*a.opt.Lease.TTL)
	defer cancel()
	if err := a.Leases.PeerTakes(limited, key.SigningPublic()); err != nil && ctx.Err() == nil {
		a.opt.Log.Warn("the peer does not take the new key yet: it refuses votes until the region has told it")
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

// saved is the key as it is in its file.
func (a *Agent) saved() identity.Key {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.key
}

// save puts a key in its file; the node signs by it from then on. What the region signs by is
// learn's to change.
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

// learn keeps the public keys by which the region says that it signs commands.
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
	a.opt.Log.Info("learnt by which keys the region signs commands", "keys", len(keys))
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
