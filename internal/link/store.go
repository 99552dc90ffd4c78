package link

import (
	"context"
	"crypto/ed25519"

	"github.com/holdfast-io/holdfast/internal/fleet"
	// Only the plain data types that stores give and take.
	"github.com/holdfast-io/holdfast/internal/postgres"
)

// Store is all that the link needs of the region's truth. Errors are *fleet.Error.
type Store interface {
	identityStore
	connectionStore
	serverStore
}

type identityStore interface {
	// NodeKeys is not_found for a node that is unknown or revoked. It gives two keys while the
	// node changes its key; the second is used by UseKey, which voids the first.
	NodeKeys(ctx context.Context, node fleet.NodeName) ([]ed25519.PublicKey, error)
	UseKey(ctx context.Context, node fleet.NodeName, key ed25519.PublicKey) error
	APITokenByHash(ctx context.Context, hash []byte) (postgres.APIToken, error)
	AddRefusals(ctx context.Context, all []postgres.Refusal) error
}

type connectionStore interface {
	RegisterConnection(ctx context.Context, r fleet.Registration, server string) (postgres.Registered, error)
	DeregisterConnection(ctx context.Context, id fleet.ConnectionID, identity string) error
	OpenConnection(ctx context.Context, id fleet.ConnectionID, identity, server string) (postgres.Connection, error)
	GetConnection(ctx context.Context, id fleet.ConnectionID) (postgres.Connection, error)
	// MoveConnections may be repeated; what is elsewhere or has ended stays as it is.
	MoveConnections(ctx context.Context, server string, moves postgres.ConnectionMoves) error
	RecordHeartbeats(ctx context.Context, server string, all []postgres.Heartbeat) error
	HeldConnections(ctx context.Context, server string) (map[fleet.ConnectionID]postgres.Held, error)
	// MembershipOf is what a node is to know of its site, MembershipMarks its mark by connection.
	MembershipOf(ctx context.Context, node fleet.NodeName) (fleet.Membership, error)
	MembershipMarks(ctx context.Context, server string) (map[fleet.ConnectionID]string, error)
	// ListenLink works until ctx ends or the database's connection breaks.
	ListenLink(ctx context.Context, tell func(fleet.ConnectionID, fleet.ConnectionEvent)) error
}

type serverStore interface {
	LinkServerSeen(ctx context.Context, id string) error
	LinkServerGone(ctx context.Context, id string) error
	LinkServers(ctx context.Context) ([]postgres.LinkServer, error)
	SweepLinkServer(ctx context.Context, gone postgres.LinkServer) (int, error)
}

var _ Store = (*postgres.Store)(nil)
