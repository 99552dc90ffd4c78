// Package copies stores what other regions own and share with this one: read-only copies, and how far each peer is
// followed.
package copies

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Store keeps copies.
type Store struct {
	*postgres.Store
	reports *reports
}

// On is the area on a kernel.
func On(s *postgres.Store) *Store { return &Store{s, &reports{last: map[string]report{}}} }

// ClaimStream takes the stream of a peer over for a run; earlier claims count no more.
func (s *Store) ClaimStream(ctx context.Context, peer fleet.RegionName, run string) (fleet.StreamClaim, error) {
	number, err := s.Q.ClaimStream(ctx, db.ClaimStreamParams{Peer: string(peer), Run: run})
	return fleet.StreamClaim{Peer: peer, Number: number}, err
}

// SeeStream notes that the holder of a claim lives, and its lag (negative if unknown), and gives the place from which to
// follow the peer. It is stale for a
// claim that another has replaced.
func (s *Store) SeeStream(ctx context.Context, c fleet.StreamClaim, lag time.Duration) (fleet.StreamPlace, error) {
	r, err := s.Q.SeeStream(ctx, db.SeeStreamParams{Peer: string(c.Peer), Claim: c.Number, LagMs: lag.Milliseconds()})
	if postgres.NoRows(err) {
		return fleet.StreamPlace{}, lostClaim(c)
	}
	return fleet.StreamPlace{Position: r.Position, Began: r.Began, Waits: r.Waits}, err
}

func lostClaim(c fleet.StreamClaim) error {
	return fleet.Errorf(fleet.Stale, "another run follows region %s now", c.Peer)
}
