package httpapi

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/internal/audit"
	"github.com/holdfast-io/holdfast/internal/fleet"
	"github.com/holdfast-io/holdfast/internal/identity"
	"github.com/holdfast-io/holdfast/internal/postgres/nodes"
)

type rotateKeyOutput struct {
	Status int
	Body   api.Node
}

// rotateKey asks a node for a new key; the answer shows how far that is, as reading the node does.
func (s *server) rotateKey(ctx context.Context, in *revokeNodeInput) (*rotateKeyOutput, error) {
	n, site, err := s.visibleNode(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		return &rotateKeyOutput{Status: http.StatusOK, Body: nodeView(n, site.holder)}, nil
	}
	if err := s.store.AskRotation(ctx, n.Name); err != nil {
		return nil, err
	}
	s.log.Info("node key rotation requested", "node", n.Name, "by", callOf(ctx).actor)
	n, site, err = s.visibleNode(ctx, in.Name)
	return &rotateKeyOutput{Status: http.StatusAccepted, Body: nodeView(n, site.holder)}, err
}

func keyView(n nodes.Node) *api.NodeKey {
	if n.EnrolledAt == nil || n.RevokedAt != nil {
		return nil
	}
	k := &api.NodeKey{Since: *n.EnrolledAt}
	if n.RotatedAt != nil && n.RotatedAt.After(k.Since) {
		k.Since = *n.RotatedAt
	}
	if n.Rotation != nil {
		k.Rotation, k.AskedAt = api.RotationAsked, &n.Rotation.AskedAt
		if n.Rotation.Offered {
			k.Rotation = api.RotationOffered
		}
	}
	return k
}

type keyRequest struct {
	SigningKey string `json:"signingKey"`
	SealingKey string `json:"sealingKey"`
}

// keyAnswer says whether the key that was offered is the node's only one: then the request was
// signed by it.
type keyAnswer struct {
	Confirmed bool `json:"confirmed"`
}

// nodeKey takes a node's new public halves. Signed by the old key it is an offer; signed by the
// new one it is the use that voids the old, and the answer confirms it. Both may be repeated.
func (s *server) nodeKey(w http.ResponseWriter, r *http.Request) error {
	node, err := s.node(r)
	if err != nil {
		return err
	}
	var in keyRequest
	if err := s.readWire(w, r, &in); err != nil {
		return err
	}
	signing, err := identity.DecodePublic("/signingKey", in.SigningKey)
	if err != nil {
		return err
	}
	sealing, err := identity.DecodePublic("/sealingKey", in.SealingKey)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(node.SigningKey, signing[:]) == 1 {
		return answerJSON(w, http.StatusOK, keyAnswer{Confirmed: true})
	}
	err = s.store.OfferKey(r.Context(), nodes.KeyOffer{
		Node: node.Name, Signer: node.SigningKey, Signing: signing[:], Sealing: sealing[:],
	})
	if fleet.KindOf(err) == fleet.Conflict {
		s.refused(audit.Refusal{Door: DoorHTTP, Identity: "node:" + string(node.Name), Reason: "other_key_offered", What: r.Method + " " + r.URL.Path})
	}
	if err != nil {
		return err
	}
	s.log.Info("node offered a new key", "node", node.Name)
	return answerJSON(w, http.StatusOK, keyAnswer{})
}
