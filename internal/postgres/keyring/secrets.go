package keyring

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Secret gives the region's secret of a name. The first server that asks makes it.
func (s *Store) Secret(ctx context.Context, name string, bytes int) ([]byte, error) {
	fresh := make([]byte, bytes)
	if _, err := rand.Read(fresh); err != nil {
		return nil, fmt.Errorf("read randomness: %w", err)
	}
	if err := s.Q.ProposeSecret(ctx, db.ProposeSecretParams{Name: name, Secret: fresh}); err != nil {
		return nil, err
	}
	secret, err := s.Q.GetSecret(ctx, name)
	return secret, err
}
