package nodes

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"time"

	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/postgres"
	"github.com/holdfast-io/holdfast/internal/postgres/db"
)

// Rotation is where the change of a node's key stands.
type Rotation struct {
	AskedAt time.Time
	Offered bool // the region knows the new key: either opens doors until the new one is used
}

// KeyOffer is a node's new public halves, in a request that Signer signed.
type KeyOffer struct {
	Node             fleet.NodeName
	Signer           []byte
	Signing, Sealing []byte
}

// AskRotation has a node make a new key. Asking again takes back a new key that was offered
// and not used yet, whoever offered it.
func (s *Store) AskRotation(ctx context.Context, node fleet.NodeName) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.AskRotation(ctx, string(node))
		if err != nil {
			return err
		}
		if n == 0 {
			return fleet.Errorf(fleet.IllegalState, "node %s is not enrolled", node).WithHint("there is no key to change: enrol it with a join token")
		}
		return tellPeer(ctx, q, node)
	})
}

// tellPeer notifies the peer of a node's valid signing keys.
func tellPeer(ctx context.Context, q *db.Queries, node fleet.NodeName) error {
	at, err := q.GetNode(ctx, string(node))
	if err != nil {
		return err
	}
	return postgres.TellSite(ctx, q, at.Site)
}

// OfferKey takes note of a node's new key. The same offer again is the same; one that was not
// asked for is denied, and another one than the first is conflict.
func (s *Store) OfferKey(ctx context.Context, o KeyOffer) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.OfferKey(ctx, db.OfferKeyParams{
			NextSigningKey: o.Signing, NextSealingKey: o.Sealing, Name: string(o.Node), Signer: o.Signer,
		})
		if err != nil {
			return err
		}
		if n > 0 {
			return tellPeer(ctx, q, o.Node)
		}
		return noOffer(ctx, q, o)
	})
}

// noOffer says why a key was not taken.
func noOffer(ctx context.Context, q *db.Queries, o KeyOffer) error {
	row, err := q.GetNode(ctx, string(o.Node))
	switch {
	case err != nil:
		return err
	case row.RotationAskedAt == nil:
		return fleet.Errorf(fleet.Denied, "no new key was requested from node %s", o.Node).WithHint("holdfast node rotate-key " + string(o.Node))
	case row.NextSigningKey != nil:
		return fleet.Errorf(fleet.Conflict, "node %s has offered another new key", o.Node).
			WithHint("if the node was restored, retry: holdfast node rotate-key; otherwise its key was stolen: holdfast node revoke")
	}
	return fleet.Errorf(fleet.Invalid, "invalid new key of node %s", o.Node)
}

// Speaker gives the name, site, role and key of a node, and its NodeKeys. Each call of a node reads it, so nothing is
// counted for it. It is not_found as NodeKeys is.
func (s *Store) Speaker(ctx context.Context, node fleet.NodeName) (Node, []ed25519.PublicKey, error) {
	n, err := s.Q.GetNode(ctx, string(node))
	if err != nil && !postgres.NoRows(err) {
		return Node{}, nil, err
	}
	keys := keysOf(n.SigningKey, n.NextSigningKey)
	if err != nil || n.RevokedAt != nil || n.RemovedAt != nil || keys == nil {
		return Node{}, nil, notEnrolled(node)
	}
	return Node{Name: node, Site: fleet.SiteName(n.Site), Role: fleet.Role(n.Role), SigningKey: n.SigningKey}, keys, nil
}

func notEnrolled(node fleet.NodeName) error {
	return fleet.Errorf(fleet.NotFound, "node %s is not enrolled", node)
}

// keysOf are the keys of an enrolled node.
func keysOf(signing, next []byte) []ed25519.PublicKey {
	if len(signing) != ed25519.PublicKeySize {
		return nil
	}
	keys := []ed25519.PublicKey{signing}
	if len(next) == ed25519.PublicKeySize {
		keys = append(keys, next)
	}
	return keys
}

// NodeKeys are the signing keys by which a node may speak: the second only while it changes
// its key. A node that is unknown, revoked or not enrolled is not_found.
func (s *Store) NodeKeys(ctx context.Context, node fleet.NodeName) ([]ed25519.PublicKey, error) {
	all, err := s.KeysOfNodes(ctx, []fleet.NodeName{node})
	if err == nil && all[node] == nil {
		err = notEnrolled(node)
	}
	return all[node], err
}

// KeysOfNodes are the NodeKeys of many; those that have none are not in it.
func (s *Store) KeysOfNodes(ctx context.Context, nodes []fleet.NodeName) (map[fleet.NodeName][]ed25519.PublicKey, error) {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = string(n)
	}
	rows, err := s.Q.NodeKeys(ctx, names)
	out := make(map[fleet.NodeName][]ed25519.PublicKey, len(rows))
	for _, row := range rows {
		if keys := keysOf(row.SigningKey, row.NextSigningKey); keys != nil {
			out[fleet.NodeName(row.Name)] = keys
		}
	}
	return out, err
}

// UseKey is the use of a key that NodeKeys gave at a place above the first: from the commit on
// it is the node's only key. What the old one opened is ended.
func (s *Store) UseKey(ctx context.Context, node fleet.NodeName, key ed25519.PublicKey) error {
	return s.Tx(ctx, func(q *db.Queries) error {
		n, err := q.UseNextKey(ctx, db.UseNextKeyParams{Name: string(node), Key: key})
		if err != nil {
			return err
		}
		if n == 0 {
			return usedElsewhere(ctx, q, node, key)
		}
		return tellRevoked(ctx, q, string(node))
	})
}

// usedElsewhere is fine when another request was first; the offer may also have been taken back.
func usedElsewhere(ctx context.Context, q *db.Queries, node fleet.NodeName, key ed25519.PublicKey) error {
	rows, err := q.NodeKeys(ctx, []string{string(node)})
	if err != nil {
		return err
	}
	if len(rows) == 0 || subtle.ConstantTimeCompare(rows[0].SigningKey, key) != 1 {
		return fleet.Errorf(fleet.Unauthenticated, "node token refused")
	}
	return nil
}
