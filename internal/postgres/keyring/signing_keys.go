package keyring

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// CommandLife is how long a signed command may be begun.
const CommandLife = 5 * time.Minute

// Rotate says when a new signing key is used, and how long commands of the old one are good from
// then on. The zero value is for a stolen key.
type Rotate struct{ After, Overlap time.Duration }

// SigningKey is the key that commands are signed by now. The first call makes it.
func (s *Store) SigningKey(ctx context.Context) (ed25519.PrivateKey, error) {
	seed, err := s.Q.SigningKey(ctx)
	if postgres.NoRows(err) {
		public, fresh, made := newSigningKey()
		if made != nil {
			return nil, made
		}
		if err := s.Q.FirstSigningKey(ctx, db.FirstSigningKeyParams{Seed: fresh, Public: public}); err != nil {
			return nil, err
		}
		seed, err = s.Q.SigningKey(ctx)
	}
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func newSigningKey() (public, seed []byte, err error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate signing key: %w", err)
	}
	return public, private.Seed(), nil
}

// RotateSigningKey gives a region its next signing key, and says when that is used. While one
// waits for its time, another is refused as conflict, unless the old ones are stolen.
func (s *Store) RotateSigningKey(ctx context.Context, r Rotate) (time.Time, error) {
	public, seed, err := newSigningKey()
	if err != nil {
		return time.Time{}, err
	}
	var at time.Time
	err = s.Tx(ctx, func(q *db.Queries) error {
		if err := q.ForgetSigningKeys(ctx); err != nil {
			return err
		}
		keys, err := q.LockSigningKeys(ctx)
		if err != nil {
			return err
		}
		next := int64(1)
		if len(keys) > 0 {
			next = keys[0].Number + 1
			if keys[0].Waiting && r != (Rotate{}) {
				return fleet.Errorf(fleet.Conflict, "the next signing key is not in use yet").
					WithHint("wait until it is, or void the earlier keys with --stolen")
			}
		}
		p := db.NextSigningKeyParams{Number: next, Seed: seed, Public: public, Seconds: r.After.Seconds()}
		if at, err = q.NextSigningKey(ctx, p); err != nil {
			return err
		}
		return q.RetireSigningKeys(ctx, db.RetireSigningKeysParams{Number: next, Seconds: (r.After + r.Overlap).Seconds()})
	})
	return at, err
}
