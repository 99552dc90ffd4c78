package stores

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/reconcile"
)

// BeginPass begins a comparison of a node with a token, and opens it.
func (b *Bench) BeginPass(node fleet.NodeName, id, token string) (fleet.ReconcileBegun, reconcile.Pass) {
	b.T.Helper()
	sum := sha256.Sum256([]byte(token))
	begun, err := b.BeginReconcile(b.Ctx(), fleet.ReconcileStart{
		ID: IDOf(id), Node: node, Reason: "request", Run: Run1, TokenHash: sum[:], TokenLife: time.Minute,
	})
	require.NoError(b.T, err)
	pass, err := b.ReconcileOf(b.Ctx(), sum[:], time.Minute)
	require.NoError(b.T, err)
	return begun, pass
}

// IDOf makes an id from a name.
func IDOf(name string) string { return fmt.Sprintf("%032x", name) }
