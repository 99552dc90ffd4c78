package link

import (
	"context"
	"crypto/ed25519"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres/deployments"
	"github.com/holdfast-io/holdfast/internal/postgres/keyring"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

// Store is what the link needs of the region's database. Errors are *fleet.Error.
type Store interface {
	identityStore
	connectionStore
	serverStore
}

type identityStore interface {
	// KeysOfNodes omits nodes that are unknown or revoked. It returns two keys while a node changes its key; UseKey
	// uses the second, which voids the first.
	KeysOfNodes(ctx context.Context, nodes []fleet.NodeName) (map[fleet.NodeName][]ed25519.PublicKey, error)
	UseKey(ctx context.Context, node fleet.NodeName, key ed25519.PublicKey) error
	// APITokensByHash omits tokens that are unknown, expired or revoked.
	APITokensByHash(ctx context.Context, hashes [][]byte) (map[string]keyring.APIToken, error)
}

type connectionStore interface {
	// RegisterConnections may contain each provider only once; the error is for all.
	RegisterConnections(ctx context.Context, all []fleet.Registration, server string) ([]nodes.Registered, error)
	DeregisterConnection(ctx context.Context, id fleet.ConnectionID, identity string) error
	OpenConnections(ctx context.Context, all []nodes.Opening, server string) ([]nodes.Opened, error)
	GetConnection(ctx context.Context, id fleet.ConnectionID) (nodes.Connection, error)
	// MoveConnections may be repeated; connections that are elsewhere or have ended stay as they are.
	MoveConnections(ctx context.Context, server string, moves nodes.ConnectionMoves) error
	RecordHeartbeats(ctx context.Context, server string, all []nodes.Heartbeat) error
	HeldConnections(ctx context.Context, server string) (map[fleet.ConnectionID]nodes.Held, error)
	// MembershipsOf are what nodes have to know of their sites, MembershipMarks the marks by connection.
	MembershipsOf(ctx context.Context, nodes []fleet.NodeName) (map[fleet.NodeName]fleet.Membership, error)
	MembershipMarks(ctx context.Context, server string) (map[fleet.ConnectionID]string, error)
	// ListenLink works until ctx ends or the database's connection breaks.
	ListenLink(ctx context.Context, heard nodes.LinkHeard) error
	// WantedNodes returns the nodes that were wanted within a time, each with a number that rises each time;
	// WantedNode that of one, 0 for none.
	WantedNodes(ctx context.Context, within time.Duration) (map[fleet.NodeName]int64, error)
	WantedNode(ctx context.Context, node fleet.NodeName, within time.Duration) (int64, error)
}

type serverStore interface {
	LinkServerSeen(ctx context.Context, id string, silence time.Duration) error
	LinkServerGone(ctx context.Context, id string) error
	LinkServers(ctx context.Context) ([]nodes.LinkServer, error)
	SweepLinkServer(ctx context.Context, gone nodes.LinkServer) (nodes.SweptServer, error)
}

// ReplicaStore is what the link needs for replicas. Errors are *fleet.Error.
type ReplicaStore interface {
	// ReplicasReported has stored the report when it returns. It may be repeated. It fails with gone if the
	// report's connection has ended, because a later one may have reported more.
	ReplicasReported(ctx context.Context, r fleet.ReplicasReport) (deployments.ReplicasHeard, error)
	// NodeStopped deregisters a connection whose node ended all of its replicas. It may be repeated.
	NodeStopped(ctx context.Context, id fleet.ConnectionID, identity string) (deployments.ReplicasHeard, error)
	// NodeSetVersion is the version of its set that a node should have, 0 if it never had any; NodeSetVersions
	// those of the nodes whose streams a server holds.
	NodeSetVersion(ctx context.Context, node fleet.NodeName) (era, version int64, err error)
	NodeSetVersions(ctx context.Context, server string) (map[fleet.ConnectionID]fleet.NodeReplicas, error)
	// WakeDeploymentsOn wakes the deployments with replicas on any of the nodes, durably when it returns. It
	// returns their subjects for a faster wake. It may be repeated.
	WakeDeploymentsOn(ctx context.Context, nodes []fleet.NodeName) ([]string, error)
}
